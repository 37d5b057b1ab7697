//! For `fuzz/` alone (feature `fuzz`): what the readers of header fields make of a request.

use http::{HeaderMap, Uri};
use rejoin_core::id::EventId;
use rejoin_core::input::GetCursor;

use crate::headers::{self, Allowed, HeaderError, Operator};

/// What was read, and what was told to whoever sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the reader of that name in `headers`")]
pub struct HeadersRead {
    pub allowed: Result<(), String>,
    pub post: Result<(), String>,
    pub get: Result<(), String>,
    pub content_length: Option<u64>,
    pub session_id: Result<Option<String>, String>,
    pub revision: Result<Option<String>, String>,
    pub acknowledgements: Vec<EventId>,
    pub cursor: GetCursor,
    pub idempotency_key: Result<Option<String>, String>,
}

/// Reads the header fields of a request, at a gateway that lets these hosts and origins in.
pub fn read_headers(
    uri: &Uri,
    fields: &HeaderMap,
    hosts: &[String],
    origins: &[String],
) -> HeadersRead {
    fn told<T>(read: Result<T, HeaderError>) -> Result<T, String> {
        read.map_err(|error| error.to_string())
    }
    let allowed = Allowed::new(hosts, origins, Operator::Command);
    let id = told(headers::session_id(fields));
    let revision = told(headers::revision(fields));
    HeadersRead {
        allowed: told(allowed.check(uri, fields)),
        post: told(headers::check_post(fields)),
        get: told(headers::check_get(fields)),
        content_length: headers::content_length(fields),
        session_id: id.map(|id| id.map(str::to_owned)),
        revision: revision.map(|date| date.map(|date| date.as_str().to_owned())),
        acknowledgements: headers::acknowledgements(fields),
        cursor: headers::cursor(fields),
        idempotency_key: told(headers::idempotency_key(fields)),
    }
}
