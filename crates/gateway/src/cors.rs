//! Pages in browsers: what the script of an allowed origin may send and read (Fetch standard,
//! "CORS protocol"). Whether a page is let in at all is decided before, by its `Origin`.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response};

use crate::respond::{self, AnswerBody};

/// Every header field that a request may need and the standard does not let scripts set freely.
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Mcp-Protocol-Version, \
     Mcp-Session-Id, Mcp-Stream-Ack",
);
/// Every header field of an answer that a client reads.
const ANSWER_HEADERS: HeaderValue = HeaderValue::from_static(
    "Last-Event-ID, Mcp-Replay-Until, Mcp-Session-Id, Mcp-Stream-Resumable, Retry-After, \
     WWW-Authenticate",
);
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// Two hours, in seconds: the longest that a browser remembers.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
const ORIGIN_VARIES: HeaderValue = HeaderValue::from_static("Origin");

/// The one origin of a request that was let in; `None`: it comes from no page.
pub(crate) fn origin(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut origins = headers.get_all(ORIGIN).iter();
    origins.next().filter(|_| origins.next().is_none()).cloned()
}

/// True if a browser asks whether it may send the request proper.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// 204: it may.
pub(crate) fn preflight() -> Response<AnswerBody> {
    let mut response = respond::no_content();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    response
}

/// Lets the page read the answer. Cookies are no part of it: a principal is its `Authorization`.
pub(crate) fn expose(response: &mut Response<AnswerBody>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, ANSWER_HEADERS);
    headers.append(VARY, ORIGIN_VARIES);
}
