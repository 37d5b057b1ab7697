//! The standalone stream: what a server says of its own is kept, and comes once, in order.

use super::facts::Facts;
use super::known::Listener;
use super::{Verdict, Violation};

const PROPERTY: &str = "standalone stream";
/// What was said is heard by then, on a connection that is there.
const HEARD_MAX_MS: u64 = 2_000;
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
    for &(said_ms, note) in listener.said.iter().filter(|(_, note)| *note > first) {
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
        for connection in listener.conns.iter().filter_map(|conn| facts.connections.get(conn)) {
            let Some(&(head_ms, 200, _)) = connection.heads.first() else { continue };
            let due_ms = said_ms.max(head_ms) + HEARD_MAX_MS;
            let from_ms = said_ms.min(attached_ms);
            let ends = [connection.trouble_ms(head_ms), connection.unread, listener.deaf];
            let is_excused = ends.into_iter().flatten().any(|at_ms| at_ms <= due_ms)
                || due_ms > facts.counts.virtual_ms
                || connection.whole.first().is_some_and(|at_ms| *at_ms <= due_ms)
                || facts.losses_of(session, from_ms, due_ms).next().is_some()
                || [&facts.down, &facts.draining, &facts.away, &facts.slow_disk]
                    .iter()
                    .any(|periods| periods.overlap(from_ms, due_ms))
                || facts.blocked.overlap(from_ms, due_ms);
            if !is_excused && !is_heard(due_ms) {
                return Some((due_ms, format!("{note} is not heard")));
            }
        }
    }
    None
}
