//! Answers, and the only place that knows which status is which (design section 5, "A refusal on
//! the wire", and 6; spec 1.1). Errors become responses here and nowhere else.

mod body;
mod status;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER, USER_AGENT,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{Either, Full};
use rejoin_core::id::{EventId, SessionId};
use rejoin_core::rejection::Rejection;

use crate::body::StreamBody;
use crate::config::{GatewayConfig, RejectStatus};
use crate::delete::DeleteError;
use crate::get::GetError;
use crate::headers::{
    HeaderError, LAST_EVENT_ID, MCP_REPLAY_UNTIL, MCP_SESSION_ID, MCP_STREAM_RESUMABLE,
};
use crate::initialize::InitializeError;
use crate::passthrough::PassedBody;
use crate::post::{BodyError, PostError};
use crate::upstream::{Challenge, OpenError};

pub(crate) use body::Ids;
use status::Failure;

/// The body of every answer.
pub type AnswerBody = Either<Full<Bytes>, Either<StreamBody, PassedBody>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Proxies must pass events on as they come.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, no-transform");
const NO: HeaderValue = HeaderValue::from_static("no");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// Tells nginx not to hold events back.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// How one client is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Refusals have status 200: it would lose its session on any other.
    softened: bool,
}

impl Manner {
    /// The manner that the operator chose for the sender of these header fields.
    pub(crate) fn of(headers: &HeaderMap, config: &GatewayConfig) -> Self {
        let agent = headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
        let is_fragile = |prefix: &String| agent.starts_with(prefix.as_bytes());
        Self {
            softened: match config.reject_status {
                RejectStatus::Auto => config.fragile_agents.iter().any(is_fragile),
                RejectStatus::Conflict => false,
                RejectStatus::Ok => true,
            },
        }
    }

    fn status(self, status: StatusCode) -> StatusCode {
        if self.softened { StatusCode::OK } else { status }
    }
}

/// 202: notifications and responses were taken (spec POST-4).
pub(crate) fn accepted() -> Response<AnswerBody> {
    plain(StatusCode::ACCEPTED, Bytes::new())
}

/// 204: it was done, and there is nothing more to say.
pub(crate) fn no_content() -> Response<AnswerBody> {
    plain(StatusCode::NO_CONTENT, Bytes::new())
}

/// 404 outside the endpoint.
pub(crate) fn no_such_path(path: &str) -> Response<AnswerBody> {
    let text = format!("Nothing is here. The MCP endpoint is {path}\n");
    let mut response = plain(StatusCode::NOT_FOUND, text.into());
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}

/// 405: nothing can be resumed at this cursor. The same bytes whatever the reason is: they must not
/// tell whether the cursor exists (design section 6).
pub(crate) fn not_resumable() -> Response<AnswerBody> {
    let text = "There is nothing to resume from here: everything was delivered, the call was \
                cancelled, or Last-Event-ID is none of this session. Stop resuming it; the session \
                goes on.";
    let body = body::error(&Ids::None, body::INVALID_REQUEST, text, None);
    let mut response = json(StatusCode::METHOD_NOT_ALLOWED, body);
    response.headers_mut().insert(ALLOW, METHODS);
    response
}

/// 405: the endpoint does not know the method (spec EP-1).
pub(crate) fn method_not_allowed() -> Response<AnswerBody> {
    let text = "The MCP endpoint takes GET, POST and DELETE.";
    let body = body::error(&Ids::None, body::INVALID_REQUEST, text, None);
    let mut response = json(StatusCode::METHOD_NOT_ALLOWED, body);
    response.headers_mut().insert(ALLOW, METHODS);
    response
}

/// 200 with the answer to `initialize`, and the session's id if there is a session.
pub(crate) fn initialized(body: Bytes, id: Option<&SessionId>) -> Response<AnswerBody> {
    let mut response = json(StatusCode::OK, body);
    if let Some(id) = id {
        name_session(&mut response, id.expose());
    }
    response
}

/// 200 with one JSON body.
pub(crate) fn answered(body: Bytes) -> Response<AnswerBody> {
    json(StatusCode::OK, body)
}

