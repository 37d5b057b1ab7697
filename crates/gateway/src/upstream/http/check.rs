//! Whether a server that failed, or that refused a request, still knows the session: a `ping`.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use rejoin_core::message::{self, Incoming, Message};
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use super::open;
use super::reply::{Form, collect};
use super::session::{Posted, Session};
use crate::upstream::{CloseReason, Opening};

const BACKOFF_MS: u64 = 100;
const BACKOFF_MAX_MS: u64 = 2_000;
/// Time the body of an answer gets.
const BODY_MAX: Duration = Duration::from_secs(5);
/// JSON-RPC error codes with which servers say that they do not know a session.
const GONE_CODES: [i64; 2] = [-32_600, -32_001];
/// What errors about an unknown session have in common, in lower case.
const GONE_WORDS: [&[u8]; 2] = [b"session", b"not initialized"];

/// What a server says of the session.
enum Finding {
    Alive,
    Gone(Refusal),
    Away,
}

/// What a server answers to whatever is sent in a session that it does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    /// The JSON-RPC error. `None`: the status says it.
    error: Option<Bytes>,
}

impl Refusal {
    /// What this answer would be, if it is one.
    pub(super) fn of(status: StatusCode, answer: Option<&Message>) -> Self {
        let error = answer.and_then(Message::error).map(Bytes::copy_from_slice);
        Self { status, error }
    }
}

/// Waits for suspicions. Ends when the session is over.
pub(super) async fn run(session: Arc<Session>) {
    let limit_ms = session.origin.limits.upstream.unreachable_max_ms;
    loop {
        session.suspicion.notified().await;
        let deadline = Instant::now() + Duration::from_millis(limit_ms);
        let mut backoff = Backoff::new(BACKOFF_MS, BACKOFF_MAX_MS);
        loop {
            match ask(&session).await {
                Finding::Alive => {
                    session.revival.notify_waiters();
                    break;
                }
                Finding::Gone(_) => return session.finish(CloseReason::SessionGone),
                Finding::Away if Instant::now() >= deadline => {
                    return session.finish(CloseReason::Unreachable { limit_ms });
                }
                Finding::Away => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    sleep(backoff.next().min(left)).await;
                }
            }
        }
    }
}

/// Finds out whether the session is gone, once for all who want to know at the same time. Returns
/// what its server now answers to everything in it; `None`: it lives, or nothing tells.
pub(super) async fn knock(session: &Session) -> Option<Refusal> {
    let mut gone = session.gone.lock().await;
    if gone.is_none()
        && let Finding::Gone(refusal) = ask(session).await
    {
        *gone = Some(refusal);
    }
    gone.clone()
}

/// Whether this answer to a request may mean that the session is gone: 404 is not the only status
/// that servers use for that. `is_own`: it is the answer of the very request, by its id.
pub(super) fn may_mean_gone(
    session: &Session,
    status: StatusCode,
    answer: Option<&Message>,
    is_own: bool,
) -> bool {
    let code = answer.and_then(Message::error_code);
    // These speak of the request.
    let is_about_request = is_own && matches!(code, Some(-32_602 | -32_601 | -32_700));
    session.terms.id.is_some()
        && match status.as_u16() {
            400 => !is_about_request,
            409 | 503 => !is_own && answer.is_some_and(names_session),
            200 => {
                code.is_some_and(|code| GONE_CODES.contains(&code))
                    && answer.is_some_and(names_session)
            }
            _ => false,
        }
}

/// Whether an error speaks of the session.
fn names_session(answer: &Message) -> bool {
    let error = answer.error().unwrap_or_default().to_ascii_lowercase();
    GONE_WORDS.iter().any(|word| error.windows(word.len()).any(|part| part == *word))
}

/// A server that has the session answers, or is busy; that it is slow proves nothing.
async fn ask(session: &Session) -> Finding {
    let response = match ping(session).await {
        Posted::Answered(response) => response,
        Posted::NotSent(_) | Posted::Failed(_) => return Finding::Away,
        Posted::Slow | Posted::Refused(_) => return Finding::Alive,
    };
    let (head, body) = response.into_parts();
    let status = head.status;
    if session.is_gone(status) {
        return Finding::Gone(Refusal::of(status, None));
    }
    let form = Form::of(&head.headers);
    if status.is_success() && form != Form::Json {
        return Finding::Alive;
    }
    let bytes_max = session.origin.limits.upstream.refusal_bytes_max;
    let body = timeout(BODY_MAX, collect(body, bytes_max)).await;
    let body = body.ok().and_then(Result::ok).unwrap_or_default();
    let answer = match message::parse(body, session.origin.limits.json_depth_max) {
        Ok(Incoming::One(message)) => Some(message),
        _ => None,
    };
    let is_named = answer.as_ref().is_some_and(names_session);
    let may_be_gone = may_mean_gone(session, status, answer.as_ref(), false);
    // Words are enough here: nothing is wrong with a ping. Without them it needs the comparison.
    if may_be_gone && (is_named || is_fresh_one_answered(session).await) {
        return Finding::Gone(Refusal::of(status, answer.as_ref()));
    }
    match status.as_u16() {
        502..=504 => Finding::Away,
        _ => Finding::Alive,
    }
}

async fn ping(session: &Session) -> Posted {
    let number = session.pings.fetch_add(1, Ordering::Relaxed);
    let id = format!("\"rejoin-ping-{number}\"");
    session.post_soon(message::request(id.as_bytes(), "ping", None)).await
}

/// Whether the same `ping`, refused in this session, is answered in one that is opened for it: then
/// it is the session that the server refuses, and neither pings nor this client.
async fn is_fresh_one_answered(session: &Session) -> bool {
    let opening =
        Opening { initialize: session.initialize.clone(), headers: session.client_headers() };
    let origin = Arc::clone(&session.origin);
    // A task of its own: what it opens is ended whatever becomes of this session.
    let asking = tokio::spawn(async move {
        let Ok(begun) = open::begin(&origin, opening).await else { return false };
        let is_open = begun.is_agreed();
        let fresh = begun.into_silent_session(&origin);
        let is_answered = is_open && is_success(&ping(&fresh).await);
        fresh.delete().await;
        is_answered
    });
    asking.await.unwrap_or(false)
}

fn is_success(posted: &Posted) -> bool {
    matches!(posted, Posted::Answered(response) if response.status().is_success())
}
