//! Whether a server that failed still knows the session: a `ping`, until it answers.
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use rejoin_core::message::{self, Incoming};
use tokio::time::{Instant, sleep, timeout};

use super::answer::is_gone_error;
use super::backoff::Backoff;
use super::reply::collect;
use super::session::{Posted, Session};
use crate::upstream::CloseReason;

const BACKOFF_MS: u64 = 100;
const BACKOFF_MAX_MS: u64 = 2_000;
/// Time the body of an answer gets.
const BODY_MAX: Duration = Duration::from_secs(5);

enum Finding {
    Alive,
    Gone,
    Away,
}

/// Waits for suspicions. Ends when the session is over.
pub(super) async fn run(session: Arc<Session>) {
    let limit_ms = session.origin.http_limits.unreachable_max_ms;
    let mut pings = 0_u64;
    loop {
        session.suspicion.notified().await;
        let deadline = Instant::now() + Duration::from_millis(limit_ms);
        let mut backoff = Backoff::new(BACKOFF_MS, BACKOFF_MAX_MS);
        loop {
            pings += 1;
            match ask(&session, pings).await {
                Finding::Alive => {
                    session.revival.notify_waiters();
                    break;
                }
                Finding::Gone => return session.finish(CloseReason::SessionGone),
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

/// A server that has the session answers, or is busy; that it is slow proves nothing.
async fn ask(session: &Session, number: u64) -> Finding {
    let id = format!("\"rejoin-ping-{number}\"");
    let response = match session.post_soon(message::request(id.as_bytes(), "ping", None)).await {
        Posted::Answered(response) => response,
        Posted::NotSent(_) | Posted::Failed(_) => return Finding::Away,
        Posted::Slow | Posted::Refused(_) => return Finding::Alive,
    };
    let (head, body) = response.into_parts();
    if session.is_gone(head.status) {
        return Finding::Gone;
    }
    match head.status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Finding::Away
        }
        status if status.is_success() => Finding::Alive,
        status => {
            let bytes_max = session.origin.http_limits.refusal_bytes_max;
            let body = timeout(BODY_MAX, collect(body, bytes_max)).await;
            let body = body.ok().and_then(Result::ok).unwrap_or_default();
            match message::parse(body, session.origin.limits.json_depth_max) {
                Ok(Incoming::One(message)) if is_gone_error(session, status, &message) => {
                    Finding::Gone
                }
                _ => Finding::Alive,
            }
        }
    }
}
