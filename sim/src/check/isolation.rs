//! Isolation: no client reads what another call produced, and none gets in with what is another's.

use super::facts::Facts;
use super::{Verdict, Violation};
use crate::history::Mark;

const PROPERTY: &str = "isolation";

pub fn check(facts: &Facts, verdict: &mut Verdict) {
    let mut tell = |at_ms, what| {
        verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
    };
    for (asking, asked) in &facts.askings {
        for (at_ms, mark) in &asked.read {
            let (Mark::Answer(exec) | Mark::Progress(exec, _) | Mark::Ask(exec)) = mark else {
                continue;
            };
            let executed = facts.executions.get(exec);
            let of = |session| facts.sessions.get(&session).copied();
            let own = asked.posts.first().map(|(session, ..)| of(*session));
            let principal = executed.map(|executed| of(executed.session));
            if own.is_some() && principal.is_some() && own != principal {
                tell(*at_ms, format!("asking {asking} reads {mark:?}, of another principal"));
            }
            let key = executed.map(|executed| executed.key);
            if key != Some(asked.key) {
                tell(*at_ms, format!("asking {asking} reads {mark:?}, of other arguments"));
            }
        }
    }
    for (at_ms, status) in &facts.intrusions {
        tell(*at_ms, format!("a request with what is another's was answered {status}"));
    }
}
