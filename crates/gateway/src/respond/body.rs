//! JSON-RPC bodies of answers that no session wrote.

use bytes::Bytes;
use rejoin_core::message::{IdKey, Incoming, Kind, error_response};
use rejoin_core::rejection::REFUSED_BY;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// The body is no JSON.
pub(super) const PARSE_ERROR: i64 = -32_700;
/// The body, or how it was sent, is not what this endpoint takes.
pub(super) const INVALID_REQUEST: i64 = -32_600;
/// Something failed behind the gateway.
pub(super) const INTERNAL_ERROR: i64 = -32_603;
/// The revision of a request has no such method.
pub(super) const METHOD_NOT_FOUND: i64 = -32_601;
/// A limit is reached, or the gateway is about to stop.
pub(super) const UNAVAILABLE: i64 = -32_000;

/// The page about 503.
const OVERLOADED_DOC: &str = "docs/reasons/503-overloaded.md";

/// Whom an error answers: requests by their own JSON-RPC ids, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ids {
    /// No request, or none whose id could be read.
    None,
    /// One request.
    One(Bytes),
    /// The requests of a batch.
    Many(Vec<Bytes>),
}

impl Ids {
    /// The requests of a body.
    pub(crate) fn of(incoming: &Incoming) -> Self {
        let raw = |message: &rejoin_core::message::Message| {
            let id = message.id().filter(|_| message.kind() == Kind::Request)?;
            Some(message.bytes().slice_ref(id))
        };
        match incoming {
            Incoming::One(message) => raw(message).map_or(Self::None, Self::One),
            Incoming::Batch(messages) => {
                let ids: Vec<_> = messages.iter().filter_map(raw).collect();
                if ids.is_empty() { Self::None } else { Self::Many(ids) }
            }
        }
    }

    /// The id of a body that may be no valid message: one client waits for ever on an error without
    /// its id.
    pub(crate) fn guess(body: &Bytes) -> Self {
        #[derive(Deserialize)]
        struct WithId<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
        }
        let Ok(found) = serde_json::from_slice::<WithId<'_>>(body) else { return Self::None };
        let raw = found.id.get().as_bytes();
        match IdKey::from_json(raw) {
            Ok(_) => Self::One(body.slice_ref(raw)),
            Err(_) => Self::None,
        }
    }
}

/// An error for each request; `data` is JSON text.
pub(super) fn error(ids: &Ids, code: i64, message: &str, data: Option<&str>) -> Bytes {
    let data = data.map(str::as_bytes);
    match ids {
        Ids::None => error_response(None, code, message, data),
        Ids::One(id) => error_response(Some(id), code, message, data),
        Ids::Many(ids) => array(ids.iter().map(|id| error_response(Some(id), code, message, data))),
    }
}

/// A JSON array of messages.
pub(super) fn array(messages: impl Iterator<Item = Bytes>) -> Bytes {
    let mut out = b"[".to_vec();
    for (index, message) in messages.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&message);
    }
    out.push(b']');
    out.into()
}

/// `data` of an error that passes with time.
pub(super) fn retry_data(retry_after_ms: u64) -> String {
    let data = json!({
        "by": REFUSED_BY,
        "sendAgain": true,
        "retryAfterMs": retry_after_ms,
        "doc": OVERLOADED_DOC,
    });
    data.to_string()
}
