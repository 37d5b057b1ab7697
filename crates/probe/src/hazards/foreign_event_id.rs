//! A session resumes with an event id of another session.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct ForeignEventId;

#[async_trait]
impl Hazard for ForeignEventId {
    fn about(&self) -> About {
        About {
            id: "foreign-event-id",
            title: "another session's event id",
            done: "cuts a call of one session, and in another session sends GET with the first \
                one's event id",
            why: "Whoever guesses or finds an event id reads another client's results.",
            fix: "Look event ids up only within the session (and the principal) that they were \
                made for",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.resumable() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let session = bench.session().await?;
        let other = bench.session().await?;
        let call = Call::new(&subject.tool);
        let before = bench.cut(&session, subject, &call, 2).await?;
        let stranger = bench.resume(&other, subject, &call, &cursor(&before)?).await?;
        let leaked = stranger
            .messages()
            .filter(|message| {
                message["params"]["progressToken"] == call.token
                    || (message["id"] == call.id && message.get("result").is_some())
            })
            .count();
        if leaked > 0 {
            return Ok(Seen::violation("RES-6", format!("{leaked} messages of the other session")));
        }
        Ok(Seen::safe(format!("nothing of the other session: {}", stranger.ending())))
    }
}
