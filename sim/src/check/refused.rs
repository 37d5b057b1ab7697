//! Clients that did nothing wrong, and to whom nothing happened, are not refused.

use rejoin_core::settings::{Delivery, OnRepeat};

use super::facts::Facts;
use super::known::{Asked, Connection, Post};
use super::{Verdict, Violation};
use crate::history::{Conn, Outcome};
use crate::plan::Plan;

const PROPERTY: &str = "good clients are not refused";
/// A twin waits so long for its first (`hold_max_ms`).
const HOLD_MAX_MS: u64 = 10_000;
/// A twin asks its first for a sign of life, for so long (`liveness_answer_ms`, and the way).
const LIVENESS_MS: std::ops::Range<u64> = 2_000..3_500;
/// `request_in_flight`: a twin whose first outlives that.
const IN_FLIGHT: i64 = 40902;
/// `not_idempotent`: a repeat, where the plan says so.
const NOT_IDEMPOTENT: i64 = 40903;
/// `dedup_token_reused`: two askings under one token.
const TOKEN_REUSED: i64 = 40904;
/// `outcome_unknown`: a twin of what was cancelled.
const UNKNOWN: i64 = 40906;

pub fn check(plan: &Plan, facts: &Facts, verdict: &mut Verdict) {
    for (asking, asked) in &facts.askings {
        for &(at_ms, conn, code) in &asked.errors {
            let Some(post) = asked.posts.first().filter(|_| is_good(facts, asked, conn, at_ms))
            else {
                continue;
            };
            *verdict.refused.entry(code).or_default() += 1;
            if !is_allowed(plan, facts, asked, (post, at_ms, code)) {
                let what = format!("asking {asking} is refused with {code}");
                verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
            }
        }
    }
}

/// Its client has asked once, and no connection of its client's has come to harm so far; nor has
/// anything else been lost, or anybody be away.
fn is_good(facts: &Facts, asked: &Asked, conn: Conn, at_ms: u64) -> bool {
    let [post] = &asked.posts[..] else { return false };
    // All that is remembered of the session was calm so far.
    let from_ms = facts.sessions.get(&post.session).map_or(0, |session| session.at_ms);
    let own = facts.connections.values().filter(|known| known.client == asked.client);
    let is_harmed = |known: &Connection| {
        let left = known.unread.into_iter().chain(known.ended).filter(|left| *left < at_ms);
        // Connections that are left after their answer are well ended.
        left.into_iter().any(|left| !known.is_idle(left) || !known.resets.is_empty())
            || known.blocked.overlap(0, at_ms)
    };
    post.conn == conn
        && !own.into_iter().any(is_harmed)
        && facts.losses_of(post.session, from_ms, at_ms).next().is_none()
        && !facts.away.overlap(from_ms, at_ms)
        && !facts.draining.overlap(from_ms, at_ms)
}

/// What the design refuses all the same.
fn is_allowed(
    plan: &Plan,
    facts: &Facts,
    asked: &Asked,
    (post, at_ms, code): (&Post, u64, i64),
) -> bool {
    let others = || facts.askings.values().filter(|other| !std::ptr::eq(*other, asked));
    let has_sister = others().any(|other| other.wish() == asked.wish());
    let waited_ms = at_ms - post.at_ms;
    // The first gave no sign of life: its client reads late, and takes no comment either.
    let is_unheard = LIVENESS_MS.contains(&waited_ms);
    match code {
        IN_FLIGHT => has_sister && (waited_ms >= HOLD_MAX_MS || is_unheard),
        // Under `proved` the answer of the first counts as missing until its client says otherwise.
        NOT_IDEMPOTENT => {
            let is_missing = plan.delivery == Delivery::Proved || is_unheard;
            has_sister && plan.on_repeat == OnRepeat::Reject && is_missing
        }
        // Of a call that its client cancelled nobody knows how far it came.
        UNKNOWN => {
            let mut sisters = others().filter(|other| other.wish() == asked.wish());
            sisters.any(|sister| matches!(sister.outcome, Some((_, Outcome::Cancelled))))
        }
        TOKEN_REUSED => {
            let mut own = others().filter(|other| other.client == asked.client);
            asked.token.is_some() && own.any(|other| other.token == asked.token)
        }
        _ => false,
    }
}
