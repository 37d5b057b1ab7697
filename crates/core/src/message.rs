//! The raw JSON-RPC envelope (JSON-RPC 2.0; MCP base protocol).
//!
//! Rejoin relays messages as the bytes it got. [`parse`] checks them and remembers where the few
//! members lie that decide what happens to a message; [`Edit`] replaces such members in place and
//! leaves every other byte alone: key order, whitespace, big numbers, escapes, unknown members.
mod canonical;
mod edit;
mod error;
mod id;
mod parse;
mod scan;
mod text;
mod write;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

pub use edit::Edit;
pub use error::ParseError;
pub use id::{IdKey, IdKeyError};
pub use parse::parse;
pub use write::{error_response, notification, request, response, single_line};

use scan::{Object, Span};

/// What a body holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// One message.
    One(Message),
    /// A batch (revision 2025-03-26 only) of at least one message, of any kinds.
    Batch(Vec<Message>),
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Has `method` and `id`.
    Request,
    /// Has `method` and no `id`.
    Notification,
    /// Has `result`.
    Response,
    /// Has `error`; an `id` too, unless the request's could not be read.
    ErrorResponse,
}

/// One JSON-RPC message: its bytes as received, and where its parts are. Cheap to clone. Two are
/// equal if their bytes are. `Debug` shows no payload.
#[derive(Clone)]
pub struct Message {
    bytes: Bytes,
    shape: Arc<Shape>,
}

/// Where the parts of a message are.
struct Shape {
    kind: Kind,
    id: Option<Span>,
    id_key: Option<IdKey>,
    method: Option<Box<str>>,
    params: Option<Span>,
    param_members: Option<Object>,
    meta_members: Option<Object>,
    tool_name: Option<Box<str>>,
    result: Option<Span>,
    error: Option<Span>,
    /// The one of these two that is there as well, and null.
    null_outcome: Option<&'static str>,
    error_code: Option<i64>,
    /// Computed when it is first asked for: a POST that waits is decided again and again.
    params_hash: OnceLock<[u8; 32]>,
}

impl Message {
    /// What the message is.
    pub fn kind(&self) -> Kind {
        self.shape.kind
    }

    /// The whole message as received.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The id as written. `None` for notifications, and for errors whose id is null or absent.
    pub fn id(&self) -> Option<&[u8]> {
        self.raw(self.shape.id)
    }

    /// The id, to compare and look up.
    pub fn id_key(&self) -> Option<IdKey> {
        self.shape.id_key.clone()
    }

    /// The method of a request or notification, unescaped.
    pub fn method(&self) -> Option<&str> {
        self.shape.method.as_deref()
    }

    /// The params as written: an object or an array.
    pub fn params(&self) -> Option<&[u8]> {
        self.raw(self.shape.params)
    }

    /// The raw value of `params[key]`.
    pub fn param(&self, key: &str) -> Option<&[u8]> {
        self.raw(self.param_span(key))
    }

    /// The string `params[key]`, unescaped.
    pub fn param_str(&self, key: &str) -> Option<Cow<'_, str>> {
        self.param(key).and_then(text::string_value)
    }

    /// The tool a `tools/call` names (`params.name`), unescaped.
    pub fn tool_name(&self) -> Option<&str> {
        self.shape.tool_name.as_deref()
    }

    /// The raw value of `params._meta[key]`.
    pub fn meta(&self, key: &str) -> Option<&[u8]> {
        self.raw(self.meta_span(key))
    }

    /// The string `params._meta[key]`, unescaped.
    pub fn meta_str(&self, key: &str) -> Option<Cow<'_, str>> {
        self.meta(key).and_then(text::string_value)
    }

    /// The token under which a request asks for progress (`params._meta.progressToken`); `None`
    /// also if it is neither string nor integer.
    pub fn progress_token(&self) -> Option<IdKey> {
        IdKey::from_json(self.progress_token_raw()?).ok()
    }

    /// The progress token of a request as written, whatever its type.
    pub fn progress_token_raw(&self) -> Option<&[u8]> {
        self.raw(self.progress_token_span())
    }

    /// The token a `notifications/progress` reports on (`params.progressToken`).
    pub fn progress_of(&self) -> Option<IdKey> {
        IdKey::from_json(self.raw(self.progress_of_span())?).ok()
    }

    /// The id of the request a `notifications/cancelled` cancels (`params.requestId`).
    pub fn cancels(&self) -> Option<IdKey> {
        IdKey::from_json(self.raw(self.cancels_span())?).ok()
    }

    /// The raw result of a response.
    pub fn result(&self) -> Option<&[u8]> {
        self.raw(self.shape.result)
    }

    /// The raw error of an error response.
    pub fn error(&self) -> Option<&[u8]> {
        self.raw(self.shape.error)
    }

    /// `error.code`, if it is an integer of 64 bits.
    pub fn error_code(&self) -> Option<i64> {
        self.shape.error_code
    }

    /// Starts a set of changes to this message.
    pub fn edit(&self) -> Edit<'_> {
        Edit::new(self)
    }

    /// SHA-256 of the method and the canonical params: two requests with equal hashes ask for the
    /// same thing (design section 5, "Canonical params").
    ///
    /// Canonical are: no whitespace, object keys sorted, strings in one spelling, numbers as
    /// written, no top-level `_meta`; absent params are an empty object. Arrays keep their order,
    /// equal keys of one inner object theirs.
    pub fn canonical_params_hash(&self) -> [u8; 32] {
        *self.shape.params_hash.get_or_init(|| canonical::params_hash(self))
    }

    fn raw(&self, span: Option<Span>) -> Option<&[u8]> {
        span.map(|span| span.of(&self.bytes))
    }

    fn param_span(&self, key: &str) -> Option<Span> {
        self.shape.param_members.as_ref()?.get(&self.bytes, key)
    }

    fn meta_span(&self, key: &str) -> Option<Span> {
        self.shape.meta_members.as_ref()?.get(&self.bytes, key)
    }

    fn progress_token_span(&self) -> Option<Span> {
        self.meta_span("progressToken").filter(|_| self.kind() == Kind::Request)
    }

    fn progress_of_span(&self) -> Option<Span> {
        self.notified_span("notifications/progress", "progressToken")
    }

    fn cancels_span(&self) -> Option<Span> {
        self.notified_span("notifications/cancelled", "requestId")
    }

    fn protocol_version_span(&self) -> Option<Span> {
        let is_initialize = self.kind() == Kind::Request && self.method() == Some("initialize");
        self.param_span("protocolVersion").filter(|_| is_initialize)
    }

    fn notified_span(&self, method: &str, key: &str) -> Option<Span> {
        let is_notification = self.kind() == Kind::Notification && self.method() == Some(method);
        self.param_span(key).filter(|_| is_notification)
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Message {}

impl fmt::Debug for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Message")
            .field("kind", &self.kind())
            .field("method", &self.method())
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}
