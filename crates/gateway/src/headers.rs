//! What the header fields of a request say, checked (design sections 2 and 5, spec 1.1).

mod allow;
mod forwardable;
mod media;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue};
use rejoin_core::id::EventId;
use rejoin_core::input::GetCursor;
use rejoin_core::revision::Revision;

pub use allow::{AllowError, check_host, check_origin};
pub(crate) use allow::{Allowed, Operator};
pub(crate) use forwardable::{forwarded, is_reserved};

/// The session a request belongs to (spec SES-1).
pub(crate) const MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The revision a client speaks (spec VER-1).
pub(crate) const MCP_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The cursor to resume from (spec RES-4), and in a refusal the cursor to use.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Event ids whose events an aware client has processed (design section 3).
pub(crate) const MCP_STREAM_ACK: HeaderName = HeaderName::from_static("mcp-stream-ack");
/// On every answer that is, or points to, a resumable stream.
pub(crate) const MCP_STREAM_RESUMABLE: HeaderName = HeaderName::from_static("mcp-stream-resumable");
/// High-water mark of a replay.
pub(crate) const MCP_REPLAY_UNTIL: HeaderName = HeaderName::from_static("mcp-replay-until");
/// Another way to send a dedup token.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// What is wrong with a request's header fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    /// No `Host`, several, or one that cannot be read (RFC 9112 section 3.2).
    #[error("the request needs exactly one valid Host header")]
    BadHost,
    /// A `Host` that is not allowed: DNS rebinding (spec section 4).
    #[error("{named} is not an allowed Host: if it is a name of this server, {remedy}")]
    ForeignHost {
        /// What the request named, if it can be shown.
        named: String,
        /// How it is let in.
        remedy: String,
    },
    /// An `Origin` that is not allowed (spec SEC-1, SEC-2).
    #[error("{named} is not an allowed Origin: if its pages may use this server, {remedy}")]
    ForeignOrigin {
        /// What the request named, if it can be shown.
        named: String,
        /// How it is let in.
        remedy: String,
    },
    /// The body of a POST is not declared as JSON.
    #[error("Content-Type must be application/json")]
    NotJson,
    /// A POST whose answer could not be sent in both forms (spec POST-2).
    #[error("Accept must list both application/json and text/event-stream")]
    CannotAcceptBoth,
    /// A GET whose answer could not be a stream (spec GET-2).
    #[error("Accept must list text/event-stream")]
    CannotAcceptStream,
    /// An `Mcp-Protocol-Version` that is unknown here (spec VER-4).
    #[error(
        "Mcp-Protocol-Version {claimed:?} is not served: send the one that initialize agreed on \
         ({}, {} or {})",
        Revision::GUARDED[0], Revision::GUARDED[1], Revision::GUARDED[2]
    )]
    UnsupportedRevision {
        /// The begin of what the header says.
        claimed: String,
    },
    /// More than one `Mcp-Protocol-Version`.
    #[error("the request has more than one Mcp-Protocol-Version: send one")]
    ManyRevisions,
    /// More than one session id, or one that is not visible ASCII (spec SES-3).
    #[error("the request needs one Mcp-Session-Id of visible ASCII characters")]
    BadSessionId,
    /// No session id where one is needed (spec SES-6).
    #[error("the request has no Mcp-Session-Id: send initialize first, then the id it returns")]
    NoSession,
    /// An `Idempotency-Key` that cannot be used as a dedup token.
    #[error("Idempotency-Key must be there once, with 1 to 256 bytes of text")]
    BadIdempotencyKey,
}

/// Checks the header fields that every POST needs.
pub(crate) fn check_post(headers: &HeaderMap) -> Result<(), HeaderError> {
    let declared = headers.get(CONTENT_TYPE).and_then(text).map(media::essence);
    if !declared.is_some_and(|essence| essence.eq_ignore_ascii_case(JSON)) {
        return Err(HeaderError::NotJson);
    }
    if media::accepts(headers, JSON) && media::accepts(headers, EVENT_STREAM) {
        Ok(())
    } else {
        Err(HeaderError::CannotAcceptBoth)
    }
}

