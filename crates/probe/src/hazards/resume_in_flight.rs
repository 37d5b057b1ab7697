//! A stream is resumed while its call runs.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::limits::TRIALS;
use crate::session::Trouble;
use crate::subject::Call;
use crate::tail::Tail;

pub(super) struct ResumeInFlight;

#[async_trait]
impl Hazard for ResumeInFlight {
    fn about(&self) -> About {
        About {
            id: "resume-in-flight",
            title: "resuming while the call runs",
            done: "calls the tool, reads two events, resets the connection, and resumes the stream \
                with GET and Last-Event-ID at once; three times",
            why: "What was produced between the reset and the GET is lost, comes twice, or the \
                answer never comes.",
            fix: "Keep each stream's events in a log by session and stream, replay from the \
                cursor, then go on live from the same log without a gap",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.resumable() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let mut tails = Vec::new();
        for _ in 0..TRIALS {
            // Of its own: in one session the next call would be a repeat of this one.
            let session = bench.session().await?;
            let call = Call::new(&subject.tool);
            let before = bench.cut(&session, subject, &call, 2).await?;
            let after = bench.resume(&session, subject, &call, &cursor(&before)?).await?;
            tails.push(Tail::of(subject, &call, &before, &[&after]));
        }
        Ok(Tail::worst(&tails))
    }
}
