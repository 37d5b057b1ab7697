//! Order: a replay is in its client's kernel before an answer is whose call ran after the GET.

use super::facts::{Connection, Facts};
use super::{Verdict, Violation};
use crate::history::{Conn, Mark};
use crate::plan::Plan;

const PROPERTY: &str = "replay before newer answers";
/// A replay holds nothing any longer (`replay_max_ms`).
const REPLAY_MAX_MS: u64 = 60_000;

pub fn check(plan: &Plan, facts: &Facts, verdict: &mut Verdict) {
    if plan.proxy.is_some() {
        // What is in whose kernel cannot be told from here.
        return;
    }
    for (conn, connection) in &facts.connections {
        let head = connection.heads.first().copied();
        let (Some((began_ms, 200, true)), Some(session)) = (head, connection.resumes) else {
            continue;
        };
        if let Some((at_ms, exec)) = overtaken(facts, *conn, connection, began_ms, session) {
            let what = format!("the answer of {exec} comes before the replay on connection {conn}");
            verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
        }
    }
}

fn overtaken(
    facts: &Facts,
    conn: Conn,
    connection: &Connection,
    began_ms: u64,
    session: usize,
) -> Option<(u64, u32)> {
    let whole = connection.marks.iter().find(|(_, mark)| *mark == Mark::ReplayEnd);
    let ends = [
        whole.map(|(at_ms, _)| *at_ms),
        connection.spoiled,
        connection.whole,
        Some(began_ms + REPLAY_MAX_MS),
    ];
    let until_ms = ends.into_iter().flatten().min()?;
    for (exec, executed) in &facts.executions {
        if executed.session != session || executed.at_ms <= began_ms {
            continue;
        }
        let mut answers = facts.in_kernel(*exec).filter(|(other, _)| *other != conn);
        if let Some((_, at_ms)) = answers.find(|(_, at_ms)| *at_ms < until_ms) {
            return Some((at_ms, *exec));
        }
    }
    None
}
