//! A call is sent again byte for byte while it runs, as HTTP clients and proxies do it.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::repeat::Repeat;
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct RepeatSameId;

#[async_trait]
impl Hazard for RepeatSameId {
    fn about(&self) -> About {
        About {
            id: "repeat-in-flight-same-id",
            title: "the same call again, same id, while it runs",
            done: "calls the tool, reads two events, resets the connection, POSTs the very same \
                body again, and then resumes the first stream",
            why: "A tool with an effect has it twice, and of the two answers one is lost or \
                stands under the other's call.",
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
        let second = first.clone();
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
