//! The history, sorted by what checkers ask for.

use std::collections::BTreeMap;

use super::Counts;
use crate::history::{Asking, Conn, Exec, Key, Leave, Mark, Outcome, Record, What};

/// An asking.
#[derive(Clone, Debug)]
pub struct Asked {
    pub at_ms: u64,
    pub key: Key,
    pub token: bool,
    pub outcome: Option<(u64, Outcome)>,
    /// Session, connection and time of each POST.
    pub posts: Vec<(usize, Conn, u64)>,
    /// What its client read, in order.
    pub read: Vec<(u64, Mark)>,
}

/// An execution.
#[derive(Clone, Copy, Debug)]
pub struct Executed {
    pub at_ms: u64,
    pub key: Key,
    pub session: usize,
    pub charge: bool,
    /// When it gave its result, and the steps of progress before it.
    pub produced: Option<(u64, u32)>,
}

/// A connection.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// The client's side has left it, really.
    pub left: Option<u64>,
    /// The client does not read it any more.
    pub unread: Option<u64>,
    /// It is no longer of use to the gateway: left, reset, over, or with a path that was blocked.
    pub spoiled: Option<u64>,
    /// Its first answer was read to the end.
    pub whole: Option<u64>,
    pub resets: Vec<u64>,
    /// Heads of answers: when, the status, and whether a replay follows.
    pub heads: Vec<(u64, u16, bool)>,
    /// For a GET: the session.
    pub resumes: Option<usize>,
    /// When a client's code read something for an asking.
    pub says: Vec<u64>,
    /// When something came to the gateway.
    pub arrivals: Vec<u64>,
    /// What came into the client's kernel.
    pub marks: Vec<(u64, Mark)>,
}

fn is_panic(line: &str) -> bool {
    line.starts_with("a panic: ") || line.contains("ended by a panic")
}

/// All of it.
#[derive(Debug, Default)]
pub struct Facts {
    pub askings: BTreeMap<Asking, Asked>,
    pub executions: BTreeMap<Exec, Executed>,
    pub connections: BTreeMap<Conn, Connection>,
    /// The principal of each session.
    pub sessions: BTreeMap<usize, Option<u32>>,
    /// Times at which something was lost that the log cannot give back; true: of the gateway alone.
    pub losses: Vec<(u64, bool)>,
    /// Times at which everybody may have had to wait.
    pub disturbances: Vec<u64>,
    /// How far the gateway's clock was off, from when on.
    pub skews: Vec<(u64, i64)>,
    /// When a path was blocked first.
    pub first_blocked: Option<u64>,
    pub panics: Vec<(u64, String)>,
    pub intrusions: Vec<(u64, u16)>,
    pub is_in_time: bool,
    pub counts: Counts,
}

impl Facts {
    pub fn of(records: &[Record]) -> Self {
        let mut facts = Self::default();
        for Record { at_ms, what } in records {
            facts.add(*at_ms, what);
            facts.counts.virtual_ms = *at_ms;
        }
        facts
    }

    fn connection(&mut self, conn: Conn) -> &mut Connection {
        self.connections.entry(conn).or_default()
    }

    fn spoil(&mut self, conn: Conn, at_ms: u64) {
        self.connection(conn).spoiled.get_or_insert(at_ms);
    }

