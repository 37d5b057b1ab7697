//! One HTTP exchange: a POST or a GET, from the client's code to the gateway's body.

use std::hash::{Hash, Hasher};

use rejoin_core::id::{Seq, StreamId};
use rejoin_core::rejection::Reason;

/// Ages beyond this are not told apart by what is checked of an exchange (`replay_max` and more).
const AGE_MAX_MS: u64 = 61_000;

/// How a POST or GET stands with the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Not answered.
    Waiting,
    /// Its head is out, its call waits.
    Held,
    /// It carries a stream, or got its JSON.
    Answered,
    /// Refused before its head went out.
    Refused(Reason),
    /// A GET that had nothing to resume.
    NotResumable,
}

/// What is on its way to the gateway of a client's close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Closing {
    /// Nothing.
    None,
    /// A reset: something was unread, or came after the close.
    Reset,
    /// A FIN.
    Fin,
}

/// One HTTP exchange, on a connection of its own.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Whose.
    pub intent: u8,
    /// The how manyth POST of its intent; `None`: a GET.
    pub post: Option<u8>,
    /// When it came.
    pub came_ms: u64,
    /// How it stands.
    pub standing: Standing,
    /// The stream that it carries.
    pub stream: Option<StreamId>,
    /// High-water mark of its replay.
    pub replay_until: Option<Seq>,
    /// The event behind which its stream is carried.
    pub from: Seq,
    /// Where its head is.
    pub head: Place,
    /// The last event that was written to the socket.
    pub written: Seq,
    /// The last one in the peer's kernel.
    pub kernel: Seq,
    /// The last one that the client's code has read.
    pub read: Seq,
    /// The head's, the replay's arrival is still to be reported.
    pub reports_head: bool,
    /// As for the head.
    pub reports_replay: bool,
    /// A liveness comment: asked for, and written.
    pub probe: Option<bool>,
    /// The last event and the last chunk were handed over.
    pub final_handed: bool,
    /// When all of it was seen to be acknowledged.
    pub acknowledged_ms: Option<u64>,
    /// The gateway's body runs.
    pub body_runs: bool,
    /// The body was told to end.
    pub told_to_end: bool,
    /// Bytes pass.
    pub path_is_up: bool,
    /// The client has it open.
    pub client_is_there: bool,
    /// What is on its way of the client's close.
    pub closing: Closing,
    /// Number of the newest exchange when its call was claimed or its record given.
    pub ran_after: u8,
    /// A stream that was owed by then, to a client that may resume.
    pub ran_past: Option<StreamId>,
    /// True once its client has its answer.
    pub is_read: bool,
    /// The gateway expects nothing more of it.
    pub is_over: bool,
}

/// Where something is on its way to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Not written.
    Nowhere,
    /// Written to the socket.
    Written,
    /// In the peer's kernel.
    Kernel,
    /// Read.
    Read,
}

impl Exchange {
    /// A new one.
    pub fn new(intent: u8, post: Option<u8>, came_ms: u64) -> Self {
        Self {
            intent,
            post,
            came_ms,
            standing: Standing::Waiting,
            stream: None,
            replay_until: None,
            from: Seq::ORIGIN,
            head: Place::Nowhere,
            written: Seq::ORIGIN,
            kernel: Seq::ORIGIN,
            read: Seq::ORIGIN,
            reports_head: false,
            reports_replay: false,
            probe: None,
            final_handed: false,
            acknowledged_ms: None,
            body_runs: false,
            told_to_end: false,
            path_is_up: true,
            client_is_there: true,
            closing: Closing::None,
            ran_after: 0,
            ran_past: None,
            is_read: false,
            is_over: false,
        }
    }

    /// Something is in the client's kernel that its code has not read.
    pub fn has_unread(&self) -> bool {
        self.kernel > self.read || self.head == Place::Kernel
    }

    /// Everything written is in the peer's kernel.
    pub fn is_acknowledged(&self) -> bool {
        self.kernel == self.written && self.head != Place::Written
    }

    /// Its client has it open and waits for its answer.
    pub fn is_open(&self) -> bool {
        self.client_is_there && !self.is_read
    }

    /// It waits for its verdict.
    pub fn waits(&self) -> bool {
        matches!(self.standing, Standing::Waiting | Standing::Held)
    }
}

impl Exchange {
    /// Feeds its projection to a hasher, times as ages.
    pub fn hash_at<H: Hasher>(&self, now_ms: u64, state: &mut H) {
        let age = |at_ms: u64| now_ms.saturating_sub(at_ms).min(AGE_MAX_MS);
        (self.intent, self.post, age(self.came_ms), self.standing, self.stream).hash(state);
        (self.replay_until, self.head, self.written, self.kernel, self.read).hash(state);
        (self.reports_head, self.reports_replay, self.probe, self.final_handed).hash(state);
        (self.acknowledged_ms.map(age), self.body_runs, self.told_to_end).hash(state);
        (self.path_is_up, self.client_is_there, self.closing, self.ran_after).hash(state);
        (self.ran_past, self.is_read, self.is_over).hash(state);
    }
}
