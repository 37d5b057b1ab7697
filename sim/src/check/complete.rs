//! Completeness: what a call produced is read by whoever comes back for it, whole and once.

use rejoin_core::settings::OnRepeat;

use super::facts::Facts;
use super::known::{Asked, Connection, Executed, Lost, Post};
use super::{Verdict, Violation};
use crate::history::{Asking, Conn, Exec, Mark, Outcome, Wish};
use crate::plan::{Plan, Server};

const PROPERTY: &str = "completeness";
/// By then what a call is known by, or its answer, is on disk.
const DURABLE_MS: u64 = 300;
/// The same, if the disk is slow.
const DURABLE_SLOWLY_MS: u64 = 2_500;
/// A POST has its verdict by then.
const VERDICT_MAX_MS: u64 = 14_000;
/// By then a gateway that runs again, or a server that is there again, has what ran meanwhile.
const FETCHED_MS: u64 = 45_000;

pub fn check(plan: &Plan, facts: &Facts, verdict: &mut Verdict) {
    for (at_ms, asking, exec) in &facts.garbled {
        let what = format!("asking {asking}: the answer of {exec} is not what it gave");
        verdict.violations.push(Violation { property: PROPERTY, at_ms: *at_ms, what });
    }
    for (asking, asked) in &facts.askings {
        let mut tell = |at_ms, what: String| {
            let what = format!("asking {asking}: {what}");
            verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
        };
        if let Some((at_ms, what)) = misread(facts, asked) {
            tell(at_ms, what);
        }
        if let Some((at_ms, what)) = written_twice(facts, *asking, asked) {
            tell(at_ms, what);
        }
        if let Some((at_ms, outcome)) = &asked.outcome
            && !is_possible(plan, facts, asked, outcome)
        {
            tell(*at_ms, format!("its client is left with {outcome:?}"));
        }
    }
}

/// Once a GET carries a stream, an answer that comes then is given to no older connection of it.
fn written_twice(facts: &Facts, asking: Asking, asked: &Asked) -> Option<(u64, String)> {
    let gets = facts.connections.iter().filter(|(_, known)| known.resumed_for.contains(&asking));
    for (get, connection) in gets.clone() {
        let Some((asked_ms, _)) = connection.resumes else { continue };
        let Some(&(head_ms, 200, _)) = connection.heads.first() else { continue };
        // What was handed over before may still wait for its place in a kernel.
        let is_later = |executed: &Executed| executed.produced.is_some_and(|p| p.0 > head_ms);
        let late = |known: &Connection, is_own: &dyn Fn(Exec, &Executed) -> bool| {
            let written = known.written.iter().filter(|(at_ms, _)| *at_ms > head_ms);
            written.copied().find(|(_, exec)| {
                let executed = facts.executions.get(exec);
                executed.is_some_and(|executed| is_later(executed) && is_own(*exec, executed))
            })
        };
        let is_of_it = |exec: Exec| connection.written.iter().any(|(_, other)| *other == exec);
        let tell = |(at_ms, exec): (u64, Exec)| {
            let what =
                format!("the answer of {exec} is written to a connection that {get} took over");
            (at_ms, what)
        };
        for post in asked.posts.iter().filter(|post| post.at_ms < asked_ms) {
            let Some(older) = facts.connections.get(&post.conn) else { continue };
            // Of a POST that repeats, the answer is a record of its own.
            let is_own =
                |exec, executed: &Executed| executed.request == post.request && is_of_it(exec);
            if let Some(found) = late(older, &is_own) {
                return Some(tell(found));
            }
        }
        let older = gets.clone().filter(|(_, known)| known.resumes.is_some_and(|r| r.0 < asked_ms));
        for (_, older) in older {
            if let Some(found) = late(older, &|exec, _| is_of_it(exec)) {
                return Some(tell(found));
            }
        }
    }
    None
}

/// Progress comes once, in order and without a gap, and all of it before the answer.
fn misread(facts: &Facts, asked: &Asked) -> Option<(u64, String)> {
    let mut last: (Exec, u32) = (0, 0);
    let mut asks = Vec::new();
    let mut answers: Vec<(Conn, Exec)> = Vec::new();
    for (at_ms, conn, mark) in &asked.read {
        match *mark {
            Mark::Progress(exec, step) => {
                let before = if last.0 == exec { last.1 } else { 0 };
                // A twin may be shown to where its sister stands.
                let is_twin = facts.askings_of(asked.wish()).count() > 1;
                if step != before + 1 && !(is_twin && before == 0) {
                    return Some((*at_ms, format!("step {step} of {exec} comes after {before}")));
                }
                last = (exec, step);
            }
            Mark::Answer(exec) => {
                if answers.contains(&(*conn, exec)) {
                    return Some((*at_ms, format!("the answer of {exec} comes twice")));
                }
                answers.push((*conn, exec));
                let is_recorded =
                    matches!(asked.outcome, Some((_, Outcome::Answered(_, recorded))) if recorded);
                let steps = facts.executions.get(&exec).and_then(|known| known.produced);
                let steps = steps.map(|(_, steps)| steps);
                // A record, also one that is joined, is the answer alone.
                let read = if last.0 == exec { last.1 } else { 0 };
                let is_twin = facts.askings_of(asked.wish()).count() > 1;
                let is_whole = is_recorded || (is_twin && read == 0);
                if !is_whole && steps.is_some_and(|steps| steps != read) {
                    return Some((*at_ms, format!("{exec} is answered after step {read}")));
                }
            }
            Mark::Ask(exec) => {
                if asks.contains(&exec) {
                    return Some((*at_ms, format!("{exec} asks its client twice")));
                }
                asks.push(exec);
            }
            Mark::Note(..) | Mark::ReplayEnd => {}
        }
    }
    None
}

