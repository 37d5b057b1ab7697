//! Upstreams: what the gateway relays to, at the level of whole JSON-RPC messages.
//!
//! [`Upstream::open`] starts one upstream session. From then on the session driver and the adapter
//! talk by two bounded channels, [`Command`]s one way and [`Event`]s the other. The adapter knows
//! nothing of streams, cursors or the ledger; the driver nothing of pipes or HTTP. [`stdio`],
//! [`http`] and [`service`] are the implementations; [`conformance`] is the suite that every one of
//! them runs.
//!
//! # What an adapter promises (design sections 3 to 5)
//!
//! - Every [`Command::Call`] the channel accepted gets exactly one of [`Event::Sent`] and
//!   [`Event::NotSent`], before any message of that call and before [`Event::Closed`]. A call that
//!   was sent may get `NotSent` afterwards, when its server said that it did not run it
//!   ([`NotSentReason::SessionGone`], [`NotSentReason::Refused`]).
//! - [`Event::Begun`] comes at most once for a call, after `Sent` and before any message of its own
//!   channel.
//! - After the response to a call, its `NotSent` or its [`Event::Lost`] comes neither another of
//!   these nor another response to it.
//! - A cursor that comes with a message covers it and all before it on its channel. Who resumes
//!   with the last one that it kept ([`Upstream::resume`]) gets what followed, once, and of a call
//!   that is picked up no `Sent`.
//! - Messages keep their bytes, one JSON-RPC message an event, and the order in which the upstream
//!   wrote them to one channel: over stdio all of them, over HTTP those of one stream.
//! - [`Event::Closed`] comes once, after everything that was received. Then the channel ends.
//! - Commands are read while events wait to be received, up to a bounded number of outcomes; the
//!   driver never has to receive an event in order to send the next command.
//! - A session ends at [`Command::End`] or [`Command::Leave`], when the driver drops the command
//!   sender, or when it drops the event receiver. Nothing of it remains after a `Closed` whose
//!   reason is [`CloseReason::Ended`].
//!
//! A driver that wants to end a session while its command channel is full drops the sender.
use ::http::header::WWW_AUTHENTICATE;
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use async_trait::async_trait;
use bytes::Bytes;
pub use rejoin_core::id::CallId;
pub use rejoin_core::input::Channel;
pub use rejoin_core::session::{BackPressure, Continuation, UpstreamCursor};
use tokio::sync::{mpsc, watch};

pub use self::open_error::OpenError;
use crate::passthrough::Passthrough;

#[doc(hidden)]
pub mod conformance;
pub mod http;
mod open_error;
mod outlet;
pub mod service;
pub mod stdio;

/// A place where sessions are opened: a command to run, a URL, a service in this process.
#[async_trait]
pub trait Upstream: Send + Sync + 'static {
    /// Opens one upstream session: starts what it needs, sends `initialize` (a JSON-RPC request
    /// with an id) and waits for its answer, at most `initialize_max_ms`.
    ///
    /// Messages that come before the answer are kept; they are the session's first events. If the
    /// returned future is dropped, what was started is ended.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]. An answer that is a JSON-RPC error is not one of them: it is
    /// [`Opened::answer`], and the session behind it can only be ended.
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError>;

    /// Goes on with a session that another process opened, or this one before: nothing is sent
    /// again, and streams are asked for what followed. If the server turns out not to know it any
    /// more, that is [`Event::Closed`]. `None`: it cannot be done, as for every upstream whose
    /// server ends with the process. Must be called inside a tokio runtime.
    fn resume(&self, _resumption: Resumption) -> Option<Resumed> {
        None
    }

    /// The upstream's name, in logs, in messages to people, and in the scope of dedup tokens. No
    /// secret: the base name of a command, origin and path of a URL.
    fn name(&self) -> &str;

    /// The headers of the client that it passes on: of [`Opening::headers`] and
    /// [`Command::Headers`] it needs no other.
    fn forwarded_headers(&self) -> &[HeaderName] {
        &[]
    }

    /// The way for requests that belong to no session. `None`: there is none, every request needs a
    /// session.
    fn passthrough(&self) -> Option<&dyn Passthrough> {
        None
    }
}

