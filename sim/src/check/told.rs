//! What the server is told: each cancel, answer and end that the gateway took from a client, once,
//! for the right call, and none that nobody gave.

use super::facts::Facts;
use super::known::{Executed, Lost};
use super::{Verdict, Violation};
use crate::history::{Exec, RequestId, What};
use crate::plan::{Plan, Server};

const PROPERTY: &str = "what the server is told";
/// What was taken is told by then, also through a slow disk.
const TOLD_MAX_MS: u64 = 2_000;
/// A server has ended by then.
const ENDED_MAX_MS: u64 = 5_000;
/// Such a server is ended by then.
const UNWRITTEN_MS: u64 = 500;
/// The gateway answers in place of a client that is not there (`server_request_max_ms`).
const ANSWER_MAX_MS: u64 = 60_000;

pub fn check(plan: &Plan, facts: &Facts, verdict: &mut Verdict) {
    let mut tell = |at_ms, what| {
        verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
    };
    for (at_ms, what) in &facts.told {
        let wrong = match *what {
            What::CancelTaken { session, request } => {
                untold_cancel(facts, *at_ms, session, request)
            }
            What::CancelTold { session, call } => {
                unwanted_cancel(plan, facts, *at_ms, session, call)
            }
            What::AnswerTaken { session, exec } => untold_answer(facts, *at_ms, session, exec),
            What::AnswerTold { exec, meant } => wrong_answer(facts, *at_ms, exec, meant),
            What::EndTaken { session } => untold_end(facts, *at_ms, session),
            What::Unready { session } => unready(facts, *at_ms, session),
            What::EndTold { session } => unwanted_end(facts, *at_ms, session),
            _ => None,
        };
        if let Some(what) = wrong {
            tell(*at_ms, what);
        }
    }
}

/// When something was told that `is_it`.
fn when<'a>(
    facts: &'a Facts,
    is_it: impl Fn(&What) -> bool + 'a,
) -> impl Iterator<Item = u64> + 'a {
    facts.told.iter().filter(move |(_, what)| is_it(what)).map(|(at_ms, _)| *at_ms)
}

/// The way to the server, or what stands on it, broke between two times.
fn is_broken(facts: &Facts, session: usize, from_ms: u64, to_ms: u64) -> bool {
    facts.losses_of(session, from_ms, to_ms).next().is_some() || facts.away.overlap(from_ms, to_ms)
}

/// The server ran it before its client cancelled it, and until the gateway had that.
fn untold_cancel(
    facts: &Facts,
    taken_ms: u64,
    session: usize,
    request: RequestId,
) -> Option<String> {
    let is_it = |what: &What| *what == What::Cancelling { session, request };
    let sent_ms = when(facts, is_it).filter(|at_ms| *at_ms <= taken_ms).last()?;
    let runs = |executed: &&Executed| {
        (executed.session, executed.request) == (session, request)
            && executed.at_ms < sent_ms
            && executed.ended_ms() > taken_ms
    };
    let mut running = facts.executions.values().filter(runs);
    // Of several with one id, none is cancelled (design section 5); a repeat that waits is one.
    let (Some(executed), None) = (running.next(), running.next()) else { return None };
    let mut posts = facts.askings_of(executed.wish()).flat_map(|asked| &asked.posts);
    let repeats = executed.at_ms..=taken_ms;
    if posts.any(|post| post.request == request && repeats.contains(&post.at_ms)) {
        return None;
    }
    let due_ms = taken_ms + TOLD_MAX_MS;
    let call = executed.call;
    let is_told = |what: &What| *what == What::CancelTold { session, call };
    if when(facts, is_told).any(|at_ms| at_ms <= due_ms)
        || is_broken(facts, session, sent_ms, due_ms)
        || is_lost(facts, executed, taken_ms)
    {
        return None;
    }
    Some(format!("the cancel of call {call} in session {session} does not reach it"))
}

/// The gateway can know of it no longer: its server, or the log of it, was lost while it ran.
fn is_lost(facts: &Facts, executed: &Executed, until_ms: u64) -> bool {
    facts.losses_of(executed.session, executed.at_ms, until_ms).next().is_some()
}

