//! What is known of each thing in a history.

use rejoin_core::id::Digest32;

use super::periods::Periods;
use crate::history::{Asking, CallNumber, Conn, Exec, Key, Mark, Outcome, RequestId, Wish};

/// A POST of an asking.
#[derive(Clone, Copy, Debug)]
pub struct Post {
    pub session: usize,
    pub conn: Conn,
    pub request: RequestId,
    pub at_ms: u64,
}

/// An asking.
#[derive(Clone, Debug)]
pub struct Asked {
    pub at_ms: u64,
    pub client: usize,
    pub key: Key,
    pub token: Option<Key>,
    pub outcome: Option<(u64, Outcome)>,
    pub posts: Vec<Post>,
    /// What its client read, in order.
    pub read: Vec<(u64, Conn, Mark)>,
    /// The errors that it read.
    pub errors: Vec<(u64, Conn, i64)>,
}

impl Asked {
    pub fn wish(&self) -> Wish {
        (self.client, self.key)
    }
}

/// An execution.
#[derive(Clone, Copy, Debug)]
pub struct Executed {
    pub at_ms: u64,
    pub client: usize,
    pub key: Key,
    pub session: usize,
    pub charge: bool,
    pub request: RequestId,
    pub call: CallNumber,
    /// When it gave its result, and the steps of progress before it.
    pub produced: Option<(u64, u32)>,
    /// When it ended without one.
    pub stopped: Option<u64>,
}

impl Executed {
    pub fn wish(&self) -> Wish {
        (self.client, self.key)
    }

    /// Until when it ran.
    pub fn ended_ms(&self) -> u64 {
        let produced = self.produced.map(|(at_ms, _)| at_ms);
        produced.or(self.stopped).unwrap_or(u64::MAX)
    }
}

/// A session.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// When its client began to open it.
    pub at_ms: u64,
    pub client: usize,
    pub principal: Option<u32>,
    pub store_key: Digest32,
}

/// A connection.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    pub client: usize,
    /// The client's side has left it, really.
    pub left: Option<u64>,
    /// The client does not read it any more.
    pub unread: Option<u64>,
    /// It is over for the gateway: left, reset or closed.
    pub ended: Option<u64>,
    /// Its path does not carry, in one direction at least.
    pub blocked: Periods<bool>,
    /// When something was asked there.
    pub asked: Vec<u64>,
    /// When an answer was read to its end.
    pub whole: Vec<u64>,
    pub resets: Vec<u64>,
    /// Heads of answers: when, the status, and whether a replay follows.
    pub heads: Vec<(u64, u16, bool)>,
    /// For a GET: when, the session, and the askings.
    pub resumes: Option<(u64, usize)>,
    pub resumed_for: Vec<Asking>,
    /// When a client's code read something for an asking.
    pub says: Vec<u64>,
    /// When something came to the gateway, and to the client.
    pub arrivals: Vec<u64>,
    pub bytes: Vec<u64>,
    /// Answers that the gateway wrote there.
    pub written: Vec<(u64, Exec)>,
    /// What came into the client's kernel.
    pub marks: Vec<(u64, Mark)>,
}

impl Connection {
    /// Whatever was asked there is answered, and that was read.
    pub fn is_idle(&self, at_ms: u64) -> bool {
        let is_before = |known: &&u64| **known <= at_ms;
        let (asked, whole) =
            (self.asked.iter().filter(is_before).max(), self.whole.iter().filter(is_before).max());
        asked <= whole
    }

    /// From when on, at `from_ms` or later, it is of no use to the gateway.
    pub fn trouble_ms(&self, from_ms: u64) -> Option<u64> {
        let ended = self.ended.map(|at_ms| at_ms.max(from_ms));
        ended.into_iter().chain(self.blocked.first_after(from_ms)).min()
    }
}

/// What a server says of its own in a session, and what its client hears of that.
#[derive(Clone, Debug, Default)]
pub struct Listener {
    pub conns: Vec<Conn>,
    pub said: Vec<(u64, u32)>,
    pub heard: Vec<(u64, u32)>,
    /// When its client stopped to listen.
    pub deaf: Option<u64>,
}

/// What was lost that the log cannot give back, or only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The gateway's process was killed, or ended after a drain.
    Gateway,
    Drained,
    /// The server, or its connections.
    Server,
    ServerCut,
    /// A commit of this session.
    Commit(Digest32),
    /// The whole log.
    Ledger,
}
