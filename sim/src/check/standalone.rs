//! The standalone stream: what a server says of its own is kept, and comes once, in order.

use super::facts::Facts;
use super::known::Listener;
use super::{Verdict, Violation};

const PROPERTY: &str = "standalone stream";
/// What was said is heard by then: a client may wait 6 s before it comes back.
const HEARD_MAX_MS: u64 = 10_000;
/// By then what was said is on disk, however slow that is.
const DURABLE_MS: u64 = 2_500;

pub fn check(facts: &Facts, verdict: &mut Verdict) {
    for (session, listener) in &facts.listeners {
        if let Some((at_ms, what)) = wrong(facts, *session, listener) {
            let what = format!("session {session}: {what}");
            verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
        }
    }
}

fn wrong(facts: &Facts, session: usize, listener: &Listener) -> Option<(u64, String)> {
    let pairs = listener.heard.iter().zip(listener.heard.iter().skip(1));
    for (&(_, before), &(at_ms, note)) in pairs {
        if note <= before {
            return Some((at_ms, format!("{note} comes after {before}")));
        }
    }
    // From then on its client has a cursor.
    let &(attached_ms, first) = listener.heard.first()?;
    let deaf_ms = listener.deaf.unwrap_or(facts.counts.virtual_ms);
    for &(said_ms, note) in listener.said.iter().filter(|(_, note)| *note > first) {
        let due_ms = said_ms.max(attached_ms) + HEARD_MAX_MS;
        let is_heard = |by_ms: u64| {
            listener.heard.iter().any(|(at_ms, heard)| *heard == note && *at_ms <= by_ms)
        };
        let later = listener.heard.iter().find(|(_, heard)| *heard > note);
        if let Some((at_ms, later)) = later.filter(|_| !is_heard(u64::MAX)) {
            // It may not have come to the log.
            let durable_ms = said_ms + DURABLE_MS;
            let is_unreachable = [&facts.down, &facts.draining, &facts.away]
                .iter()
                .any(|periods| periods.overlap(said_ms, durable_ms));
            let until_ms = if is_unreachable { *at_ms } else { durable_ms };
            let is_lost = facts.losses_of(session, said_ms, until_ms).next().is_some();
            if !is_lost {
                return Some((*at_ms, format!("{later} is heard, and {note} never")));
            }
        }
        let is_excused = due_ms > deaf_ms
            || facts.losses_of(session, attached_ms, due_ms).next().is_some()
            || [&facts.down, &facts.draining, &facts.away, &facts.dark, &facts.slow_disk]
                .iter()
                .any(|periods| periods.overlap(attached_ms, due_ms))
            || facts.blocked.overlap(attached_ms, due_ms);
        if !is_excused && !is_heard(due_ms) {
            return Some((due_ms, format!("{note} is not heard")));
        }
    }
    None
}
