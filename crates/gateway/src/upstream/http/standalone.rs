//! The standalone stream: opened after `notifications/initialized` and kept open (spec GET-1).
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Response, StatusCode};
use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::cursor::Cursor;
use super::pump::{End, Pump};
use super::reply::Form;
use super::session::{Gate, Session};
use super::wire::Fault;
use crate::passthrough::UpstreamBody as Body;

/// Answers that are neither a stream nor a reason to wait, after which the server has none.
const REFUSALS_MAX: u32 = 3;
/// A connection that lasted so long was a good one, though it brought nothing.
const GOOD: Duration = Duration::from_secs(5);

/// What an answer to the GET means.
enum Answer {
    Stream(Body),
    /// There is no such stream (spec GET-3).
    None,
    /// The server does not want it; maybe because of the cursor.
    Refused,
    /// Not now.
    Again,
}

/// Keeps the stream open as long as the session lives. Ends early if the server has none. `cursor`:
/// where an earlier process was.
pub(super) async fn run(session: Arc<Session>, cursor: Option<Cursor>) {
    let _ = session.gate.subscribe().wait_for(|gate| *gate == Gate::Behind).await;
    session.client_known().await;
    let limits = &session.origin.limits.upstream;
    let mut backoff = Backoff::new(limits.retry_ms, limits.backoff_max_ms);
    let mut pump = Pump::standalone(&session).from(cursor);
    let mut refusals = 0;
    loop {
        let resumed = pump.cursor.is_some();
        let cursor = pump.cursor.as_ref().map(|cursor| &cursor.id);
        match read(&session, session.get(cursor).await) {
            Answer::Stream(body) => {
                refusals = 0;
                let opened = Instant::now();
                session.listens.store(true, Ordering::Relaxed);
                let end = pump.run(body, resumed).await;
                session.listens.store(false, Ordering::Relaxed);
                if end == End::Broken {
                    session.suspect();
                }
                if pump.progressed || opened.elapsed() >= GOOD {
                    backoff.reset();
                }
            }
            Answer::None => return,
            Answer::Refused => {
                refusals += 1;
                pump.cursor = None;
            }
            Answer::Again => {}
        }
        if refusals >= REFUSALS_MAX {
            let upstream = &*session.origin.name;
            return tracing::info!(upstream, "the server gives no standalone stream");
        }
        let wait = match pump.retry {
            Some(asked) if backoff.attempts() == 0 => {
                let _own = backoff.next();
                asked
            }
            asked => backoff.next().max(asked.unwrap_or_default()),
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = session.revival.notified() => {}
        }
    }
}

fn read(session: &Session, response: Result<Response<Body>, Fault>) -> Answer {
    let response = match response {
        Ok(response) => response,
        Err(Fault::Redirected { what, .. }) => {
            tracing::warn!(upstream = %session.origin.name, "the server {what}");
            return Answer::None;
        }
        Err(_) => {
            session.suspect();
            return Answer::Again;
        }
    };
    let (head, body) = response.into_parts();
    match head.status {
        StatusCode::OK if Form::of(&head.headers) == Form::Stream => Answer::Stream(body),
        StatusCode::METHOD_NOT_ALLOWED => Answer::None,
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => {
            // The session is gone, or there is no GET at this URL: the check will tell.
            session.suspect();
            Answer::Refused
        }
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::CONFLICT
        | StatusCode::TOO_MANY_REQUESTS => Answer::Again,
        status if status.is_server_error() => {
            session.suspect();
            Answer::Again
        }
        _ => Answer::Refused,
    }
}
