//! What the machine asks for, and what it is told: the whole of its contact with the world.
use bytes::Bytes;
use rejoin_core::sse::Event;

use super::notice::Notice;

/// One HTTP request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExchangeId(pub u64);

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Carries a message.
    Post,
    /// Asks for a stream.
    Get,
    /// Ends the session.
    Delete,
}

/// A request to the server's one endpoint. `Accept`, `Content-Type` and credentials are the
/// transport's.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Header fields by lower-case name; visible ASCII.
    pub headers: Vec<(&'static str, String)>,
    /// One message; empty for GET and DELETE.
    pub body: Bytes,
}

impl Request {
    /// The value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}

impl std::fmt::Debug for Request {
    /// Without values and body: session ids and payloads are nobody's to read.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        write!(f, "{:?} {names:?} {} bytes", self.method, self.body.len())
    }
}

/// What a body holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// Server-sent events.
    Stream,
    /// Anything else, given whole.
    Whole,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// HTTP status.
    pub status: u16,
    /// What follows.
    pub media: Media,
    /// `Mcp-Session-Id`.
    pub session: Option<String>,
    /// `Mcp-Replay-Until`: the event with which a replay ends.
    pub replay_until: Option<String>,
    /// `Retry-After`, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// What becomes of an exchange. After `Unsent`, `NoCredential`, `Body`, `Ended` and `Broken`
/// nothing more comes.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Not one byte of the request was written; why.
    Unsent(String),
    /// Nor was this one: there is no credential; why.
    NoCredential(String),
    /// The head of the answer.
    Head(Head),
    /// The next event of a stream.
    Event(Event),
    /// An event of a stream, or a whole body, was larger than `message_bytes_max` and is lost.
    Oversized,
    /// An event of a stream found no room beside what else is half read (`half_read_bytes_max`),
    /// and is lost. The exchange is given up.
    NoRoom,
    /// The whole body of an answer that is no stream.
    Body(Bytes),
    /// The stream ended properly.
    Ended,
    /// The connection broke. The request may have arrived; why.
    Broken(String),
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// A message of the host, or a batch of them.
    Host(Bytes),
    /// The host is gone: nothing more comes from it.
    HostGone,
    /// News of an exchange.
    Answer(ExchangeId, Answer),
    /// Time has passed (see [`super::Machine::wake_ms`]).
    Tick,
}

/// What the machine asks for, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this, once, and tell what becomes of it.
    Open(ExchangeId, Request),
    /// Give this exchange up. Nothing more is asked of it.
    Close(ExchangeId),
    /// A message for the host.
    Deliver(Bytes),
    /// Something a person may want to know.
    Notice(Notice),
    /// Everything has ended.
    Done,
}
