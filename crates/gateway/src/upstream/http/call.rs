//! One call: its POST, and its stream to the end.
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use rejoin_core::limits::UpstreamLimits;
use tokio::time::sleep;

use super::answer;
use super::calls::{Call, Phase};
use super::resume;
use super::session::{Gate, Session};
use super::wire::Fault;
use crate::passthrough::UpstreamBody as Body;
use crate::upstream::{LostReason, NotSentReason};

/// Runs a call until its end is told and its stream has been read.
pub(super) async fn run(session: Arc<Session>, call: Call, message: Bytes) {
    // The sender lives as long as the session.
    let _ = session.gate.subscribe().wait_for(|gate| *gate != Gate::Passing).await;
    let mut given_up = pin!(given_up(&call, &session.origin.limits.upstream));
    let sent = send(&session, &call, message, given_up.as_mut()).await;
    let Some(response) = sent else { return };
    // A stream has a clock of its own, which its events wind up.
    let stream = tokio::select! {
        biased;
        stream = answer::take(&session, &call, response) => stream,
        () = given_up => {
            if call.phase() != Phase::Settled {
                session.calls.lost(call.id, LostReason::Cancelled).await;
            }
            return;
        }
    };
    if let Some(stream) = stream {
        resume::follow(&session, &call, stream).await;
    }
}

/// Waits until a call was cancelled and its server said nothing for as long as it may.
async fn given_up(call: &Call, limits: &UpstreamLimits) {
    let mut phase = call.phase.clone();
    // A sender that is gone was dropped when the call was settled: nothing is to be given up.
    if phase.wait_for(|phase| *phase == Phase::Cancelled).await.is_err() {
        std::future::pending::<()>().await;
    }
    sleep(Duration::from_millis(limits.cancelled_silence_max_ms)).await;
}

/// Sends the call and waits for the head of its response, as long as that takes: a server that
/// answers with JSON sends it at the end of the call.
async fn send(
    session: &Session,
    call: &Call,
    message: Bytes,
    mut given_up: Pin<&mut impl Future<Output = ()>>,
) -> Option<Response<Body>> {
    let calls = &session.calls;
    let limit = Duration::from_millis(session.origin.limits.upstream.connect_max_ms);
    let mut sending = Box::pin(session.post(message, &call.departure));
    let mut connecting = Box::pin(sleep(limit));
    let mut told = false;
    let sent = loop {
        tokio::select! {
            biased;
            () = call.departure.left(), if !told => {
                calls.sent(call.id).await;
                told = true;
            }
            sent = &mut sending => break sent,
            () = &mut given_up => {
                if call.departure.revoke() {
                    calls.not_sent(call.id, NotSentReason::Unreachable).await;
                } else {
                    calls.sent(call.id).await;
                    calls.lost(call.id, LostReason::Cancelled).await;
                }
                return None;
            }
            () = &mut connecting, if !told => {
                if call.departure.revoke() {
                    session.suspect();
                    calls.not_sent(call.id, NotSentReason::Unreachable).await;
                    return None;
                }
            }
        }
    };
    match sent {
        Ok(response) => {
            call.departure.answer();
            // The head may have come before the loop saw the request leave.
            calls.sent(call.id).await;
            return Some(response);
        }
        Err(Fault::Redirected { status, what }) => {
            tracing::warn!(upstream = %session.origin.name, "the server {what}");
            let answer = answer::refusal(call.id, status, &HeaderMap::new(), Some(&what));
            let reason = NotSentReason::Refused { status, answer, challenge: None };
            calls.not_sent(call.id, reason).await;
        }
        Err(Fault::Credential(error)) => {
            tracing::warn!(upstream = %session.origin.name, "a call was not sent: {error}");
            calls.not_sent(call.id, NotSentReason::Unreachable).await;
        }
        Err(error) => {
            tracing::info!(upstream = %session.origin.name, %error, "a call was not answered");
            session.suspect();
            if call.departure.revoke() {
                calls.not_sent(call.id, NotSentReason::Unreachable).await;
            } else {
                calls.lost(call.id, LostReason::ConnectionLost).await;
            }
        }
    }
    None
}
