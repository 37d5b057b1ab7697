//! Order: a replay is in its client's kernel before an answer is whose call ran after the GET.

use super::facts::Facts;
use super::known::{Connection, Lost};
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
        let (Some((began_ms, 200, true)), Some((_, session))) = (head, connection.resumes) else {
            continue;
        };
        if let Some((at_ms, exec)) = overtaken(facts, *conn, connection, began_ms, session) {
            let what = format!("the answer of {exec} comes before the replay on connection {conn}");
            verdict.violations.push(Violation { property: PROPERTY, at_ms, what });
        }
    }
}

fn is_forgotten((_, lost): (u64, Lost)) -> bool {
    !matches!(lost, Lost::Server | Lost::ServerCut)
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
        connection.trouble_ms(began_ms),
        connection.whole.first().copied(),
        // Whoever drives the session after that does not know of the replay.
        facts.losses_of(session, began_ms, u64::MAX).find(|lost| is_forgotten(*lost)).map(|l| l.0),
        Some(began_ms + REPLAY_MAX_MS),
    ];
    let until_ms = ends.into_iter().flatten().min()?;
    for (exec, executed) in &facts.executions {
        if executed.session != session || executed.at_ms <= began_ms {
            continue;
        }
        let mut answers = facts.in_kernel(*exec).filter(|(other, _)| *other != conn);
        let overtakes = |at_ms: u64| at_ms < until_ms && brings_news(facts, conn, at_ms);
        if let Some((_, at_ms)) = answers.find(|(_, at_ms)| overtakes(*at_ms)) {
            return Some((at_ms, *exec));
        }
    }
    None
}

/// Something comes on that connection after `at_ms` that no other has brought by then: what a
/// client has read elsewhere it may have confirmed.
fn brings_news(facts: &Facts, conn: Conn, at_ms: u64) -> bool {
    let Some(connection) = facts.connections.get(&conn) else { return false };
    let others = || facts.connections.iter().filter(|(other, _)| **other != conn);
    let is_there = |mark: Mark| {
        let mut marks = others().flat_map(|(_, other)| &other.marks);
        marks.any(|(there_ms, there)| *there == mark && *there_ms <= at_ms)
    };
    let mut replayed = connection.marks.iter().take_while(|(_, mark)| *mark != Mark::ReplayEnd);
    replayed.any(|(later_ms, mark)| *later_ms > at_ms && !is_there(*mark))
}
