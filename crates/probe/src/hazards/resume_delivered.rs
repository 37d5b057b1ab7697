//! A stream is resumed after its last event.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct ResumeDelivered;

#[async_trait]
impl Hazard for ResumeDelivered {
    fn about(&self) -> About {
        About {
            id: "resume-delivered",
            title: "resuming when nothing is left",
            done: "reads a call to its end and resumes its stream from its last event",
            why: "What comes again is processed again, by a client that had it all.",
            fix: "Replay what follows the cursor, not the cursor's own event; answer a stream \
                that is over with an end or a refusal",
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
        let (status, reading) =
            session.answer(&session.get_request(Some(&cursor(&whole)?))).await?;
        let messages = reading.messages().filter(|message| message.get("error").is_none()).count();
        if status < 400 && messages > 0 {
            return Ok(Seen::hazard(format!("{messages} messages came again")));
        }
        if status == 404 {
            return Ok(Seen::hazard("404, which tells a client that its session is gone"));
        }
        Ok(Seen::safe(format!("nothing came again: {}", reading.ending())))
    }
}
