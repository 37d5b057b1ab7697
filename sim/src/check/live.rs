//! Liveness: every POST gets its head in time, every asking is settled, and in the end a new call
//! is answered in every session.

use rejoin_core::settings::OnRepeat;

use super::facts::Facts;
use super::known::{Connection, Post};
use super::{Verdict, Violation};
use crate::history::{Outcome, Wish};
use crate::plan::Plan;

const PROPERTY: &str = "liveness";
/// `hold_max_ms`, one liveness answer, and the way there and back.
const HEAD_MAX_MS: u64 = 14_000;
/// What nothing may hold is answered by then.
const PING_MAX_MS: u64 = 3_000;
/// An open stream says something by then (`keepalive_comment_ms`, and the way).
const SILENCE_MAX_MS: u64 = 17_000;
/// Arguments of the calls that come last begin here.
const PROBE_KEY: u32 = 1_000;

pub fn check(plan: &Plan, facts: &Facts, verdict: &mut Verdict) {
    let mut tell = |at_ms, what: String| {
        verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
    };
    if !facts.is_in_time {
        tell(facts.counts.virtual_ms, "the run does not come to an end".to_owned());
    }
    for (at_ms, line) in &facts.panics {
        tell(*at_ms, line.clone());
    }
    for (asking, asked) in &facts.askings {
        match &asked.outcome {
            None => tell(asked.at_ms, format!("asking {asking} is never settled")),
            Some((at_ms, outcome)) => {
                let is_answered = matches!(outcome, Outcome::Answered(..));
                if asked.key >= PROBE_KEY && !is_answered {
                    tell(*at_ms, format!("a call after everything is settled: {outcome:?}"));
                }
            }
        }
        for post in &asked.posts {
            let Some(connection) = facts.connections.get(&post.conn) else { continue };
            let (conn, due_ms) = (post.conn, post.at_ms + HEAD_MAX_MS);
            if is_excused(plan, facts, post.session, connection, (post.at_ms, due_ms)) {
                continue;
            }
            if !has_head(connection, (post.at_ms, due_ms)) {
                tell(due_ms, format!("asking {asking} has no head on connection {conn}"));
            }
            if !has_verdict(plan, facts, asked.wish(), connection, post) {
                tell(due_ms, format!("asking {asking} is still held on connection {conn}"));
            }
        }
    }
    for (conn, connection) in &facts.connections {
        let Some((sent_ms, session)) = connection.resumes else { continue };
        let time = (sent_ms, sent_ms + HEAD_MAX_MS);
        if !is_excused(plan, facts, session, connection, time) && !has_head(connection, time) {
            tell(time.1, format!("a GET has no head on connection {conn}"));
        }
    }
    for (sent_ms, session, conn) in &facts.pings {
        let Some(connection) = facts.connections.get(conn) else { continue };
        let time = (*sent_ms, sent_ms + PING_MAX_MS);
        // It may stand first in line for a server that is opened again.
        let from_ms = sent_ms.saturating_sub(PING_MAX_MS);
        let is_lost = facts.losses_of(*session, from_ms, time.1).next().is_some()
            || facts.away.overlap(from_ms, time.1);
        let is_whole = connection.whole.iter().any(|at_ms| *at_ms <= time.1);
        if !is_lost && !is_whole && !is_excused(plan, facts, *session, connection, time) {
            tell(time.1, format!("a ping is not answered on connection {conn}"));
        }
    }
    for (conn, connection) in &facts.connections {
        if let Some(at_ms) = silent(plan, facts, connection) {
            tell(at_ms, format!("nothing is said on connection {conn}"));
        }
    }
}

/// The connection, its client or the gateway itself is why nothing comes between two times.
fn is_excused(
    plan: &Plan,
    facts: &Facts,
    session: usize,
    connection: &Connection,
    (from_ms, to_ms): (u64, u64),
) -> bool {
    // Of a path behind a proxy its client's connection tells nothing.
    let is_blocked = connection.blocked.overlap(from_ms, to_ms)
        || (plan.proxy.is_some() && facts.blocked.overlap(from_ms, to_ms));
    let ends = [connection.ended, connection.unread];
    ends.into_iter().flatten().any(|at_ms| at_ms <= to_ms)
        || is_blocked
        || facts.disturbed(session, from_ms, to_ms)
        || facts.counts.virtual_ms <= to_ms
}

fn has_head(connection: &Connection, (from_ms, to_ms): (u64, u64)) -> bool {
    connection.heads.iter().any(|(at_ms, ..)| (from_ms..=to_ms).contains(at_ms))
}

/// When a stream that is open had said nothing for longer than a comment may take.
fn silent(plan: &Plan, facts: &Facts, connection: &Connection) -> Option<u64> {
    let (head_ms, status, _) = *connection.heads.last()?;
    let session = connection.resumes.map(|(_, session)| session);
    let session = session.or_else(|| {
        let posts = facts.askings.values().flat_map(|asked| &asked.posts);
        let mut own = posts.filter(|post| post.at_ms <= head_ms);
        own.find(|post| {
            facts.connections.get(&post.conn).is_some_and(|known| std::ptr::eq(known, connection))
        })
        .map(|post| post.session)
    })?;
    let later = |at_ms: &&u64| **at_ms >= head_ms;
    if status != 200 || connection.whole.iter().any(|at_ms| *at_ms >= head_ms) {
        return None;
    }
    let mut last_ms = head_ms;
    let ends_ms = facts.counts.virtual_ms;
    let says = connection.bytes.iter().filter(later).copied().chain([ends_ms]);
    for at_ms in says {
        let due_ms = last_ms + SILENCE_MAX_MS;
        if at_ms > due_ms && !is_excused(plan, facts, session, connection, (last_ms, due_ms)) {
            return Some(due_ms);
        }
        last_ms = at_ms;
    }
    None
}

/// By then a POST is answered or refused, its call runs, or it may be attached to one that runs.
fn has_verdict(
    plan: &Plan,
    facts: &Facts,
    wish: Wish,
    connection: &Connection,
    post: &Post,
) -> bool {
    let (sent_ms, due_ms) = (post.at_ms, post.at_ms + HEAD_MAX_MS);
    let in_time = |at_ms: &u64| (sent_ms..=due_ms).contains(at_ms);
    plan.on_repeat == OnRepeat::Join
        || connection.says.iter().any(in_time)
        // A client may read late what is there.
        || connection.marks.iter().any(|(at_ms, _)| in_time(at_ms))
        || connection.heads.iter().any(|(at_ms, status, _)| *status != 200 && in_time(at_ms))
        || facts.losses_of(post.session, sent_ms, due_ms).next().is_some()
        || facts.executions_of(wish).any(|(_, executed)| {
            let runs = executed.produced.is_none_or(|(at_ms, _)| at_ms >= sent_ms);
            executed.at_ms <= due_ms && runs
        })
}