/// Checks that the answer to a GET may be a stream.
pub(crate) fn check_get(headers: &HeaderMap) -> Result<(), HeaderError> {
    if media::accepts(headers, EVENT_STREAM) {
        Ok(())
    } else {
        Err(HeaderError::CannotAcceptStream)
    }
}

/// The declared length of the body in bytes; `None`: it is not declared.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(text)?.parse().ok()
}

/// The session id as it stands in the header; it may be unknown.
pub(crate) fn session_id(headers: &HeaderMap) -> Result<Option<&str>, HeaderError> {
    let mut values = headers.get_all(MCP_SESSION_ID).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            let id = value.to_str().map_err(|_| HeaderError::BadSessionId)?;
            let visible = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic());
            if visible { Ok(Some(id)) } else { Err(HeaderError::BadSessionId) }
        }
        _ => Err(HeaderError::BadSessionId),
    }
}

/// The revision that the request claims; `None`: it says nothing (spec VER-3).
pub(crate) fn revision(headers: &HeaderMap) -> Result<Option<Revision>, HeaderError> {
    let mut values = headers.get_all(MCP_PROTOCOL_VERSION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match text(value) {
            Some(date) => Ok(Some(Revision::new(date.trim()))),
            None => Err(unsupported(&String::from_utf8_lossy(value.as_bytes()))),
        },
        _ => Err(HeaderError::ManyRevisions),
    }
}

/// Characters of an unsupported revision that are shown: those that there are have ten.
const CLAIM_SHOWN_MAX: usize = 32;

fn unsupported(claimed: &str) -> HeaderError {
    HeaderError::UnsupportedRevision { claimed: claimed.chars().take(CLAIM_SHOWN_MAX).collect() }
}

/// Checks the revision of a request in a session that agreed on `agreed`.
pub(crate) fn check_revision(headers: &HeaderMap, agreed: &Revision) -> Result<(), HeaderError> {
    match revision(headers)? {
        None => Ok(()),
        Some(claimed) if claimed == *agreed => Ok(()),
        Some(claimed) if Revision::GUARDED.contains(&claimed.as_str()) => Ok(()),
        Some(claimed) => Err(unsupported(claimed.as_str())),
    }
}

/// The events that a client confirms; whatever is no event id is ignored.
pub(crate) fn acknowledgements(headers: &HeaderMap) -> Vec<EventId> {
    let lines = headers.get_all(MCP_STREAM_ACK).iter().filter_map(text);
    lines.flat_map(|line| line.split(',')).filter_map(|id| id.trim().parse().ok()).collect()
}

/// The cursor of a GET. An empty one is none, as for an event source that has read no id.
pub(crate) fn cursor(headers: &HeaderMap) -> GetCursor {
    let mut values = headers.get_all(LAST_EVENT_ID).iter();
    match (values.next(), values.next()) {
        (None, _) => GetCursor::None,
        (Some(value), None) if value.is_empty() => GetCursor::None,
        (Some(value), None) => {
            text(value).and_then(|id| id.parse().ok()).map_or(GetCursor::Malformed, GetCursor::At)
        }
        _ => GetCursor::Malformed,
    }
}

/// The dedup token of the header. Both spellings are the same one: bare, and the quoted string of
/// the IETF draft.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, HeaderError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (first, second) = (values.next(), values.next());
    let Some(first) = first else { return Ok(None) };
    let bare = std::str::from_utf8(first.as_bytes()).map_err(|_| HeaderError::BadIdempotencyKey)?;
    let quoted = bare.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let token = quoted.unwrap_or(bare);
    if second.is_some() || token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(HeaderError::BadIdempotencyKey);
    }
    Ok(Some(token.to_owned()))
}

/// Longest dedup token.
pub(crate) const TOKEN_BYTES_MAX: usize = 256;

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

#[cfg(test)]
mod tests;
