//! The history, sorted by what checkers ask for.

use std::collections::BTreeMap;

use rejoin_core::id::Digest32;

use super::Counts;
use super::known::{Asked, Connection, Executed, Listener, Lost, Post, Session};
use super::periods::Periods;
use crate::history::{Asking, CallNumber, Conn, Exec, Leave, Mark, Outcome, Record, What, Wish};

fn is_panic(line: &str) -> bool {
    line.starts_with("a panic: ") || line.contains("ended by a panic")
}

/// All of it.
#[derive(Debug, Default)]
pub struct Facts {
    pub askings: BTreeMap<Asking, Asked>,
    pub executions: BTreeMap<Exec, Executed>,
    pub connections: BTreeMap<Conn, Connection>,
    pub sessions: BTreeMap<usize, Session>,
    openings: BTreeMap<usize, u64>,
    pub losses: Vec<(u64, Lost)>,
    /// Servers that outlived the gateway which drained.
    pub left_behind: Vec<(u64, usize)>,
    /// When no gateway was there, or it drained; the server could not be reached; the disk was
    /// slow; nobody could connect; a path was blocked.
    pub down: Periods<()>,
    pub draining: Periods<()>,
    pub away: Periods<()>,
    pub slow_disk: Periods<()>,
    pub dark: Periods<()>,
    pub blocked: Periods<(Conn, bool)>,
    /// What is told and taken, in order, for `told`.
    pub told: Vec<(u64, What)>,
    /// When the claim of a session's call was on the disk, and the answer of an execution.
    pub claimed: BTreeMap<(Digest32, CallNumber), u64>,
    pub kept: BTreeMap<Exec, u64>,
    /// By session.
    pub listeners: BTreeMap<usize, Listener>,
    /// Session and connection of each ping.
    pub pings: Vec<(u64, usize, Conn)>,
    /// How far the gateway's clock was off, from when on.
    pub skews: Vec<(u64, i64)>,
    pub panics: Vec<(u64, String)>,
    pub garbled: Vec<(u64, Asking, Exec)>,
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

