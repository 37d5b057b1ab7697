//! What a run has reached of the decision.

use std::collections::BTreeMap;

use super::facts::Facts;
use crate::history::{Outcome, What};

/// Rows of the decision that the gateway's log does not name, because the call goes on to row
/// 16: how often they were seen to decide.
pub fn rows(facts: &Facts) -> BTreeMap<&'static str, u64> {
    let mut rows = BTreeMap::new();
    for executed in facts.executions.values().filter(|executed| !executed.charge) {
        let (session, request, call) = (executed.session, executed.request, executed.call);
        let is = |wanted: What| facts.told.iter().any(|(_, what)| *what == wanted);
        let is_ended = is(What::Cancelling { session, request }) || is(What::Ending { session });
        let is_replaced = is(What::CancelTold { session, call }) && !is_ended;
        let is_answered = facts.askings_of(executed.wish()).any(|asked| {
            let answered = asked
                .outcome
                .as_ref()
                .filter(|(_, outcome)| matches!(outcome, Outcome::Answered(_, false)));
            answered.is_some_and(|(at_ms, _)| *at_ms <= executed.at_ms)
        });
        if is_replaced {
            *rows.entry("row 06 supersede").or_default() += 1;
        }
        if is_answered {
            *rows.entry("row 12 admit").or_default() += 1;
        }
    }
    rows
}