/// 200 with a stream.
pub(crate) fn stream(
    body: StreamBody,
    replay_until: Option<EventId>,
    session: &str,
) -> Response<AnswerBody> {
    let mut response = Response::new(Either::Right(Either::Left(body)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    headers.insert(CACHE_CONTROL, NO_CACHE);
    headers.insert(X_ACCEL_BUFFERING, NO);
    headers.insert(MCP_STREAM_RESUMABLE, TRUE);
    if let Some(until) = replay_until {
        insert(headers, MCP_REPLAY_UNTIL, &until.to_string());
    }
    name_session(&mut response, session);
    response
}

/// 401 or 403 of the server: only its client can do what it asks for (RFC 9728). The body is a
/// JSON-RPC error for the call, which did not run.
pub(crate) fn challenged(
    challenge: Challenge,
    body: Either<Bytes, StreamBody>,
) -> Response<AnswerBody> {
    let body = match body {
        Either::Left(body) => Either::Left(Full::new(body)),
        Either::Right(body) => Either::Right(Either::Left(body)),
    };
    let mut response = json(challenge.status, Bytes::new()).map(|_| body);
    for field in challenge.fields {
        response.headers_mut().append(WWW_AUTHENTICATE, field);
    }
    response
}

/// The server's own answer, as it is.
pub(crate) fn passed(response: Response<PassedBody>) -> Response<AnswerBody> {
    response.map(|body| Either::Right(Either::Right(body)))
}

/// 409 (or 200): every request of the POST was refused.
pub(crate) fn refused(
    rejections: &[Rejection],
    batch: bool,
    manner: Manner,
) -> Response<AnswerBody> {
    let bodies = rejections.iter().map(Rejection::body);
    let body = match (batch, rejections) {
        (false, [one]) => one.body(),
        _ => body::array(bodies),
    };
    let mut response = json(manner.status(StatusCode::CONFLICT), body);
    let headers = response.headers_mut();
    if let Some(hint) = rejections.iter().find_map(|rejection| rejection.hint.as_ref()) {
        headers.insert(MCP_STREAM_RESUMABLE, TRUE);
        insert(headers, LAST_EVENT_ID, &hint.cursor.to_string());
    }
    let retry_after_ms = rejections.iter().map(|rejection| rejection.retry_after_ms).max();
    retry_after(headers, retry_after_ms.unwrap_or_default());
    response
}

/// The answer to a POST that was not given to its session.
pub(crate) fn post_failed(error: &PostError, ids: &Ids, manner: Manner) -> Response<AnswerBody> {
    if let PostError::Initialize(InitializeError::Open(error)) = error
        && let Some(response) = challenge(error)
    {
        return response;
    }
    let failure = status::of_post(error);
    let mut response = failed(&failure, &error.to_string(), ids, manner);
    let unread = matches!(
        error,
        PostError::Body(BodyError::Cut | BodyError::TooSlow { .. } | BodyError::NoRoom)
    );
    if unread {
        // What still comes of the body would be read as the next request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// 401 or 403 of the server, unchanged: only its client can do what it asks for (RFC 9728).
fn challenge(error: &OpenError) -> Option<Response<AnswerBody>> {
    let OpenError::Refused { status, headers, body, .. } = error else { return None };
    if !matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return None;
    }
    let mut response = plain(*status, body.clone());
    response.headers_mut().extend((**headers).clone());
    Some(response)
}

/// The answer to a GET that was not given to its session.
pub(crate) fn get_failed(error: &GetError) -> Response<AnswerBody> {
    failed(&status::of_get(error), &error.to_string(), &Ids::None, Manner { softened: false })
}

/// The answer to a DELETE that ended nothing.
pub(crate) fn delete_failed(error: &DeleteError) -> Response<AnswerBody> {
    failed(&status::of_delete(error), &error.to_string(), &Ids::None, Manner { softened: false })
}

/// The answer to a request that is not let in.
pub(crate) fn not_let_in(error: &HeaderError) -> Response<AnswerBody> {
    failed(&status::of_header(error), &error.to_string(), &Ids::None, Manner { softened: false })
}

fn failed(failure: &Failure, text: &str, ids: &Ids, manner: Manner) -> Response<AnswerBody> {
    let status = if failure.softens && !matches!(ids, Ids::None) {
        manner.status(failure.status)
    } else {
        failure.status
    };
    let mut text = sentence(text);
    if failure.retry_after_ms.is_some() {
        text = format!("Not run. {text} It is safe to send this request again.");
    }
    let data = failure.retry_after_ms.map(body::retry_data);
    let body = body::error(ids, failure.code, &text, data.as_deref());
    let mut response = json(status, body);
    if let Some(retry_after_ms) = failure.retry_after_ms {
        retry_after(response.headers_mut(), retry_after_ms);
    }
    response
}

/// The message of an error as a sentence.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(rest).chain(['.']).collect()
}

fn json(status: StatusCode, body: Bytes) -> Response<AnswerBody> {
    let mut response = plain(status, body);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn plain(status: StatusCode, body: Bytes) -> Response<AnswerBody> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

fn name_session(response: &mut Response<AnswerBody>, id: &str) {
    insert(response.headers_mut(), MCP_SESSION_ID, id);
}

/// Whole seconds, rounded up: never earlier than meant.
fn retry_after(headers: &mut HeaderMap, after_ms: u64) {
    insert(headers, RETRY_AFTER, &after_ms.div_ceil(1_000).to_string());
}

/// All values written here are visible ASCII; any other would be left out.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests;
