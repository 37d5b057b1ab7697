//! A stream is resumed while its tool sends as fast as it can.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::limits::TRIALS;
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::Call;
use crate::tail::Tail;

pub(super) struct ResumeFast;

#[async_trait]
impl Hazard for ResumeFast {
    fn about(&self) -> About {
        About {
            id: "resume-fast-producer",
            title: "resuming while events come fast",
            done: "calls the tool with --burst-args, reads five events, resets the connection, and \
                resumes the stream at once; three times",
            why: "Ids made from a clock, and logs with a small cap, shuffle or lose what is made \
                within one millisecond.",
            fix: "Number a stream's events in the order in which they were made; never sort them \
                by time, and keep all that is owed",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.bursting() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let mut tails = Vec::new();
        for _ in 0..TRIALS {
            // Of its own: in one session the next call would be a repeat of this one.
            let session = bench.session().await?;
            let call = Call::new(&subject.tool);
            let mut exchange = session.post(&call.message).await?;
            let before = Reading::of(&mut exchange, Until::steps(subject, 5)).await?;
            exchange.reset();
            let after = bench.resume(&session, subject, &call, &cursor(&before)?).await?;
            tails.push(Tail::of(subject, &call, &before, &[&after]));
        }
        Ok(Tail::worst(&tails))
    }
}
