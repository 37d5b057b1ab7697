//! What goes into a session's state machine.

use bytes::Bytes;

use crate::id::{CallId, ConnectionId, Digest32, EventId, Seq};
use crate::message::Message;
use crate::session::{Continuation, UpstreamCursor};
use crate::token::{DedupKey, DedupRecord, Token};

/// One input; `now` goes beside it. Everything that can change a session is one of these.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// A POST with at least one request. It is answered by exactly one of
    /// [`Effect::Open`](crate::effect::Effect::Open), `Reply`, `Refuse`, unless it goes first.
    Post(Post),
    /// The connection of a POST or GET is gone before it was answered.
    Gone(ConnectionId),
    /// A GET. It is answered by `Open` or `NotResumable`.
    Get(Get),
    /// A client notification.
    Notify(Message),
    /// A client's response to a server request.
    Respond(Message),
    /// `Mcp-Stream-Ack`, on any request; unknown ids are ignored.
    Acknowledge(Vec<EventId>),
    /// DELETE: calls are cancelled, streams end, token records stay.
    Delete,
    /// Something was seen on the connection of an attached stream.
    Wire(ConnectionId, WireEvent),
    /// Something came from upstream.
    Upstream(FromUpstream),
    /// The answer to [`Effect::Load`](crate::effect::Effect::Load).
    Loaded {
        /// The POST that waits for it.
        connection: ConnectionId,
        /// The event's payload; `None`: it is gone.
        payload: Option<Bytes>,
    },
    /// The batch that claimed this call was refused as a whole: the row of its token, or of its
    /// [`Scope`], has an owner.
    TokenTaken {
        /// The claim that must be undone.
        call: CallId,
        /// The row that was there first.
        record: DedupRecord,
    },
    /// An operator ends every refusal that this call causes (`rejoin sessions release`).
    Release(CallId),
    /// How many bytes the quotas of the principal and of the whole store still leave, beyond what
    /// this session keeps now. Said when it changes materially; until then there is no such bound.
    Room {
        /// Bytes of payload; a margin for rows is the caller's to take off.
        bytes: u64,
    },
    /// The gateway is about to stop: POSTs that wait are withdrawn, then streams end, telling
    /// clients to come back after this long.
    Drain {
        /// `retry:` for the streams that are ended.
        retry_ms: u64,
    },
    /// The first input of a session that comes from a store: no connection outlived its process.
    Restarted,
    /// The time named by `poll_timeout` has come.
    Tick,
}

/// A POST with requests.
#[derive(Clone, Debug)]
pub struct Post {
    /// Its exchange; also the connection of the stream it may open.
    pub connection: ConnectionId,
    /// True if the socket can be watched (flushed, acknowledged, reset). False in a layer.
    pub observed: bool,
    /// The requests; more than one only in a batch.
    pub requests: Vec<Request>,
    /// True if the body was a JSON array (revision 2025-03-26).
    pub batch: bool,
    /// SHA-256 of the whole body.
    pub body: Digest32,
}

/// One request of a POST.
#[derive(Clone, Debug)]
pub struct Request {
    /// The message, token members still inside.
    pub message: Message,
    /// Its token, if it has one.
    pub token: Option<Token>,
    /// What the store knows of that token, looked up when the POST came.
    pub record: Option<DedupRecord>,
    /// Where to look for its original in other sessions. Only for a tokenless request of a
    /// principal that is not anonymous, under `repeat_scope = "principal"`.
    pub scope: Option<Scope>,
}

/// One call by its params among all sessions of a principal (design section 2, "repeat").
#[derive(Clone, Debug)]
pub struct Scope {
    /// Hash over principal, upstream, method and canonical params, apart from those of tokens.
    pub key: DedupKey,
    /// What the store knows of it, looked up when the POST came.
    pub record: Option<DedupRecord>,
}

/// A GET.
#[derive(Clone, Debug)]
pub struct Get {
    /// Its exchange; also the connection of the stream it attaches to.
    pub connection: ConnectionId,
    /// As in [`Post`].
    pub observed: bool,
    /// What `Last-Event-ID` said.
    pub cursor: GetCursor,
}

/// `Last-Event-ID` of a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetCursor {
    /// No such header: the standalone stream.
    None,
    /// Not an id that Rejoin wrote.
    Malformed,
    /// A cursor.
    At(EventId),
}

/// What the socket and the body of an attached stream report (design section 3, "evidence").
/// Order: as it happened; after `Lost`, `Closed` or `Ended` a body reports no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireEvent {
    /// The first frame (the priming event, or a comment) was acknowledged by the peer's kernel:
    /// the POST's own connection lives. Unobserved: it was handed over.
    HeadersAcknowledged,
    /// The stream's last event and the last chunk were handed to the connection.
    FinalHanded,
    /// Every byte through the last chunk was acknowledged by the peer's kernel.
    FinalAcknowledged,
    /// Every byte of the replay, up to its high-water mark, was acknowledged by the peer's kernel.
    ReplayAcknowledged,
    /// A liveness comment was acknowledged by the peer's kernel.
    LivenessAcknowledged,
    /// The socket was reset after the stream's end.
    Reset,
    /// The peer closed its side (FIN) after the stream's end.
    Fin,
    /// The connection carries a next request.
    NextRequest,
    /// The body was dropped before its end, or its connection made no progress: the stream lost
    /// its connection. After `FinalHanded` it says whether all was acknowledged.
    Lost {
        /// Last event handed over.
        sent: Seq,
        /// True if the peer's kernel had acknowledged every byte handed over.
        acknowledged: bool,
    },
    /// The body ended cleanly because it was told to (fence, end, drain).
    Ended {
        /// Last event handed over.
        sent: Seq,
    },
    /// How far the connection got; sent before a decision that needs it.
    Progress {
        /// Last event handed over.
        sent: Seq,
    },
}

/// Which of its channels an upstream used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The answer to this call's POST: what comes on it belongs to the call (spec SSE-5).
    Call(CallId),
    /// A stream beside those of the calls: what comes on it is unrelated to any that runs (spec
    /// GET-4). A response on it answers its call all the same.
    Standalone,
    /// One channel carries everything, as over stdio: the channel tells nothing.
    Unknown,
}

impl Channel {
    /// The call whose channel it is.
    pub fn call(self) -> Option<CallId> {
        match self {
            Self::Call(call) => Some(call),
            Self::Standalone | Self::Unknown => None,
        }
    }
}

/// What an upstream reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FromUpstream {
    /// The first byte of the call may have left.
    Sent(CallId),
    /// Provably no byte of the call left.
    NotSent(CallId),
    /// As `Closed`, and upstream did not take these calls, because it no longer knows the session
    /// (an HTTP 404 in place of an answer). One input: who is told of the loss by one of these and
    /// calls again meets a server that is known to be gone.
    SessionGone(Vec<CallId>),
    /// The call was sent, and nothing will tell its outcome: the stream that would have is gone.
    Lost(CallId),
    /// A response, notification or request.
    Message {
        /// The channel it came on.
        channel: Channel,
        /// The message.
        message: Message,
        /// Where that channel stands with it. `None`: nobody can have what follows brought again.
        cursor: Option<UpstreamCursor>,
    },
    /// A channel stands elsewhere, without a message.
    Cursor {
        /// The channel.
        channel: Channel,
        /// As in `Message`.
        cursor: Option<UpstreamCursor>,
    },
    /// The child or session is gone: what was sent and not answered is unknown.
    Closed,
    /// The server was started again after `Closed`, and initialized.
    Reopened {
        /// How its upstream goes on with it after a restart; `None`: it cannot.
        continuation: Option<Continuation>,
    },
}
