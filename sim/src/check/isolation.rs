//! Isolation: no client reads what another call produced, and none gets in with what is another's.

use super::facts::Facts;
use super::known::Executed;
use super::{Verdict, Violation};
use crate::history::Mark;

const PROPERTY: &str = "isolation";

pub fn check(facts: &Facts, verdict: &mut Verdict) {
    let mut tell = |at_ms, what| {
        verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
    };
    for (asking, asked) in &facts.askings {
        for (at_ms, _, mark) in &asked.read {
            let (Mark::Answer(exec) | Mark::Progress(exec, _) | Mark::Ask(exec)) = mark else {
                continue;
            };
            match facts.executions.get(exec).map(Executed::wish) {
                Some((client, _)) if client != asked.client => {
                    tell(*at_ms, format!("asking {asking} reads {mark:?}, of another client"));
                }
                Some(wish) if wish == asked.wish() => {}
                _ => tell(*at_ms, format!("asking {asking} reads {mark:?}, of other arguments")),
            }
        }
    }
    for (exec, executed) in &facts.executions {
        let owner = facts.sessions.get(&executed.session).map(|session| session.client);
        if owner != Some(executed.client) {
            let session = executed.session;
            let what = format!("execution {exec} is not of the client of session {session}");
            tell(executed.at_ms, what);
        }
    }
    for (at_ms, status) in &facts.intrusions {
        tell(*at_ms, format!("a request with what is another's was answered {status}"));
    }
}
