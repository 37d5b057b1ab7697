//! Messages that have no answer of their own: notifications, in order, and responses.
use std::sync::Arc;

use bytes::Bytes;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::answer::REFUSAL_MAX;
use super::backoff::Backoff;
use super::calls::{Call, Phase};
use super::departure::Departure;
use super::pump::Pump;
use super::reply::{Form, collect};
use super::session::{Gate, Posted, Session};
use crate::passthrough::UpstreamBody as Body;
use crate::upstream::{CallId, CloseReason};
use http::Response;

/// Attempts to send one message of which no byte left.
const ATTEMPTS_MAX: u32 = 3;
const BACKOFF_MS: u64 = 200;
const BACKOFF_MAX_MS: u64 = 2_000;

/// A notification that waits for its turn.
pub(super) struct Note {
    pub(super) message: Bytes,
    /// It is `notifications/initialized`, which opens the gate.
    pub(super) opens: bool,
}

/// Sends notifications one after the other. Ends when there will be no more.
pub(super) async fn run(session: Arc<Session>, mut notes: mpsc::Receiver<Note>) {
    while let Some(note) = notes.recv().await {
        send(&session, note.message).await;
        if note.opens {
            session.gate.send_replace(Gate::Behind);
        }
    }
}

/// Sends one message, again only if no byte of it left.
pub(super) async fn send(session: &Session, message: Bytes) {
    let log = |what: &str, why: &str| session.origin.warn(what, why);
    let mut backoff = Backoff::new(BACKOFF_MS, BACKOFF_MAX_MS);
    loop {
        match session.post_soon(message.clone()).await {
            Posted::Answered(response) => return read(session, response).await,
            Posted::NotSent(what) if backoff.attempts() + 1 >= ATTEMPTS_MAX => {
                session.suspect();
                return log("a notification or response was dropped", &what);
            }
            Posted::NotSent(_) => {
                session.suspect();
                sleep(backoff.next()).await;
            }
            Posted::Failed(what) => {
                session.suspect();
                return log("a notification or response may be lost", &what);
            }
            Posted::Refused(what) => {
                return log("a notification or response was refused", &what);
            }
            Posted::Slow => {
                return log("a notification or response is not answered", "it takes too long");
            }
        }
    }
}

/// Any success will do (spec POST-4: 202 without a body); servers send all kinds of bodies.
async fn read(session: &Session, response: Response<Body>) {
    let (head, body) = response.into_parts();
    if session.is_gone(head.status) {
        return session.finish(CloseReason::SessionGone);
    }
    let form = Form::of(&head.headers);
    if head.status.is_success() && form == Form::Stream {
        return pump(session, body).await;
    }
    // Read, so that the connection can be used again.
    let bytes_max = session.origin.limits.upstream.refusal_bytes_max;
    let _in_time = timeout(REFUSAL_MAX, collect(body, bytes_max)).await.is_ok();
    if head.status.is_success() {
        return;
    }
    let status = head.status;
    session.origin.warn("a notification or response was refused", status.as_str());
    if matches!(status.as_u16(), 400 | 409 | 502 | 503) {
        session.suspect();
    }
}

/// Reads a stream that nobody waits for, until it is silent.
pub(super) async fn pump(session: &Session, body: Body) {
    let (_, phase) = watch::channel(Phase::Settled);
    // Of no number that is ever minted; it only says how long to read.
    let nobody = Call { id: CallId(u64::MAX), departure: Departure::new(), phase };
    Pump::of_nobody(session, &nobody).run(body, false).await;
}
