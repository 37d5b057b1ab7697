//! Claim before call, log before send: what must survive a power cut is on the disk before anything
//! of it leaves (design section 4).

use super::facts::Facts;
use super::{Verdict, Violation};

const PROPERTY: &str = "on disk first";

pub fn check(facts: &Facts, verdict: &mut Verdict) {
    let mut tell = |at_ms, what| {
        verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
    };
    for (exec, executed) in &facts.executions {
        let Some(session) = facts.sessions.get(&executed.session) else { continue };
        let claimed = facts.claimed.get(&(session.store_key, executed.call));
        if claimed.is_none_or(|claimed_ms| *claimed_ms > executed.at_ms) {
            tell(executed.at_ms, format!("{exec} runs before its claim is on disk"));
        }
    }
    for connection in facts.connections.values() {
        for &(at_ms, exec) in &connection.written {
            if facts.kept.get(&exec).is_none_or(|kept_ms| *kept_ms > at_ms) {
                tell(at_ms, format!("the answer of {exec} leaves before it is on disk"));
            }
        }
    }
}
