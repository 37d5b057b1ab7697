//! Exactly once: a call that was asked once and must not run twice does not, nor does a token.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rejoin_core::settings::{Delivery, RepeatScope};

use super::facts::{Executed, Facts, Lost};
use super::{Verdict, Violation};
use crate::history::{Exec, Key, Wish};
use crate::plan::Plan;

const PROPERTY: &str = "exactly once";
/// A reset counts for so long (`reset_window_ms`).
const RESET_WINDOW_MS: u64 = 5_000;
/// A repeat without a token is one for so long (`repeat_window_ms`).
const REPEAT_WINDOW_MS: u64 = 600_000;

pub fn check(plan: &Plan, facts: &Facts, verdict: &mut Verdict) {
    check_tokens(facts, verdict);
    let wishes: BTreeSet<Wish> =
        facts.executions.values().filter(|e| e.charge).map(Executed::wish).collect();
    for wish in wishes {
        let all: Vec<(Exec, Executed)> =
            facts.executions_of(wish).map(|(exec, executed)| (exec, *executed)).collect();
        // Each asking allows one execution, and none that came before it.
        let mut asked_ms: VecDeque<u64> = facts.askings_of(wish).map(|asked| asked.at_ms).collect();
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
                    what: format!("execution {exec} of what was asked for before ({wish:?})"),
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
    let has_token = facts.askings_of(now.wish()).any(|asked| asked.token.is_some());
    let principal = facts.sessions.get(&now.session).and_then(|session| session.principal);
    let is_other_session = before.iter().all(|(_, first)| first.session != now.session);
    let knows_sessions = plan.scope == RepeatScope::Principal || has_token;
    if is_other_session && (principal.is_none() || !knows_sessions) {
        return Some("another session");
    }
    if has_token {
        return None;
    }
    let is_lost = |first: &Executed| {
        let mut losses = facts.losses_of(now.session, first.at_ms, now.at_ms);
        losses.any(|(_, lost)| lost == Lost::Ledger)
    };
    if before.iter().all(|(_, first)| is_lost(first)) {
        return Some("after the log was lost");
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
    let mut posts = facts.askings_of(now.wish()).flat_map(|asked| &asked.posts);
    posts.any(|post| {
        let Some(known) = facts.connections.get(&post.conn) else { return false };
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

/// An earlier POST of the same is on a connection that its client has not left, and whose answer it
/// has not read.
fn has_living(facts: &Facts, now: &Executed) -> bool {
    facts.askings_of(now.wish()).any(|asked| {
        let earlier = asked.posts.len().saturating_sub(1);
        asked.posts[..earlier].iter().any(|post| {
            let Some(known) = facts.connections.get(&post.conn) else { return true };
            let is_read = |whole: &u64| (post.at_ms..=now.at_ms).contains(whole);
            known.left.is_none_or(|left| left > now.at_ms) && !known.whole.iter().any(is_read)
        })
    })
}

/// A token stands for one call: whatever else is asked for under it does not run.
fn check_tokens(facts: &Facts, verdict: &mut Verdict) {
    let mut owners: BTreeMap<(usize, Key), (Wish, u64)> = BTreeMap::new();
    for (exec, executed) in &facts.executions {
        let Some(token) = facts.askings_of(executed.wish()).find_map(|asked| asked.token) else {
            continue;
        };
        let principal = facts.sessions.get(&executed.session).and_then(|known| known.principal);
        // An anonymous client's token ends with its session; every token does with the log.
        let first = (executed.wish(), executed.at_ms);
        let (wish, at_ms) = *owners.entry((executed.client, token)).or_insert(first);
        let mut losses = facts.losses_of(executed.session, at_ms, executed.at_ms);
        let is_lost = losses.any(|(_, lost)| lost == Lost::Ledger);
        if wish != executed.wish() && principal.is_some() && !is_lost {
            let what = format!("execution {exec} under the token of {wish:?}");
            verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
        }
    }
}
