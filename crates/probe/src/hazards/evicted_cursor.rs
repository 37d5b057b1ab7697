//! A stream of many events is resumed from one of its first.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::Call;
use crate::tail::Tail;

pub(super) struct EvictedCursor;

#[async_trait]
impl Hazard for EvictedCursor {
    fn about(&self) -> About {
        About {
            id: "evicted-cursor",
            title: "resuming from an event that is long past",
            done: "calls the tool with --burst-args, resets the connection after two events, lets \
                the call end, and resumes from the second",
            why: "A log that dropped the cursor and says 200 with nothing leaves a client waiting \
                for an answer that was made.",
            fix: "Keep the response whatever else goes; where events had to go say so, and never \
                answer a cursor you lost with an empty 200",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.bursting() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let session = bench.session().await?;
        let call = Call::new(&subject.tool);
        let mut exchange = session.post(&call.message).await?;
        let before = Reading::of(&mut exchange, Until::steps(subject, 2)).await?;
        exchange.reset();
        bench.let_end(subject).await;
        let after = bench.resume(&session, subject, &call, &cursor(&before)?).await?;
        Ok(Tail::of(subject, &call, &before, &[&after]).seen())
    }
}
