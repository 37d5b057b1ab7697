//! Completeness: what a call produced is read by whoever comes back for it, whole and once.

use rejoin_core::settings::OnRepeat;

use super::facts::{Asked, Facts};
use super::{Verdict, Violation};
use crate::history::{Exec, Key, Mark, Outcome};
use crate::plan::{Plan, Server};

const PROPERTY: &str = "completeness";
/// By then what a call is known by, or its answer, is on disk, however slow that is.
const BEGINNING_MS: u64 = 2_500;

pub fn check(plan: &Plan, facts: &Facts, verdict: &mut Verdict) {
    for (asking, asked) in &facts.askings {
        let mut tell = |at_ms, what: String| {
            let what = format!("asking {asking}: {what}");
            verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
        };
        if let Some((at_ms, what)) = misread(facts, asked) {
            tell(at_ms, what);
        }
        if let Some((at_ms, outcome)) = &asked.outcome
            && !is_possible(plan, facts, asked, outcome)
        {
            tell(*at_ms, format!("its client is left with {outcome:?}"));
        }
    }
}

/// Progress comes once, in order and without a gap, and all of it before the answer.
fn misread(facts: &Facts, asked: &Asked) -> Option<(u64, String)> {
    let mut last: (Exec, u32) = (0, 0);
    let mut asks = Vec::new();
    for (at_ms, mark) in &asked.read {
        match *mark {
            Mark::Progress(exec, step) => {
                let before = if last.0 == exec { last.1 } else { 0 };
                // A twin may be shown to where its sister stands.
                let is_twin = facts.askings_of(asked.key).count() > 1;
                if step != before + 1 && !(is_twin && before == 0) {
                    return Some((*at_ms, format!("step {step} of {exec} comes after {before}")));
                }
                last = (exec, step);
            }
            Mark::Answer(exec) => {
                let is_recorded =
                    matches!(asked.outcome, Some((_, Outcome::Answered(_, recorded))) if recorded);
                let steps = facts.executions.get(&exec).and_then(|known| known.produced);
                let steps = steps.map(|(_, steps)| steps);
                // A record, also one that is joined, is the answer alone.
                let read = if last.0 == exec { last.1 } else { 0 };
                let is_twin = facts.askings_of(asked.key).count() > 1;
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
            Mark::ReplayEnd => {}
        }
    }
    None
}

/// A call that may run twice makes way for its twin (row 6).
fn is_superseded(facts: &Facts, key: Key) -> bool {
    let mut executions = facts.executions.values().filter(|executed| executed.key == key);
    facts.askings_of(key).count() > 1 && executions.all(|executed| !executed.charge)
}

/// Something was lost while a call with these arguments ran, or was on its way: nobody can know.
fn is_unknown(plan: &Plan, facts: &Facts, key: Key) -> bool {
    facts.losses.iter().any(|(lost_ms, of_gateway)| {
        let has_begun = |at_ms: u64| (at_ms..=at_ms + BEGINNING_MS).contains(lost_ms);
        let mut posts = facts.askings_of(key).flat_map(|asked| &asked.posts);
        if posts.any(|(.., sent_ms)| has_begun(*sent_ms)) {
            return true;
        }
        // A server elsewhere gives its answer also to the gateway's next life.
        let goes_on = *of_gateway && plan.server == Server::Web;
        facts.executions.values().filter(|executed| executed.key == key).any(|executed| {
            let ended_ms = executed.produced.map_or(u64::MAX, |(at_ms, _)| at_ms + BEGINNING_MS);
            // One that came while the gateway was down may not have been fetched yet.
            let lives = executed.at_ms..=ended_ms;
            let was_down = facts.losses.iter().any(|(at_ms, down)| *down && lives.contains(at_ms));
            let ended_ms = if was_down { u64::MAX } else { ended_ms };
            let ran = (executed.at_ms..=ended_ms).contains(lost_ms);
            has_begun(executed.at_ms) || (ran && !goes_on)
        })
    })
}

/// What a client may end up with that comes back for its answer.
fn is_possible(plan: &Plan, facts: &Facts, asked: &Asked, outcome: &Outcome) -> bool {
    let mut sisters = facts.askings_of(asked.key);
    let mut has_cancelled_sister =
        || sisters.any(|sister| matches!(sister.outcome, Some((_, Outcome::Cancelled))));
    match outcome {
        Outcome::Answered(..) | Outcome::Cancelled | Outcome::Dropped => true,
        Outcome::Refused(40903) => plan.on_repeat == OnRepeat::Reject,
        Outcome::Refused(40906) => {
            has_cancelled_sister()
                || is_superseded(facts, asked.key)
                || is_unknown(plan, facts, asked.key)
        }
        Outcome::Refused(_) | Outcome::Failed(_) => false,
        Outcome::NothingToResume => has_cancelled_sister(),
        Outcome::Patience => false,
    }
}