fn unwanted_cancel(
    plan: &Plan,
    facts: &Facts,
    at_ms: u64,
    session: usize,
    call: u64,
) -> Option<String> {
    let is_it = |executed: &&Executed| (executed.session, executed.call) == (session, call);
    let Some(executed) = facts.executions.values().find(is_it) else {
        // A call may have been lost on its way, or come behind its cancel.
        let from_ms = at_ms.saturating_sub(ANSWER_MAX_MS);
        let is_lost = is_broken(facts, session, from_ms, at_ms) || plan.server == Server::Web;
        return (!is_lost).then(|| format!("session {session} has no call {call} to cancel"));
    };
    let request = executed.request;
    let is_wanted = |what: &What| match *what {
        What::Cancelling { session: s, request: r } => (s, r) == (session, request),
        What::Ending { session: s } => s == session,
        _ => false,
    };
    // A call that may run twice makes way for its repeat (row 6).
    let is_superseded = !executed.charge;
    let is_wanted = when(facts, is_wanted).any(|sent_ms| sent_ms <= at_ms);
    (!is_wanted && !is_superseded).then(|| format!("nobody cancelled call {call} of {session}"))
}

fn untold_answer(facts: &Facts, taken_ms: u64, session: usize, exec: Exec) -> Option<String> {
    let executed = facts.executions.get(&exec)?;
    let due_ms = taken_ms + TOLD_MAX_MS;
    let is_told = |what: &What| matches!(*what, What::AnswerTold { exec: e, .. } if e == exec);
    // One that ends before it hears it needs it no more.
    let is_over = executed.ended_ms() <= due_ms;
    let is_excused = is_over || is_broken(facts, session, executed.at_ms, due_ms);
    let is_told = when(facts, is_told).any(|at_ms| at_ms <= due_ms);
    (!is_told && !is_excused).then(|| format!("the answer to {exec} does not reach it"))
}

fn wrong_answer(facts: &Facts, at_ms: u64, exec: Exec, meant: Option<Exec>) -> Option<String> {
    let is_it = |what: &What| matches!(*what, What::AnswerTold { exec: e, .. } if e == exec);
    if when(facts, is_it).filter(|told_ms| *told_ms <= at_ms).count() > 1 {
        return Some(format!("{exec} is answered twice"));
    }
    let Some(executed) = facts.executions.get(&exec) else {
        return Some(format!("an answer to {exec}, which is none"));
    };
    match meant {
        Some(meant) if meant != exec => {
            Some(format!("{exec} is given the answer to what {meant} asked"))
        }
        Some(_) => None,
        None => {
            let is_early = at_ms < executed.at_ms + ANSWER_MAX_MS;
            let is_lost = is_broken(facts, executed.session, executed.at_ms, at_ms);
            (is_early && !is_lost).then(|| format!("{exec} is refused an answer at once"))
        }
    }
}

fn untold_end(facts: &Facts, taken_ms: u64, session: usize) -> Option<String> {
    let due_ms = taken_ms + ENDED_MAX_MS;
    let own = facts.executions.values().filter(|executed| executed.session == session);
    // Since then it is known to be there.
    let seen_ms = own.map(|executed| executed.at_ms).filter(|at_ms| *at_ms < taken_ms).max()?;
    let is_told = |what: &What| *what == What::EndTold { session };
    let is_told = when(facts, is_told).any(|at_ms| (seen_ms..=due_ms).contains(&at_ms));
    let is_excused = is_broken(facts, session, seen_ms, due_ms);
    (!is_told && !is_excused).then(|| format!("the server's session of {session} is not ended"))
}

/// Unless its client calls although it was told that what it said first was not taken.
fn unready(facts: &Facts, at_ms: u64, session: usize) -> Option<String> {
    let opened_ms = facts.sessions.get(&session)?.at_ms;
    let mut losses = facts.losses_of(session, opened_ms, at_ms);
    let is_refused = losses.any(|(_, lost)| matches!(lost, Lost::Commit(_)));
    (!is_refused).then(|| format!("the server of {session} is called before `initialized`"))
}

fn unwanted_end(facts: &Facts, at_ms: u64, session: usize) -> Option<String> {
    // One that its client never knew ends when nobody comes (`session_unused_ms`).
    let known = facts.sessions.get(&session)?;
    let is_wanted = |what: &What| *what == What::Ending { session };
    let is_wanted = when(facts, is_wanted).any(|sent_ms| sent_ms <= at_ms);
    // What an earlier log held is nobody's, nor is what was opened and could not be written down.
    let is_lost = facts.losses_of(session, known.at_ms, at_ms).any(|(lost_ms, lost)| match lost {
        Lost::Ledger => true,
        Lost::Commit(_) => lost_ms + UNWRITTEN_MS >= at_ms,
        _ => false,
    });
    (!is_wanted && !is_lost).then(|| format!("nobody ended the server's session of {session}"))
}