    fn add(&mut self, at: u64, what: &What) {
        match *what {
            What::Gateway(ref line) if is_panic(line) => {
                self.panics.push((at, line.clone()));
            }
            What::Gateway(ref line) => {
                self.counts.repeats += u64::from(line.contains("a repeat does not run"));
                self.counts.waited += u64::from(line.contains("a wait ended"));
            }
            What::Crashed { .. } => {
                self.counts.crashes += 1;
                self.losses.push((at, true));
                self.disturbances.push(at);
            }
            What::Started { skew_ms, .. } => self.skews.push((at, skew_ms)),
            What::Moved { conn, to_client: false, .. } => self.connection(conn).arrivals.push(at),
            What::ServerDied | What::ServerCut => self.losses.push((at, false)),
            What::StoreFailed => {
                self.losses.push((at, false));
                self.disturbances.push(at);
            }
            What::InKernel { conn, mark } => self.connection(conn).marks.push((at, mark)),
            What::ResetSeen { conn } => {
                self.spoil(conn, at);
                self.connection(conn).resets.push(at);
            }
            What::Left { conn, how } => {
                self.connection(conn).unread.get_or_insert(at);
                if how != Leave::Stay {
                    self.spoil(conn, at);
                    self.connection(conn).left.get_or_insert(at);
                }
            }
            What::Whole { conn } => {
                self.connection(conn).whole.get_or_insert(at);
            }
            What::Over { conn } => self.spoil(conn, at),
            What::Blocked { conn, .. } => {
                self.spoil(conn, at);
                self.first_blocked.get_or_insert(at);
            }
            What::Session { session, principal, .. } => {
                self.sessions.insert(session, principal);
            }
            What::Head { conn, status, replays } => {
                self.connection(conn).heads.push((at, status, replays));
            }
            What::Intruded { status, as_expected: false } => self.intrusions.push((at, status)),
            What::Ended { in_time } => self.is_in_time = in_time,
            _ => self.add_call(at, what),
        }
    }

    fn add_call(&mut self, at_ms: u64, what: &What) {
        match *what {
            What::Asked { asking, key, token, .. } => {
                self.counts.askings += 1;
                let (outcome, posts, read) = (None, Vec::new(), Vec::new());
                let asked = Asked { at_ms, key, token, outcome, posts, read };
                self.askings.insert(asking, asked);
            }
            What::Posted { asking, session, conn, .. } => {
                self.counts.posts += 1;
                if let Some(asked) = self.askings.get_mut(&asking) {
                    asked.posts.push((session, conn, at_ms));
                }
            }
            What::Resumed { session, conn, .. } => {
                self.counts.resumed += 1;
                self.connection(conn).resumes = Some(session);
            }
            What::Read { asking, mark, conn, .. } => {
                self.connection(conn).says.push(at_ms);
                if let Some(asked) = self.askings.get_mut(&asking) {
                    asked.read.push((at_ms, mark));
                }
            }
            What::Error { conn, .. } => {
                self.connection(conn).says.push(at_ms);
                self.counts.refused += 1;
            }
            What::Executed { exec, key, session, charge } => {
                self.counts.executions += 1;
                let executed = Executed { at_ms, key, session, charge, produced: None };
                self.executions.insert(exec, executed);
            }
            What::Produced { exec, steps } => {
                if let Some(executed) = self.executions.get_mut(&exec) {
                    executed.produced = Some((at_ms, steps));
                }
            }
            What::Settled { asking, ref outcome, .. } => {
                if let Outcome::Answered(_, recorded) = outcome {
                    self.counts.answered += 1;
                    self.counts.recorded += u64::from(*recorded);
                }
                if let Some(asked) = self.askings.get_mut(&asking) {
                    asked.outcome = Some((at_ms, outcome.clone()));
                }
            }
            _ => {}
        }
    }

    /// Askings with these arguments.
    pub fn askings_of(&self, key: Key) -> impl Iterator<Item = &Asked> {
        self.askings.values().filter(move |asked| asked.key == key)
    }

    /// When and where the result of an execution came into a kernel.
    pub fn in_kernel(&self, exec: Exec) -> impl Iterator<Item = (Conn, u64)> {
        self.connections.iter().flat_map(move |(conn, connection)| {
            let marks = connection.marks.iter();
            let answers = marks.filter(move |(_, mark)| *mark == Mark::Answer(exec));
            answers.map(move |(at_ms, _)| (*conn, *at_ms))
        })
    }

    /// What the clock of a session may show, which never goes back.
    pub fn clock_ms(&self, at_ms: u64) -> u64 {
        let set = self.skews.iter().take_while(|(set_ms, _)| *set_ms <= at_ms);
        let ahead_ms = set.map(|(_, skew_ms)| *skew_ms).max().unwrap_or_default();
        at_ms.saturating_add_signed(ahead_ms.max(0))
    }

    /// True if something disturbed everybody between two times.
    pub fn disturbed(&self, from_ms: u64, to_ms: u64) -> bool {
        self.disturbances.iter().any(|at_ms| (from_ms..=to_ms).contains(at_ms))
    }
}
