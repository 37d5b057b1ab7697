//! The stream of a call, resumed while that can bring its answer (spec RES-4 to RES-7).
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};

use super::answer::{elsewhere, unusable};
use super::backoff::Backoff;
use super::calls::{Call, Phase};
use super::cursor::Cursor;
use super::pump::{End, Pump};
use super::reply::Form;
use super::session::Session;
use crate::passthrough::UpstreamBody as Body;
use crate::upstream::LostReason;

/// First wait between two attempts.
const BACKOFF_MS: u64 = 200;
/// Longest wait between two attempts, where the server says nothing.
const BACKOFF_MAX_MS: u64 = 5_000;

/// A resumed stream that is silent for so long is asked for once more: some servers lose an event
/// where the replay meets what comes live, and bring it to whoever asks again. Twice that for the
/// second time.
const PATIENCE: Duration = Duration::from_secs(2);
/// Times that a silent stream is asked for again without anything new. Then it is only slow.
const SILENCES_MAX: u32 = 2;

/// What an attempt gave.
enum Attempt {
    Stream(Body),
    /// Not now.
    Again,
    /// Not with this credential.
    Denied,
    /// Never.
    Refused,
}

/// Reads the stream of a call and resumes it until the call has ended or nothing helps.
pub(super) async fn follow(session: &Session, call: &Call, stream: Body) {
    let mut pump = Pump::of_call(session, call);
    let end = pump.run(stream, false).await;
    finish(session, call, pump, end).await;
}

/// Reads on the stream of a call that an earlier process sent.
pub(super) async fn pick_up(session: Arc<Session>, call: Call, cursor: Option<Cursor>) {
    tokio::select! {
        () = session.client_known() => {}
        () = call.settled() => return,
    }
    let pump = Pump::of_call(&session, &call).from(cursor);
    finish(&session, &call, pump, End::Broken).await;
}

/// Resumes a stream whose connection ended, and tells the end of its call.
async fn finish(session: &Session, call: &Call, mut pump: Pump<'_>, end: End) {
    let what = resume(session, call, &mut pump, end).await;
    elsewhere(session, call).await;
    if call.phase() == Phase::Settled {
        return;
    }
    if let Some(why) = pump.unusable {
        return unusable(session, call.id, &format!("sent a message, but {why}")).await;
    }
    session.calls.lost(call.id, LostReason::StreamEnded { what }).await;
}

/// Resumes the stream as long as that makes sense. Returns why it does not any more.
async fn resume(session: &Session, call: &Call, pump: &mut Pump<'_>, mut end: End) -> &'static str {
    let limits = &session.origin.limits.upstream;
    let mut backoff = Backoff::new(BACKOFF_MS, BACKOFF_MAX_MS);
    let mut since = Instant::now();
    let mut silences = 0;
    // A server that is away, or has no time, is waited for; one that answers with nothing is not.
    let mut fruitless = 0;
    let mut is_away = false;
    loop {
        if end == End::Broken {
            session.suspect();
        }
        if call.phase() == Phase::Settled {
            return "it was answered";
        }
        if end == End::LeftAlone || call.phase() == Phase::Cancelled {
            return "the call was cancelled";
        }
        if pump.unusable.is_some() {
            return "a message cannot be used";
        }
        let Some(cursor) = pump.cursor.clone() else { return "its events have no ids" };
        let is_silent = end == End::Silent;
        silences = if is_silent && !pump.progressed { silences + 1 } else { 0 };
        if pump.progressed || is_silent {
            // A connection that was held open was a good one.
            pump.progressed = false;
            backoff.reset();
            since = Instant::now();
            fruitless = 0;
        }
        let spent_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        if fruitless >= limits.resume_attempts_max || spent_ms >= limits.resume_max_ms {
            return "resuming it brought nothing new";
        }
        // What the server asks for is meant for connections that it ends itself.
        let asked = pump.retry.filter(|_| !is_silent).unwrap_or_default();
        // The waits that the server asks for do not count, while it answers.
        since += if is_away { Duration::ZERO } else { asked };
        let own = own_wait(&mut backoff, end);
        tokio::select! {
            () = sleep(own.max(asked)) => {}
            () = call.settled() => return "it was answered",
        }
        let refused = session.client_headers();
        let limit = Duration::from_millis(limits.head_max_ms);
        is_away = true;
        end = match timeout(limit, session.get(Some(&cursor.id))).await {
            Ok(Ok(response)) => match attempt(session, response) {
                Attempt::Stream(stream) => {
                    pump.patience = patience(silences);
                    fruitless += 1;
                    is_away = false;
                    pump.run(stream, true).await
                }
                Attempt::Again => End::Broken,
                Attempt::Denied => {
                    let left_ms = limits.resume_max_ms.saturating_sub(spent_ms);
                    let limit = Duration::from_millis(left_ms);
                    if timeout(limit, renewed(session, call, &refused)).await.is_err() {
                        return "the server refused to resume it";
                    }
                    End::Clean
                }
                Attempt::Refused => return "the server refused to resume it",
            },
            Ok(Err(_)) | Err(_) => End::Broken,
        };
    }
}

/// Waits until the client has come with other headers than those that were refused (a token that
/// expired meanwhile is refreshed), or until nobody waits for the call.
async fn renewed(session: &Session, call: &Call, refused: &HeaderMap) {
    let (mut client, mut phase) = (session.client.subscribe(), call.phase.clone());
    while session.client_headers() == *refused && *phase.borrow() == Phase::Running {
        tokio::select! {
            _ = client.changed() => {}
            // A sender that is gone was dropped when the call was settled.
            changed = phase.changed() => if changed.is_err() { return },
        }
    }
}

/// How long a connection may be silent after so many that were.
fn patience(silences: u32) -> Option<Duration> {
    (silences < SILENCES_MAX).then(|| PATIENCE * (silences + 1))
}

/// What we wait by ourselves: nothing before the first attempt after a break.
fn own_wait(backoff: &mut Backoff, end: End) -> Duration {
    let is_first = backoff.attempts() == 0 && end == End::Broken;
    let wait = backoff.next();
    if is_first { Duration::ZERO } else { wait }
}

fn attempt(session: &Session, response: Response<Body>) -> Attempt {
    let (head, body) = response.into_parts();
    match head.status {
        StatusCode::OK if Form::of(&head.headers) == Form::Stream => Attempt::Stream(body),
        // The old connection still looks open to the server, or it has no time.
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => Attempt::Again,
        status if status.is_server_error() => Attempt::Again,
        // Only its client has another.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            if !session.client_headers().is_empty() =>
        {
            Attempt::Denied
        }
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => {
            session.suspect();
            Attempt::Refused
        }
        _ => Attempt::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_stream_is_asked_for_again_twice_and_then_waited_for() {
        assert_eq!(patience(0), Some(PATIENCE));
        assert_eq!(patience(1), Some(PATIENCE * 2));
        assert_eq!((patience(2), patience(3)), (None, None));
    }
}
