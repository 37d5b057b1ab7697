//! Exactly once: a call that was asked once and must not run twice does not, nor does a token.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rejoin_core::settings::{Delivery, RepeatScope};

use super::facts::Facts;
use super::known::{Asked, Executed, Lost};
use super::{Verdict, Violation};
use crate::history::{Exec, Key, Wish};
use crate::plan::Plan;

const PROPERTY: &str = "exactly once";
/// A reset counts for so long (`reset_window_ms`).
const RESET_WINDOW_MS: u64 = 5_000;
/// A repeat without a token is one for so long (`repeat_window_ms`).
const REPEAT_WINDOW_MS: u64 = 600_000;

const AFTER_LOSS: &str = "after the log was lost";
const AFTER_WINDOW: &str = "after the repeat window";

pub fn check(plan: &Plan, facts: &Facts, verdict: &mut Verdict) {
    check_tokens(facts, verdict);
    let wishes: BTreeSet<Wish> =
        facts.executions.values().filter(|e| e.charge).map(Executed::wish).collect();
    for wish in wishes {
        let all: Vec<(Exec, Executed)> =
            facts.executions_of(wish).map(|(exec, executed)| (exec, *executed)).collect();
        check_wish(plan, facts, wish, &all, verdict);
    }
}

fn check_wish(
    plan: &Plan,
    facts: &Facts,
    wish: Wish,
    all: &[(Exec, Executed)],
    verdict: &mut Verdict,
) {
    // Each asking allows one execution, and none that came before it.
    let mut asked_ms: VecDeque<u64> = facts.askings_of(wish).map(|asked| asked.at_ms).collect();
    asked_ms.make_contiguous().sort_unstable();
    let has_token = facts.askings_of(wish).any(|asked| asked.token.is_some());
    // Before that nothing is known.
    let (mut known_ms, mut remembered) = (0, 0);
    for (place, (exec, executed)) in all.iter().enumerate() {
        let mut losses = facts.losses_of(executed.session, known_ms, executed.at_ms);
        let lost = losses.rfind(|(_, lost)| *lost == Lost::Ledger);
        if let Some((lost_ms, _)) = lost.filter(|_| !has_token && place > remembered) {
            verdict.limits.push(AFTER_LOSS);
            (known_ms, remembered) = (lost_ms + 1, place);
            asked_ms.retain(|at_ms| *at_ms > lost_ms);
            still_wanted(facts, wish, lost_ms).for_each(|_| asked_ms.push_front(lost_ms));
        }
        if asked_ms.pop_front_if(|at_ms| *at_ms <= executed.at_ms).is_some() {
            continue;
        }
        let Some(limit) = excuse(plan, facts, &all[remembered..place], executed) else {
            verdict.violations.push(Violation {
                property: PROPERTY,
                at_ms: executed.at_ms,
                what: format!("execution {exec} of what was asked for before ({wish:?})"),
            });
            continue;
        };
        verdict.limits.push(limit);
        if limit == AFTER_WINDOW {
            // Whatever else is still wanted runs once more too.
            remembered = place;
            let others = still_wanted(facts, wish, executed.at_ms).skip(1);
            others.for_each(|_| asked_ms.push_front(executed.at_ms));
        }
    }
}

/// Askings that were not settled at a time.
fn still_wanted(facts: &Facts, wish: Wish, at_ms: u64) -> impl Iterator<Item = &Asked> {
    let is_open = move |asked: &&Asked| {
        let settled = asked.outcome.as_ref().map(|(settled_ms, _)| *settled_ms);
        asked.at_ms <= at_ms && settled.is_none_or(|settled_ms| settled_ms > at_ms)
    };
    facts.askings_of(wish).filter(is_open)
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
    let since =
        |first: &Executed| facts.clock_ms(now.at_ms).saturating_sub(facts.clock_ms(first.at_ms));
    if before.iter().all(|(_, first)| since(first) > REPEAT_WINDOW_MS) {
        return Some(AFTER_WINDOW);
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
