//! What the head of a call's response says, and every body but a stream.
use std::time::Duration;

use bytes::Bytes;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};
use rejoin_core::message::{self, Incoming, Kind, Message};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::calls::{Call, Phase};
use super::check::{self, Refusal};
use super::reply::{Form, collect, short};
use super::session::Session;
use crate::passthrough::UpstreamBody as Body;
use crate::upstream::{CallId, Challenge, Channel, CloseReason, LostReason, NotSentReason};

/// JSON-RPC error code of an answer that is none, or that cannot be read.
const UNUSABLE_CODE: i64 = -32_603;
/// Time the body of a refusal gets.
pub(super) const REFUSAL_MAX: Duration = Duration::from_secs(5);

/// Takes the response of a call. Returns its stream if it has one; else the call is settled.
pub(super) async fn take(session: &Session, call: &Call, response: Response<Body>) -> Option<Body> {
    let (head, body) = response.into_parts();
    if session.is_gone(head.status) {
        gone(session, call.id).await;
        return None;
    }
    if !head.status.is_success() {
        refused(session, call, head.status, &head.headers, body).await;
        return None;
    }
    match Form::of(&head.headers) {
        Form::Stream => {
            session.calls.begun(call.id).await;
            return Some(body);
        }
        Form::Json => json(session, call, body).await,
        Form::Encoded(coding) => {
            let what = format!("answered in the coding {coding}, which Rejoin did not ask for");
            unusable(session, call.id, &what).await;
        }
        Form::Other(media) => {
            drop(body);
            let what = match media {
                Some(media) => format!("answered with {media}"),
                None => format!("answered with HTTP status {} and nothing else", head.status),
            };
            elsewhere(session, call).await;
            unusable(session, call.id, &what).await;
        }
    }
    None
}

/// Waits for an answer that may come on the standalone stream, for a while.
pub(super) async fn elsewhere(session: &Session, call: &Call) {
    if session.listens() {
        let limit = Duration::from_millis(session.origin.limits.upstream.elsewhere_ms);
        tokio::select! {
            () = call.settled() => {}
            () = sleep(limit) => {}
        }
    }
}

/// The server does not know the session: it did not run the call either.
async fn gone(session: &Session, call: CallId) {
    session.calls.not_sent(call, NotSentReason::SessionGone).await;
    session.finish(CloseReason::SessionGone);
}

/// Answers a call whose own answer cannot be used: rather that than silence.
pub(super) async fn unusable(session: &Session, call: CallId, what: &str) {
    let text = format!("The server {what}. That is no answer to the call. The call may have run.");
    tracing::warn!(upstream = %session.origin.name, %call, what, "no usable answer to a call");
    let id = call.to_string();
    let body = message::error_response(Some(id.as_bytes()), UNUSABLE_CODE, &text, None);
    session.calls.answer(call, body).await;
}

async fn json(session: &Session, call: &Call, body: Body) {
    let limits = &session.origin.limits;
    let body = match collect(body, limits.event_bytes_max).await {
        Ok(body) => body,
        Err(error) => {
            return unusable(session, call.id, &format!("sent an answer that {error}")).await;
        }
    };
    let messages = match message::parse(body, limits.json_depth_max) {
        Ok(Incoming::One(message)) => vec![message],
        Ok(Incoming::Batch(messages)) => messages,
        Err(_) => {
            elsewhere(session, call).await;
            return unusable(session, call.id, "answered with JSON that is no message").await;
        }
    };
    if let [message] = &*messages
        && check::may_mean_gone(session, StatusCode::OK, Some(message), true)
        && is_door_shut(session, StatusCode::OK, Some(message)).await
    {
        return gone(session, call.id).await;
    }
    for message in &messages {
        session.calls.deliver(Channel::Call(call.id), message, None).await;
    }
    if call.phase() != Phase::Settled {
        elsewhere(session, call).await;
        unusable(session, call.id, "answered with a message that belongs to another call").await;
    }
}

/// Whether the server answers everything in this session as it answered this call: then it does not
/// know the session, and refused the call before it looked at it.
async fn is_door_shut(session: &Session, status: StatusCode, answer: Option<&Message>) -> bool {
    let Some(refusal) = check::knock(session).await else { return false };
    let is_shut = answer.is_none_or(|_| refusal == Refusal::of(status, answer));
    if !is_shut {
        // It is gone all the same, once this answer has been passed on.
        session.suspect();
    }
    is_shut
}

/// A status that is no success.
async fn refused(
    session: &Session,
    call: &Call,
    status: StatusCode,
    headers: &HeaderMap,
    body: Body,
) {
    let bytes_max = session.origin.limits.upstream.refusal_bytes_max;
    let body = match Form::of(headers) {
        Form::Encoded(_) => Bytes::new(),
        _ => timeout(REFUSAL_MAX, collect(body, bytes_max))
            .await
            .map_or_else(|_| Bytes::new(), Result::unwrap_or_default),
    };
    let answer = match message::parse(body, session.origin.limits.json_depth_max) {
        Ok(Incoming::One(message)) => Some(message),
        _ => None,
    };
    let is_challenge = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let own = answer.as_ref().filter(|answer| !is_challenge && answers(call.id, answer));
    if check::may_mean_gone(session, status, answer.as_ref(), own.is_some())
        && is_door_shut(session, status, own).await
    {
        return gone(session, call.id).await;
    }
    if let Some(own) = own {
        session.calls.deliver(Channel::Call(call.id), own, None).await;
        return;
    }
    if status.is_server_error() {
        session.suspect();
    }
    if is_refusal(status, headers) {
        let answer = refusal(call.id, status, headers, None);
        let challenge = Challenge::of(status, headers);
        let reason = NotSentReason::Refused { status, answer, challenge };
        return session.calls.not_sent(call.id, reason).await;
    }
    session.calls.lost(call.id, LostReason::Status { status }).await;
}

/// Whether a message is the response to a call.
fn answers(call: CallId, message: &Message) -> bool {
    matches!(message.kind(), Kind::Response | Kind::ErrorResponse)
        && message.id_key().and_then(|key| key.as_u64()) == Some(call.get())
}

/// Whether a status says by its meaning that the request was not processed (RFC 9110 section 15,
/// RFC 6585). 503 says so only together with `Retry-After`; 502 and 504 come from a gateway that
/// may have passed the call on.
fn is_refusal(status: StatusCode, headers: &HeaderMap) -> bool {
    match status.as_u16() {
        300..=399
        | 400
        | 401
        | 403
        | 404
        | 405
        | 406
        | 411
        | 413
        | 414
        | 415
        | 417
        | 421
        | 426
        | 428
        | 429
        | 431
        | 501 => true,
        503 => headers.contains_key(RETRY_AFTER),
        _ => false,
    }
}

/// The error that tells a call's client of a refusal; `what`: in other words than its status.
pub(super) fn refusal(
    call: CallId,
    status: StatusCode,
    headers: &HeaderMap,
    what: Option<&str>,
) -> Bytes {
    let text = match what {
        Some(what) => format!("Not run. The server {what}."),
        None => format!("Not run. The server refused the call with HTTP status {status}."),
    };
    let header =
        |name| headers.get(name).map(|value| short(&String::from_utf8_lossy(value.as_bytes())));
    let data = json!({
        "reason": "upstream_refused",
        "status": status.as_u16(),
        "wwwAuthenticate": header(WWW_AUTHENTICATE),
        "retryAfter": header(RETRY_AFTER),
    });
    let id = call.to_string();
    let data = data.to_string();
    message::error_response(Some(id.as_bytes()), UNUSABLE_CODE, &text, Some(data.as_bytes()))
}
