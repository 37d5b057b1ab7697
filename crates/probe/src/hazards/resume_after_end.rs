//! A stream is resumed after its call ended.

use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;

pub(super) struct ResumeAfterEnd;

#[async_trait]
impl Hazard for ResumeAfterEnd {
    fn about(&self) -> About {
        About {
            id: "resume-after-end",
            title: "resuming after the call ended",
            done: "calls the tool, reads two events, resets the connection, lets the call end, and \
                resumes the stream",
            why: "The answer is made and thrown away: the client polls an empty stream, or \
                repeats the call.",
            fix: "Keep a stream's events after its response was made, until the client has shown \
                that it has them, or for a stated time",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.resumable() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        Ok(bench.resumed_alone(subject, true).await?.seen())
    }
}
