//! What a gateway that ends in order, or dies, leaves as it was: running calls finish and their
//! answers arrive, as long as a drain may take; nobody's session is gone in the next life.

use super::facts::Facts;
use super::known::{Executed, Lost, Post};
use super::{Verdict, Violation};
use crate::history::{Exec, Mark, What};

const PROPERTY: &str = "what a drain keeps";
/// A drain waits so long (`drain_ms`).
const DRAIN_MAX_MS: u64 = 30_000;

pub fn check(facts: &Facts, verdict: &mut Verdict) {
    let mut tell = |at_ms, what| {
        verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
    };
    for (at_ms, left) in &facts.left_behind {
        tell(*at_ms, format!("{left} servers outlive a gateway that drained"));
    }
    for (began_ms, ended_ms) in facts.draining.all() {
        // One that took its whole time gave up.
        if ended_ms >= began_ms + DRAIN_MAX_MS {
            continue;
        }
        for (exec, executed) in &facts.executions {
            if let Some(what) = dropped(facts, *exec, executed, (began_ms, ended_ms)) {
                tell(ended_ms, what);
            }
        }
    }
    for asked in facts.askings.values() {
        for post in &asked.posts {
            if is_gone(facts, post) {
                tell(post.at_ms, format!("session {} is gone", post.session));
            }
        }
    }
}

/// It ran when the drain began, and is not finished, or its answer has not arrived.
fn dropped(
    facts: &Facts,
    exec: Exec,
    executed: &Executed,
    (began_ms, ended_ms): (u64, u64),
) -> Option<String> {
    let session = executed.session;
    let ran = executed.at_ms < began_ms && executed.ended_ms() > began_ms;
    let post = facts.post_of(executed)?;
    // Of what an earlier life began, this one knows how to go on: it need not wait.
    let mut losses = facts.losses_of(session, post.at_ms, ended_ms);
    let is_lost = losses.any(|(at_ms, lost)| (at_ms, lost) != (ended_ms, Lost::Drained));
    if !ran || is_lost || is_cancelled(facts, executed, ended_ms) {
        return None;
    }
    if executed.ended_ms() > ended_ms {
        return Some(format!("{exec} is given up by a drain that had time"));
    }
    let connection = facts.connections.get(&post.conn)?;
    let is_over = |at_ms: Option<u64>| at_ms.is_some_and(|at_ms| at_ms < ended_ms);
    // It was lost before, or another one took its stream over.
    let is_harmed = is_over(connection.unread)
        || is_over(connection.ended.filter(|at_ms| *at_ms < executed.ended_ms()))
        || connection.blocked.overlap(executed.at_ms, ended_ms)
        || facts.blocked.overlap(executed.at_ms, ended_ms)
        || connection.whole.iter().any(|at_ms| (executed.at_ms..ended_ms).contains(at_ms))
        || !connection.resets.is_empty();
    let has_arrived = connection.marks.iter().any(|(_, mark)| *mark == Mark::Answer(exec));
    (!is_harmed && !has_arrived).then(|| format!("the answer of {exec} is lost by a drain"))
}

fn is_cancelled(facts: &Facts, executed: &Executed, by_ms: u64) -> bool {
    let (session, request, call) = (executed.session, executed.request, executed.call);
    facts.told.iter().filter(|(at_ms, _)| *at_ms <= by_ms).any(|(_, what)| {
        *what == What::Cancelling { session, request }
            || *what == What::CancelTold { session, call }
    })
}

/// A POST is answered 404 though nobody ended its session, and the log is there.
fn is_gone(facts: &Facts, post: &Post) -> bool {
    let Some(connection) = facts.connections.get(&post.conn) else { return false };
    let head = connection.heads.iter().find(|(at_ms, ..)| *at_ms >= post.at_ms);
    let Some(&(at_ms, 404, _)) = head else { return false };
    let opened_ms = facts.sessions.get(&post.session).map_or(0, |known| known.at_ms);
    let mut losses = facts.losses_of(post.session, opened_ms, at_ms);
    let session = post.session;
    let is_ended = facts.told.iter().any(|(_, what)| *what == What::Ending { session });
    !is_ended && !losses.any(|(_, lost)| lost == Lost::Ledger)
}
