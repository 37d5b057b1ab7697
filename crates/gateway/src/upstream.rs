//! Upstreams: what the gateway relays to, at the level of whole JSON-RPC messages.
//!
//! [`Upstream::open`] starts one upstream session. From then on the session driver and the adapter
//! talk by two bounded channels, [`Command`]s one way and [`Event`]s the other. The adapter knows
//! nothing of streams, cursors or the ledger; the driver nothing of pipes or HTTP. [`stdio`] is the
//! first implementation; [`conformance`] is the suite that every implementation runs.
//!
//! # What an adapter promises (design sections 3 to 5)
//!
//! - Every [`Command::Call`] the channel accepted gets exactly one of [`Event::Sent`] and
//!   [`Event::NotSent`], before any message of that call and before [`Event::Closed`].
//! - Messages keep their bytes, one JSON-RPC message an event, and the order in which the upstream
//!   wrote them to one channel: over stdio all of them, over HTTP those of one stream.
//! - [`Event::Closed`] comes once, after everything that was received. Then the channel ends.
//! - Commands are read while events wait to be received, up to a bounded number of outcomes; the
//!   driver never has to receive an event in order to send the next command.
//! - A session ends at [`Command::End`], when the driver drops the command sender, or when it drops
//!   the event receiver. Nothing of it remains after a `Closed` whose reason is
//!   [`CloseReason::Ended`].
//!
//! A driver that wants to end a session while its command channel is full drops the sender.
use std::io;

use async_trait::async_trait;
use bytes::Bytes;
pub use rejoin_core::id::CallId;
use tokio::sync::mpsc;

#[doc(hidden)]
pub mod conformance;
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
    async fn open(&self, initialize: Bytes) -> Result<Opened, OpenError>;

    /// The upstream's name in logs and messages to people. No secret: the base name of a command,
    /// the host of a URL.
    fn name(&self) -> &str;
}

/// An open upstream session.
#[derive(Debug)]
pub struct Opened {
    /// The whole JSON-RPC response to `initialize`, a result or an error.
    pub answer: Bytes,
    /// What the driver wants done, in order. Holds `upstream_queue_max` commands.
    pub commands: mpsc::Sender<Command>,
    /// What happened, in order. Holds `upstream_queue_max` events.
    pub events: mpsc::Receiver<Event>,
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
    /// Ends the session gracefully, after what was commanded before. Dropping the sender is the
    /// same.
    End,
}

/// What an adapter tells the session driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first byte of the call may have left: from here its outcome can be unknown.
    Sent {
        /// The call.
        call: CallId,
    },
    /// No byte of the call left, provably: its claim may be released.
    NotSent {
        /// The call.
        call: CallId,
        /// Why not.
        reason: NotSentReason,
    },
    /// A response, a notification, or a request of the server.
    Message {
        /// The call whose channel it came on, if the adapter can tell. Over stdio only a response
        /// tells (by its id); the rest is routed by who reads it.
        call: Option<CallId>,
        /// The whole message, byte for byte.
        message: Bytes,
    },
    /// The session is over. Every call sent and not answered is lost.
    Closed {
        /// Why.
        reason: CloseReason,
    },
}

/// Why no byte of a call left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSentReason {
    /// The upstream does not read fast enough: the queue's messages or bytes are used up.
    #[error("the queue towards the server is full")]
    QueueFull,
    /// The session was over before the call's turn came.
    #[error("the session with the server was over")]
    Closed,
}

/// Why a session is over. Reads as the end of a sentence that begins with the upstream's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The driver ended it, and nothing of it remains.
    #[error("was ended")]
    Ended,
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
    /// The session was lost in another way.
    #[error("was lost: {what}")]
    Lost {
        /// What happened.
        what: String,
    },
}

/// Why a session could not be opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The command could not be started.
    #[error("could not start `{command}`: {source}; check that it is installed and on PATH")]
    Spawn {
        /// The configured command.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// The cap on child processes is reached; none was started.
    #[error(
        "all {children_max} child processes are in use: \
         try again when a session has ended, or raise children_max"
    )]
    TooManyChildren {
        /// The cap.
        children_max: usize,
    },
    /// The server ended before it answered `initialize`.
    #[error(
        "`{upstream}` {status} before it answered initialize: \
         see its standard error in the log, or run the command by hand"
    )]
    ExitedBeforeAnswer {
        /// The upstream's name.
        upstream: String,
        /// How it ended.
        status: CloseReason,
    },
    /// No answer to `initialize` in time. What was started is ended.
    #[error(
        "`{upstream}` did not answer initialize within {limit_ms} ms: \
         see its standard error in the log, or raise initialize_max_ms"
    )]
    TimedOut {
        /// The upstream's name.
        upstream: String,
        /// The limit.
        limit_ms: u64,
    },
    /// What came instead of an answer to `initialize` cannot be used.
    #[error("`{upstream}` {what}: check that it is an MCP server")]
    BadAnswer {
        /// The upstream's name.
        upstream: String,
        /// What it did.
        what: &'static str,
    },
    /// The message given to `open` is not a request with an id.
    #[error("the initialize message is not a JSON-RPC request with an id: send one")]
    NotARequest,
}
