//! Liveness: every POST gets its head in time, every asking is settled, and in the end a new call
//! is answered in every session.

use rejoin_core::settings::OnRepeat;

use super::facts::{Connection, Facts};
use super::{Verdict, Violation};
use crate::history::{Key, Outcome};
use crate::plan::Plan;

const PROPERTY: &str = "liveness";
/// `hold_max_ms`, one liveness answer, and the way there and back.
const HEAD_MAX_MS: u64 = 14_000;
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
        for (_, conn, sent_ms) in &asked.posts {
            let Some(connection) = facts.connections.get(conn) else { continue };
            let due_ms = sent_ms + HEAD_MAX_MS;
            // Of a path behind a proxy its client's connection tells nothing.
            let behind = facts.first_blocked.filter(|_| plan.proxy.is_some());
            let ends = [connection.spoiled, connection.unread, behind];
            let in_time = |at_ms: &u64| (*sent_ms..=due_ms).contains(at_ms);
            let is_excused = ends.into_iter().flatten().any(|at_ms| at_ms <= due_ms)
                || facts.disturbed(*sent_ms, due_ms)
                || facts.counts.virtual_ms <= due_ms;
            let has_head = connection.heads.iter().any(|(at_ms, ..)| in_time(at_ms));
            if !is_excused && !has_head {
                tell(due_ms, format!("asking {asking} has no head on connection {conn}"));
            }
            if !is_excused && !has_verdict(plan, facts, asked.key, connection, (*sent_ms, due_ms)) {
                tell(due_ms, format!("asking {asking} is still held on connection {conn}"));
            }
        }
    }
}

/// By then a POST is answered or refused, its call runs, or it may be attached to one that runs.
fn has_verdict(
    plan: &Plan,
    facts: &Facts,
    key: Key,
    connection: &Connection,
    (sent_ms, due_ms): (u64, u64),
) -> bool {
    let in_time = |at_ms: &u64| (sent_ms..=due_ms).contains(at_ms);
    let mut executions = facts.executions.values().filter(|executed| executed.key == key);
    plan.on_repeat == OnRepeat::Join
        || connection.says.iter().any(in_time)
        || connection.heads.iter().any(|(at_ms, status, _)| *status != 200 && in_time(at_ms))
        || facts.losses.iter().any(|(at_ms, _)| in_time(at_ms))
        || executions.any(|executed| {
            let runs = executed.produced.is_none_or(|(at_ms, _)| at_ms >= sent_ms);
            executed.at_ms <= due_ms && runs
        })
}
