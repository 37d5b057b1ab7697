//! Exactly once: a call that was asked once and must not run twice does not, nor does a token.

use std::collections::VecDeque;

use rejoin_core::settings::{Delivery, RepeatScope};

use super::facts::{Executed, Facts};
use super::{Verdict, Violation};
use crate::history::{Exec, Key};
use crate::plan::Plan;

const PROPERTY: &str = "exactly once";
/// A reset counts for so long (`reset_window_ms`).
const RESET_WINDOW_MS: u64 = 5_000;
/// A repeat without a token is one for so long (`repeat_window_ms`).
const REPEAT_WINDOW_MS: u64 = 600_000;

pub fn check(plan: &Plan, facts: &Facts, verdict: &mut Verdict) {
    let mut keys: Vec<Key> =
        facts.executions.values().filter(|e| e.charge).map(|e| e.key).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let all: Vec<(Exec, Executed)> = facts
            .executions
            .iter()
            .filter(|(_, executed)| executed.key == key)
            .map(|(exec, executed)| (*exec, *executed))
            .collect();
        // Each asking allows one execution, and none that came before it.
        let mut asked_ms: VecDeque<u64> = facts.askings_of(key).map(|asked| asked.at_ms).collect();
        asked_ms.make_contiguous().sort_unstable();
        for (place, (exec, executed)) in all.iter().enumerate() {
            if asked_ms.pop_front_if(|at_ms| *at_ms <= executed.at_ms).is_some() {
                continue;
            }
            match excuse(plan, facts, &all[..place], executed) {
                Some(limit) => verdict.limits.push(limit),
                None => verdict.violations.push(Violation {
                    property: PROPERTY,
                    at_ms: executed.at_ms,
                    what: format!("execution {exec} of what was asked for before (key {key})"),
                }),
            }
        }
    }
}

/// The documented limit by which an execution came about although the same ran before.
fn excuse(
    plan: &Plan,
    facts: &Facts,
    before: &[(Exec, Executed)],
    now: &Executed,
) -> Option<&'static str> {
    let has_token = facts.askings_of(now.key).any(|asked| asked.token);
    let principal = facts.sessions.get(&now.session).copied().flatten();
    let is_other_session = before.iter().all(|(_, first)| first.session != now.session);
    let knows_sessions = plan.scope == RepeatScope::Principal || has_token;
    if is_other_session && (principal.is_none() || !knows_sessions) {
        return Some("another session");
    }
    if has_token {
        return None;
    }
    let since =
        |first: &Executed| facts.clock_ms(now.at_ms).saturating_sub(facts.clock_ms(first.at_ms));
    if before.iter().all(|(_, first)| since(first) > REPEAT_WINDOW_MS) {
        return Some("after the repeat window");
    }
    if plan.delivery == Delivery::Presumed
        && before.iter().all(|(exec, _)| is_presumed(facts, *exec, now.at_ms))
    {
        return Some("presumed delivered");
    }
    if plan.twins && (plan.proxy.is_some() || has_living(facts, now)) {
        return Some("two calls on living connections");
    }
    if has_come_late(facts, now) {
        return Some("a POST came after its client had left");
    }
    None
}

/// A POST of the same was on its way when its client had left its connection already.
fn has_come_late(facts: &Facts, now: &Executed) -> bool {
    let mut posts = facts.askings_of(now.key).flat_map(|asked| &asked.posts);
    posts.any(|(_, conn, _)| {
        let Some(known) = facts.connections.get(conn) else { return false };
        let is_late = |at_ms: &u64| known.left.is_some_and(|left| left <= *at_ms);
        known.arrivals.iter().any(|at_ms| is_late(at_ms) && *at_ms <= now.at_ms)
    })
}

/// The answer was in a kernel, and no reset told that it stays there.
fn is_presumed(facts: &Facts, exec: Exec, by_ms: u64) -> bool {
    facts.in_kernel(exec).any(|(conn, at_ms)| {
        let until_ms = by_ms.min(at_ms + RESET_WINDOW_MS);
        let resets = facts.connections.get(&conn).map(|known| &known.resets[..]);
        let is_told = |reset: &u64| (at_ms..=until_ms).contains(reset);
        at_ms < by_ms && !resets.unwrap_or_default().iter().any(is_told)
    })
}

/// An earlier POST of the same is on a connection that its client has not left.
fn has_living(facts: &Facts, now: &Executed) -> bool {
    facts.askings_of(now.key).any(|asked| {
        let earlier = asked.posts.len().saturating_sub(1);
        asked.posts[..earlier].iter().any(|(_, conn, _)| {
            let left = facts.connections.get(conn).and_then(|known| known.left);
            left.is_none_or(|left| left > now.at_ms)
        })
    })
}
