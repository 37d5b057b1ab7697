//! What comes out of a session's state machine: one batch that must be durable first, then effects.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, ConnectionId, EventId, Seq, StreamId};
use crate::ledger::Call;
use crate::rejection::{Reason, Rejection};
use crate::session::{Continuation, SessionRow, UpstreamCursor};
use crate::stream::{Stream, StreamState};
use crate::token::{DedupKey, DedupRecord, Owner};

/// The result of one or more inputs: commit `batch`, then carry out `effects` in order. Nothing of
/// `effects` may be visible to anyone before the batch is durable (design section 4).
#[derive(Debug, Default)]
pub struct Output {
    /// What must be durable first.
    pub batch: Batch,
    /// What to do then, in order.
    pub effects: Vec<Effect>,
}

/// One commit: all of it or nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Events to append, in `seq` order.
    pub events: Vec<Event>,
    /// Token rows to write; one that does not hold fails the whole batch.
    pub dedup: Vec<DedupWrite>,
    /// Calls as they are now.
    pub calls: Vec<Call>,
    /// Streams as they are now.
    pub streams: Vec<Stream>,
    /// Calls that are no longer in the ledger.
    pub forgotten_calls: Vec<CallId>,
    /// Streams that are no longer known; an eviction drops their events.
    pub forgotten_streams: Vec<StreamId>,
    /// Events that are no longer kept.
    pub evictions: Vec<Eviction>,
    /// The session's own row, if it changed.
    pub session: Option<Box<SessionRow>>,
    /// True if it holds a claim, a result or an end: it must survive a power cut under
    /// `--durability calls`.
    pub durable: bool,
}

impl Batch {
    /// True if there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.dedup.is_empty()
            && self.calls.is_empty()
            && self.streams.is_empty()
            && self.forgotten_calls.is_empty()
            && self.forgotten_streams.is_empty()
            && self.evictions.is_empty()
            && self.session.is_none()
    }
}

/// One event of the log. On the wire its id is `<epoch>-<stream>-<seq>`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its stream.
    pub stream: StreamId,
    /// Its position in the session's order.
    pub seq: Seq,
    /// The event before it on its stream ([`Seq::ORIGIN`]: none), so that a hole is detectable.
    pub previous: Seq,
    /// What it carries.
    pub kind: EventKind,
    /// True if the stream ends with it.
    pub last: bool,
    /// One JSON-RPC message, as the client reads it.
    pub payload: Bytes,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event")
            .field("stream", &self.stream.0)
            .field("seq", &self.seq.0)
            .field("previous", &self.previous.0)
            .field("kind", &self.kind)
            .field("last", &self.last)
            .field("bytes", &self.payload.len())
            .finish()
    }
}

/// What an event carries; responses outlive the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// A notification.
    Notification,
    /// A request of the server.
    ServerRequest,
    /// A response, or the error that stands for it.
    Response,
}

/// Writes a token's row, if it still is what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupWrite {
    /// The hashed token in its scope.
    pub key: DedupKey,
    /// Who must own the row now; `None`: there must be none.
    pub expected: Option<Owner>,
    /// The row to write.
    pub record: DedupRecord,
}

/// Events of one stream that are no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The stream.
    pub stream: StreamId,
    /// Events up to this one are dropped.
    pub through: Seq,
    /// False: responses stay. True: nothing stays.
    pub responses_too: bool,
}

/// One thing to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Answer with 200 and a stream.
    Open(Attach),
    /// Answer a POST with 200 and one JSON body.
    Reply {
        /// The POST.
        connection: ConnectionId,
        /// A JSON-RPC message, or an array of them.
        body: Bytes,
    },
    /// Refuse a POST whose headers are not out.
    Refuse {
        /// The POST.
        connection: ConnectionId,
        /// One for each request.
        rejections: Vec<Rejection>,
        /// True if the body was an array, and so is the answer.
        batch: bool,
    },
    /// Answer a GET with 405.
    NotResumable(ConnectionId),
    /// Tell the body of an attached stream something.
    Command(ConnectionId, Command),
    /// Read one event's payload and feed it back as `Input::Loaded`.
    Load {
        /// The POST that waits for it.
        connection: ConnectionId,
        /// The event's stream.
        stream: StreamId,
        /// The event.
        seq: Seq,
    },
    /// Send something upstream.
    Upstream(ToUpstream),
    /// Log and count something.
    Note(Note),
    /// The session is over: forget it, end its upstream. Its id is unknown from now on (404).
    End,
}

/// The comment that tells the reader of a stream that events up to `through` were evicted.
pub fn gap_comment(through: EventId) -> String {
    format!("gap: of the events up to {through} no more than the responses are kept")
}