    fn end(&mut self, conn: Conn, at_ms: u64) {
        self.connection(conn).ended.get_or_insert(at_ms);
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
            What::Opening { session } => {
                self.openings.insert(session, at);
            }
            What::Session { client, session, principal, store_key } => {
                let at_ms = self.openings.get(&session).copied().unwrap_or(at);
                let known = Session { at_ms, client, principal, store_key };
                self.sessions.insert(session, known);
            }
            What::Listening { session, conn, .. } => {
                let connection = self.connection(conn);
                connection.asked.push(at);
                connection.resumes = Some((at, session));
                self.listeners.entry(session).or_default().conns.push(conn);
            }
            What::Noted { session, note } => {
                self.listeners.entry(session).or_default().said.push((at, note));
            }
            What::Heard { session, note, .. } => {
                self.counts.heard += 1;
                self.listeners.entry(session).or_default().heard.push((at, note));
            }
            What::Deaf { session } => {
                self.listeners.entry(session).or_default().deaf = Some(at);
            }
            What::Pinged { session, conn, .. } => {
                self.connection(conn).asked.push(at);
                self.pings.push((at, session, conn));
            }
            // Its own session may be gone too, and that says no more.
            What::Intruded { status: 404, .. } if self.counts.ledgers_lost > 0 => {}
            What::Garbled { asking, exec } => self.garbled.push((at, asking, exec)),
            What::Intruded { status, as_expected: false } => self.intrusions.push((at, status)),
            What::Ended { in_time } => self.is_in_time = in_time,
            What::Cancelling { .. }
            | What::CancelTaken { .. }
            | What::CancelTold { .. }
            | What::AnswerTaken { .. }
            | What::AnswerTold { .. }
            | What::Ending { .. }
            | What::EndTaken { .. }
            | What::EndTold { .. }
            | What::Unready { .. } => self.told.push((at, what.clone())),
            _ => self.add_fault(at, what),
        }
    }

    fn add_fault(&mut self, at: u64, what: &What) {
        match *what {
            What::Crashed { .. } => {
                self.counts.crashes += 1;
                self.losses.push((at, Lost::Gateway));
                self.down.begin((), at);
            }
            What::Draining { .. } => {
                self.counts.drains += 1;
                self.draining.begin((), at);
            }
            What::Drained { left, .. } => {
                self.losses.push((at, Lost::Drained));
                if left > 0 {
                    self.left_behind.push((at, left));
                }
                self.draining.end((), at);
                self.down.begin((), at);
            }
            What::Started { skew_ms, .. } => {
                self.skews.push((at, skew_ms));
                self.down.end((), at);
            }
            What::LedgerLost => {
                self.counts.ledgers_lost += 1;
                self.losses.push((at, Lost::Ledger));
            }
            What::ServerDied => self.losses.push((at, Lost::Server)),
            What::ServerCut => self.losses.push((at, Lost::ServerCut)),
            What::StoreFailed { store_key } => self.losses.push((at, Lost::Commit(store_key))),
            What::ServerAway { away } => self.away.set((), away, at),
            What::Claimed { store_key, call } => {
                self.claimed.entry((store_key, call)).or_insert(at);
            }
            What::Kept { exec } => {
                self.kept.entry(exec).or_insert(at);
            }
            What::Disk { disturbed } => self.slow_disk.set((), disturbed, at),
            What::Dark { dark } => self.dark.set((), dark, at),
            _ => self.add_connection(at, what),
        }
    }

    fn add_connection(&mut self, at: u64, what: &What) {
        match *what {
            What::Connected { conn, client } => self.connection(conn).client = client,
            What::Moved { conn, to_client: false, .. } => self.connection(conn).arrivals.push(at),
            What::Moved { conn, to_client: true, .. } => self.connection(conn).bytes.push(at),
            What::Written { conn, mark: Mark::Answer(exec) } => {
                self.connection(conn).written.push((at, exec));
            }
            What::InKernel { conn, mark } => self.connection(conn).marks.push((at, mark)),
            What::ResetSeen { conn } => {
                self.end(conn, at);
                self.connection(conn).resets.push(at);
            }
            What::Left { conn, how } => {
                self.connection(conn).unread.get_or_insert(at);
                if how != Leave::Stay {
                    self.end(conn, at);
                    self.connection(conn).left.get_or_insert(at);
                }
            }
            What::Whole { conn } => self.connection(conn).whole.push(at),
            What::Over { conn } => self.end(conn, at),
            What::Blocked { conn, to_client, blocked } => {
                self.connection(conn).blocked.set(to_client, blocked, at);
                self.blocked.set((conn, to_client), blocked, at);
            }
            What::Head { conn, status, replays } => {
                self.connection(conn).heads.push((at, status, replays));
            }
            _ => self.add_call(at, what),
        }
    }

    fn add_call(&mut self, at_ms: u64, what: &What) {
        match *what {
            What::Asked { client, asking, key, token, .. } => {
                self.counts.askings += 1;
                let (outcome, posts, read, errors) = (None, Vec::new(), Vec::new(), Vec::new());
                let asked = Asked { at_ms, client, key, token, outcome, posts, read, errors };
                self.askings.insert(asking, asked);
            }
            What::Posted { asking, session, conn, request, .. } => {
                self.counts.posts += 1;
                self.connection(conn).asked.push(at_ms);
                if let Some(asked) = self.askings.get_mut(&asking) {
                    asked.posts.push(Post { session, conn, request, at_ms });
                }
            }
            What::Resumed { session, conn, asking, .. } => {
                self.counts.resumed += 1;
                let connection = self.connection(conn);
                connection.asked.push(at_ms);
                connection.resumes = Some((at_ms, session));
                connection.resumed_for.push(asking);
            }
            What::Read { asking, mark, conn, .. } => {
                self.connection(conn).says.push(at_ms);
                if let Some(asked) = self.askings.get_mut(&asking) {
                    asked.read.push((at_ms, conn, mark));
                }
            }
            What::Error { asking, conn, code, .. } => {
                self.connection(conn).says.push(at_ms);
                self.counts.refused += 1;
                if let Some(asked) = self.askings.get_mut(&asking) {
                    asked.errors.push((at_ms, conn, code));
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
            _ => self.add_execution(at_ms, what),
        }
    }

    fn add_execution(&mut self, at_ms: u64, what: &What) {
        match *what {
            What::Executed { exec, key, session, charge, client, request, call } => {
                self.counts.executions += 1;
                let (produced, stopped) = (None, None);
                let executed = Executed {
                    at_ms,
                    client,
                    key,
                    session,
                    charge,
                    request,
                    call,
                    produced,
                    stopped,
                };
                self.executions.insert(exec, executed);
            }
            What::Produced { exec, steps } => {
                if let Some(executed) = self.executions.get_mut(&exec) {
                    executed.produced = Some((at_ms, steps));
                }
            }
            What::Stopped { exec } => {
                if let Some(executed) = self.executions.get_mut(&exec) {
                    executed.stopped = Some(at_ms);
                }
            }
            _ => {}
        }
    }

    /// Askings of the same client for the same.
    pub fn askings_of(&self, wish: Wish) -> impl Iterator<Item = &Asked> {
        self.askings.values().filter(move |asked| asked.wish() == wish)
    }

    /// Executions of what a client wants.
    pub fn executions_of(&self, wish: Wish) -> impl Iterator<Item = (Exec, &Executed)> {
        let all = self.executions.iter().map(|(exec, executed)| (*exec, executed));
        all.filter(move |(_, executed)| executed.wish() == wish)
    }

    /// The POST that an execution is of.
    pub fn post_of(&self, executed: &Executed) -> Option<&Post> {
        let posts = self.askings_of(executed.wish()).flat_map(|asked| &asked.posts);
        posts
            .filter(|post| post.request == executed.request && post.at_ms <= executed.at_ms)
            .max_by_key(|post| post.at_ms)
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

    /// Losses between two times that concern a session.
    pub fn losses_of(
        &self,
        session: usize,
        from_ms: u64,
        to_ms: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, Lost)> {
        let own = self.sessions.get(&session).map(|known| known.store_key);
        let is_in_time = move |at_ms: u64| (from_ms..=to_ms).contains(&at_ms);
        let all = self.losses.iter().copied().filter(move |(at_ms, _)| is_in_time(*at_ms));
        all.filter(move |(_, lost)| match lost {
            Lost::Commit(store_key) => own == Some(*store_key),
            _ => true,
        })
    }

    /// True if the gateway or its log had a session wait between two times.
    pub fn disturbed(&self, session: usize, from_ms: u64, to_ms: u64) -> bool {
        let mut losses = self.losses_of(session, from_ms, to_ms);
        losses.any(|(_, lost)| !matches!(lost, Lost::Server | Lost::ServerCut))
    }
}