/// What a session is opened with.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// The `initialize` request.
    pub initialize: Bytes,
    /// Headers of the client's request. An upstream over HTTP forwards those that its operator
    /// allows; any other ignores them.
    pub headers: HeaderMap,
}

impl From<Bytes> for Opening {
    fn from(initialize: Bytes) -> Self {
        Self { initialize, headers: HeaderMap::new() }
    }
}

/// What a session is resumed with.
#[derive(Clone, Debug)]
pub struct Resumption {
    /// What [`Opened::continuation`] said.
    pub continuation: Continuation,
    /// The `initialize` request that opened it.
    pub initialize: Bytes,
    /// Headers of the client, as far as they are known yet.
    pub headers: HeaderMap,
    /// True if the client has sent `notifications/initialized`.
    pub is_initialized: bool,
    /// Calls that were sent and are to be picked up, each with its last cursor.
    pub calls: Vec<(CallId, UpstreamCursor)>,
    /// The last cursor of the standalone stream.
    pub standalone: Option<UpstreamCursor>,
}

/// An upstream session that goes on; as in [`Opened`].
#[derive(Debug)]
pub struct Resumed {
    /// What the driver wants done, in order.
    pub commands: mpsc::Sender<Command>,
    /// What happened, in order.
    pub events: mpsc::Receiver<Event>,
    /// As [`Opened::pressure`].
    pub pressure: Option<watch::Sender<BackPressure>>,
}

/// An open upstream session.
#[derive(Debug)]
pub struct Opened {
    /// The whole JSON-RPC response to `initialize`, a result or an error.
    pub answer: Bytes,
    /// What [`Upstream::resume`] needs. `None`: the session ends with this process.
    pub continuation: Option<Continuation>,
    /// What the driver wants done, in order. Holds `upstream_queue_max` commands.
    pub commands: mpsc::Sender<Command>,
    /// What happened, in order. Holds `upstream.events_max` events.
    pub events: mpsc::Receiver<Event>,
    /// Set while the session's log is beyond its quota: a stream that brought much already
    /// (`back_pressure_free_bytes`) is then not read on. `None`: what this upstream says cannot
    /// wait, and is spilled (design section 3).
    pub pressure: Option<watch::Sender<BackPressure>>,
}

/// What a session driver asks of an adapter.
#[derive(Clone, Debug)]
pub enum Command {
    /// Sends a request. Its JSON-RPC id is the number in `call`.
    Call {
        /// The call this request belongs to.
        call: CallId,
        /// The whole request.
        message: Bytes,
    },
    /// Sends a `notifications/cancelled`. The upstream session stays open (spec 1.4).
    Cancel {
        /// The call it names.
        call: CallId,
        /// The whole notification.
        message: Bytes,
    },
    /// Sends a notification, or a response to a request of the server.
    Send {
        /// The whole message.
        message: Bytes,
    },
    /// The newest headers of the client, as in [`Opening::headers`]: whatever is sent from here on
    /// carries these. An `Authorization` may have been refreshed.
    Headers(HeaderMap),
    /// Ends the session gracefully, after what was commanded before. Dropping the sender is the
    /// same.
    End,
    /// Ends what this process has of the session; what can be resumed is left to the server as it
    /// is. The same as `End` where nothing can.
    Leave,
}