/// A stream to attach to a connection. The body reads the log after `after`; nothing is pushed.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The exchange to answer.
    pub connection: ConnectionId,
    /// The stream.
    pub stream: StreamId,
    /// The cursor to read from.
    pub after: Seq,
    /// Event to write first: `id:` + `retry:` + an empty `data:` line. The priming event of a POST
    /// carries the stream's origin, a resumed GET repeats the cursor (design section 6).
    pub prime: Option<EventId>,
    /// High-water mark of a replay: header `Mcp-Replay-Until`, comments `replay-begin`/`-end`.
    pub replay_until: Option<EventId>,
    /// Server requests that must not be delivered again.
    pub skip: Vec<Seq>,
    /// Text of a comment that names what is missing.
    pub gap: Option<String>,
    /// A message to end the stream with, instead of following the log.
    pub last_word: Option<Bytes>,
    /// True while the call waits: comments say `held`.
    pub held: bool,
}

/// To the body of an attached stream. Every one but `Probe` ends it with the last chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// A newer connection took the stream: `retry:` + empty `data:`, then the end.
    Fence {
        /// The `retry:` value.
        retry_ms: u64,
    },
    /// The stream is over without a last event (cancelled, deleted), or the gateway stops.
    Finish {
        /// A `retry:` value to send before the end.
        retry_ms: Option<u64>,
    },
    /// Send a comment and report its acknowledgement.
    Probe,
}

/// To upstream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ToUpstream {
    /// Start a call; its id and progress token are the call's number.
    Call {
        /// The call.
        call: CallId,
        /// The message.
        message: Bytes,
        /// The POST that asks for it; `None`: it asks for more (a batch).
        asked_by: Option<ConnectionId>,
    },
    /// Cancel a call.
    Cancel {
        /// The call.
        call: CallId,
        /// The `notifications/cancelled` message.
        message: Bytes,
    },
    /// A notification or response.
    Send(Bytes),
    /// Start the server again with the same `initialize`, then send these, then what follows.
    Reopen {
        /// `initialized`, log level, subscriptions.
        restore: Vec<Bytes>,
    },
    /// Go on with the server as an earlier process left it, and send nothing again. If it cannot be
    /// done, that is [`FromUpstream::Closed`](crate::input::FromUpstream::Closed).
    Continue {
        /// What the upstream needs for that.
        continuation: Continuation,
        /// True if the client has sent `notifications/initialized`.
        is_initialized: bool,
        /// Calls to pick up, each with where its stream stands.
        calls: Vec<(CallId, UpstreamCursor)>,
        /// Where the standalone stream stands.
        standalone: Option<UpstreamCursor>,
    },
    /// End the child of an idle session; the session stays.
    Close,
}

/// What the log and the metrics learn. Nothing secret is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A request was decided.
    Decided {
        /// The POST.
        connection: ConnectionId,
        /// The row of design section 5.
        row: u8,
        /// `pass`, `claim`, `attach`, `record`, `join`, `collect`, `hold`, `probe`, `wait` or
        /// `reject`.
        verdict: &'static str,
        /// Why it was refused.
        reason: Option<Reason>,
        /// The call that decided.
        original: Option<CallId>,
        /// The call that was claimed or attached.
        call: Option<CallId>,
        /// The tool of a request that was refused, if it called one.
        tool: Option<Box<str>>,
    },
    /// A wait ended.
    WaitEnded {
        /// The POST.
        connection: ConnectionId,
        /// How long it took.
        waited_ms: u64,
    },
    /// A call went upstream.
    Executed(CallId),
    /// A repeat did not run.
    RepeatPrevented(CallId),
    /// A stream changed its state.
    StreamMoved {
        /// The stream.
        stream: StreamId,
        /// From.
        from: StreamState,
        /// To.
        to: StreamState,
    },
    /// A call changed its phase.
    CallMoved {
        /// The call.
        call: CallId,
        /// Name of its new phase.
        to: &'static str,
    },
    /// Events were dropped from the log.
    Evicted {
        /// The stream.
        stream: StreamId,
        /// How many bytes.
        bytes: u64,
        /// True if their client was still owed them.
        owed: bool,
    },
    /// A call was refused, as there is no room for its answer.
    NoRoom {
        /// Names of limits: one of them is reached.
        limits: &'static [&'static str],
    },
    /// The session ends, as its client has left it alone.
    Idle {
        /// For how long.
        idle_ms: u64,
    },
    /// Something was ignored on purpose.
    Ignored(&'static str),
    /// The session lost or regained its server.
    UpstreamMoved(&'static str),
}