/// A call that may run twice makes way for its twin (row 6).
fn is_superseded(facts: &Facts, wish: Wish) -> bool {
    let mut executions = facts.executions_of(wish);
    facts.askings_of(wish).count() > 1 && executions.all(|(_, executed)| !executed.charge)
}

/// Something was lost of which a POST of this may have been a part: nobody can know.
fn is_unknown(plan: &Plan, facts: &Facts, wish: Wish) -> bool {
    let mut posts = facts.askings_of(wish).flat_map(|asked| &asked.posts);
    posts.any(|post| {
        let own = facts.executions_of(wish).map(|(_, executed)| executed);
        let is_own = |e: &&Executed| facts.post_of(e).is_some_and(|own| std::ptr::eq(own, post));
        let mut own = own.filter(is_own).peekable();
        if own.peek().is_none() {
            return is_lost_on_its_way(facts, post);
        }
        own.any(|executed| is_lost_in_its_run(plan, facts, post, executed))
    })
}

fn durable_ms(facts: &Facts, at_ms: u64) -> u64 {
    let is_slow = facts.slow_disk.overlap(at_ms.saturating_sub(DURABLE_SLOWLY_MS), at_ms);
    at_ms.saturating_add(if is_slow { DURABLE_SLOWLY_MS } else { DURABLE_MS })
}

/// It never ran: what its client has read tells when it was decided.
fn is_lost_on_its_way(facts: &Facts, post: &Post) -> bool {
    let says = facts.connections.get(&post.conn).map(|known| &known.says[..]).unwrap_or_default();
    let said_ms = says.iter().find(|at_ms| **at_ms >= post.at_ms);
    let until_ms = said_ms.copied().unwrap_or(post.at_ms + VERDICT_MAX_MS);
    facts.losses_of(post.session, post.at_ms, until_ms).next().is_some()
        || has_lost_all(facts, post)
}

/// The log in which its client's session began.
fn has_lost_all(facts: &Facts, post: &Post) -> bool {
    let opened_ms = facts.sessions.get(&post.session).map_or(post.at_ms, |known| known.at_ms);
    let mut losses = facts.losses_of(post.session, opened_ms, u64::MAX);
    losses.any(|(_, lost)| lost == Lost::Ledger)
}

/// When what was to be had of the server at `from_ms` is here: once the gateway and the way to the
/// server have been there for long enough.
fn fetched_ms(facts: &Facts, from_ms: u64) -> u64 {
    let all = [&facts.down, &facts.draining, &facts.away].map(|periods| periods.all());
    let mut troubles: Vec<_> = all.into_iter().flatten().collect();
    troubles.sort_unstable();
    let mut due_ms = from_ms.saturating_add(FETCHED_MS);
    for (began_ms, ended_ms) in troubles {
        if began_ms <= due_ms && ended_ms > from_ms {
            due_ms = due_ms.max(ended_ms.saturating_add(FETCHED_MS));
        }
    }
    due_ms
}

fn is_lost_in_its_run(plan: &Plan, facts: &Facts, post: &Post, executed: &Executed) -> bool {
    let (began_ms, session) = (executed.at_ms, executed.session);
    let begun_ms = durable_ms(facts, began_ms);
    if has_lost_all(facts, post) || facts.losses_of(session, post.at_ms, begun_ms).next().is_some()
    {
        return true;
    }
    let is_web = plan.server == Server::Web;
    let ended_ms = durable_ms(facts, executed.ended_ms());
    // What the server elsewhere says meanwhile is fetched once there is a way again.
    let is_cut = |(_, lost)| matches!(lost, Lost::Gateway | Lost::Drained | Lost::ServerCut);
    let was_cut = is_web
        && (facts.losses_of(session, began_ms, ended_ms).any(is_cut)
            || facts.away.overlap(began_ms, ended_ms));
    let ended_ms = if was_cut { fetched_ms(facts, ended_ms) } else { ended_ms };
    facts.losses_of(session, began_ms, ended_ms).any(|(_, lost)| match lost {
        Lost::Server | Lost::Ledger => true,
        // A server elsewhere gives its answer also to the gateway's next life.
        Lost::Gateway | Lost::Drained | Lost::Commit(_) => !is_web,
        Lost::ServerCut => false,
    })
}

/// What a client may end up with that comes back for its answer.
fn is_possible(plan: &Plan, facts: &Facts, asked: &Asked, outcome: &Outcome) -> bool {
    let wish = asked.wish();
    let mut sisters = facts.askings_of(wish);
    let mut has_cancelled_sister =
        || sisters.any(|sister| matches!(sister.outcome, Some((_, Outcome::Cancelled))));
    match outcome {
        Outcome::Answered(..) | Outcome::Cancelled | Outcome::Dropped => true,
        Outcome::Refused(40903) => plan.on_repeat == OnRepeat::Reject,
        Outcome::Refused(40906) => {
            has_cancelled_sister() || is_superseded(facts, wish) || is_unknown(plan, facts, wish)
        }
        Outcome::Refused(40904) => {
            let others = facts.askings.values().filter(|other| other.client == asked.client);
            others.filter(|other| other.key != asked.key).any(|other| other.token == asked.token)
        }
        Outcome::Refused(_) | Outcome::Failed(_) => false,
        Outcome::NothingToResume => has_cancelled_sister(),
        Outcome::Patience => false,
    }
}