/// What an adapter tells the session driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first byte of the call may have left: from here its outcome can be unknown.
    Sent {
        /// The call.
        call: CallId,
    },
    /// The server has begun to answer a call that was sent, and not with a refusal. Told only where
    /// its messages may be long in coming.
    Begun {
        /// The call.
        call: CallId,
    },
    /// The call was not run, provably: no byte of it left, or its server refused it before it ran.
    /// Its claim may be released.
    NotSent {
        /// The call.
        call: CallId,
        /// Why not.
        reason: NotSentReason,
    },
    /// A response, a notification, or a request of the server.
    Message {
        /// The channel it came on. Over stdio only a response tells, by its id.
        channel: Channel,
        /// The whole message, byte for byte.
        message: Bytes,
        /// Where that channel stands with it. `None`: what follows could not be asked for.
        cursor: Option<UpstreamCursor>,
    },
    /// A channel stands elsewhere, without a message.
    Cursor {
        /// The channel.
        channel: Channel,
        /// As in `Message`.
        cursor: Option<UpstreamCursor>,
    },
    /// The call was sent, and nothing will tell its outcome. The session goes on.
    Lost {
        /// The call.
        call: CallId,
        /// What happened.
        reason: LostReason,
    },
    /// The session is over. Every call sent and not answered is lost.
    Closed {
        /// Why.
        reason: CloseReason,
    },
}

/// Why a call was not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSentReason {
    /// The upstream does not read fast enough: the queue's messages or bytes are used up.
    #[error("the queue towards the server is full")]
    QueueFull,
    /// The session was over before the call's turn came.
    #[error("the session with the server was over")]
    Closed,
    /// No connection to the server could be made.
    #[error("the server could not be reached")]
    Unreachable,
    /// The server does not know the session any more (spec SES-7). [`Event::Closed`] follows.
    #[error("the server has lost its session")]
    SessionGone,
    /// The server refused the call before it ran it, by the meaning of its status (RFC 9110).
    #[error("the server refused it with HTTP status {status}")]
    Refused {
        /// Its status.
        status: StatusCode,
        /// A JSON-RPC error response for the call that says so, with the status and a challenge
        /// (`WWW-Authenticate`) in its data.
        answer: Bytes,
        /// What only the client can do something about.
        challenge: Option<Challenge>,
    },
}

/// 401 or 403, by which a server asks a client for a credential, or another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Which of the two.
    pub status: StatusCode,
    /// Each `WWW-Authenticate`, whole.
    pub fields: Vec<HeaderValue>,
}

impl Challenge {
    /// The challenge in the head of a server's answer.
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let is_challenge = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let fields = headers.get_all(WWW_AUTHENTICATE).iter().cloned().collect();
        is_challenge.then_some(Self { status, fields })
    }
}

/// Why nothing tells the outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// Its stream ended or broke without a response, and could not be resumed.
    #[error("its stream ended without an answer, and could not be resumed: {what}")]
    StreamEnded {
        /// What stood against it.
        what: &'static str,
    },
    /// The connection was lost before an answer began.
    #[error("the connection was lost before an answer began")]
    ConnectionLost,
    /// It was cancelled, and then nothing came for longer than upstreams may take.
    #[error("it was cancelled, and no answer came since")]
    Cancelled,
    /// It was answered with an HTTP status that does not tell.
    #[error("it was answered with HTTP status {status}")]
    Status {
        /// The status.
        status: StatusCode,
    },
}

/// Why a session is over. Reads as the end of a sentence that begins with the upstream's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The driver ended it, and nothing of it remains.
    #[error("was ended")]
    Ended,
    /// The driver left it, to be resumed.
    #[error("was left to be resumed")]
    Left,
    /// The child exited by itself.
    #[error("exited with status {code}")]
    Exited {
        /// Its exit status.
        code: i32,
    },
    /// The child was killed.
    #[error("was killed by signal {signal}")]
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// The child closed its standard output: no answer can come any more.
    #[error("closed its standard output")]
    OutputClosed,
    /// The child closed its standard input: no call can reach it any more.
    #[error("closed its standard input")]
    InputClosed,
    /// The server does not know the session any more (spec SES-7).
    #[error("has lost the session")]
    SessionGone,
    /// The server could not be reached for longer than a session outlasts.
    #[error("could not be reached for {limit_ms} ms")]
    Unreachable {
        /// The limit.
        limit_ms: u64,
    },
    /// The session was lost in another way.
    #[error("was lost: {what}")]
    Lost {
        /// What happened.
        what: String,
    },
}
