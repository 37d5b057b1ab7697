//! A call is sent again after it ended, while its answer was never read.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::repeat::Repeat;
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct RepeatAfterEnd;

#[async_trait]
impl Hazard for RepeatAfterEnd {
    fn about(&self) -> About {
        About {
            id: "repeat-after-end-unseen",
            title: "the same call again after its unseen end",
            done: "calls the tool, reads two events, resets the connection, lets the call end, and \
                POSTs it again with a new id",
            why: "The first answer is there, nobody has it, and the tool runs again instead.",
            fix: "Key what runs by the call, not by the connection: refuse the repeat with a \
                cursor to resume from, or give it the recorded answer; Rejoin in \
                front does both",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.lasting() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let session = bench.session().await?;
        let (counted, first) = (bench.count().await?, Call::new(&subject.tool));
        let before = bench.cut(&session, subject, &first, 2).await?;
        bench.let_end(subject).await;
        let second = Call::new(&subject.tool);
        let mut exchange = session.post(&second.message).await?;
        let answer = Reading::of(&mut exchange, Until::end_of(subject, &second)).await?;
        let resumed = match cursor(&before) {
            Ok(cursor) => Some(bench.resume(&session, subject, &first, &cursor).await?),
            Err(_) => None,
        };
        let counted = counted.zip(bench.count().await?);
        let (resumed, answer, before) = (resumed.as_ref(), &answer, &before);
        let repeat =
            Repeat { subject, first: &first, second: &second, before, answer, resumed, counted };
        Ok(repeat.seen())
    }
}
