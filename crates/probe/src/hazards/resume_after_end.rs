//! A stream is resumed after its call ended.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;
use crate::subject::Call;
use crate::tail::Tail;

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
        let session = bench.session().await?;
        let call = Call::new(&subject.tool);
        let before = bench.cut(&session, subject, &call, 2).await?;
        bench.let_end(subject).await;
        let after = bench.resume(&session, subject, &call, &cursor(&before)?).await?;
        Ok(Tail::of(subject, &call, &before, &[&after]).seen())
    }
}
