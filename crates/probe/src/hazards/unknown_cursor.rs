//! A stream is resumed with an event id of the right form that was never made.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::session::Session;
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct UnknownCursor;

#[async_trait]
impl Hazard for UnknownCursor {
    fn about(&self) -> About {
        About {
            id: "unknown-cursor",
            title: "an event id that the server never made",
            done: "sends GET with an event id of the session whose last characters are changed",
            why: "An empty or a silent 200 is taken for a stream with nothing to say: a client \
                waits, or polls, for ever.",
            fix: "Answer a cursor you do not know with an error status (not 404, which ends the \
                session)",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.resumable() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let session = bench.session().await?;
        let call = Call::new(&subject.tool);
        let mut exchange = session.post(&call.message).await?;
        let whole = Reading::of(&mut exchange, Until::response(&call.id)).await?;
        let mut unknown = cursor(&whole)?;
        for _ in 0..4 {
            unknown.pop();
        }
        unknown.push_str("9973");
        judge(&session, &unknown).await
    }
}

/// What a GET with a cursor is answered that belongs to no stream.
pub(super) async fn judge(session: &Session, cursor: &str) -> Result<Seen, Trouble> {
    let (status, reading) = session.answer(&session.get_request(Some(cursor))).await?;
    let messages = reading.messages().count();
    Ok(match (status, messages, reading.end) {
        (404, ..) => Seen::hazard("404, which tells a client that its session is gone"),
        (400.., ..) => Seen::safe(format!("refused with {status}")),
        (_, 1.., _) => Seen::hazard(format!("{messages} messages for a cursor of no stream")),
        (_, 0, None) => Seen::hazard(format!("{status}, and nothing on a stream that stays open")),
        (_, 0, Some(_)) => Seen::hazard(format!("{status} and an empty stream")),
    })
}
