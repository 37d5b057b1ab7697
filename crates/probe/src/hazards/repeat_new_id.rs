//! A call is sent again with a new id while it runs, as MCP clients do it.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::repeat::Repeat;
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct RepeatNewId;

#[async_trait]
impl Hazard for RepeatNewId {
    fn about(&self) -> About {
        About {
            id: "repeat-in-flight-new-id",
            title: "the same call again, new id, while it runs",
            done: "calls the tool, reads two events, resets the connection, and POSTs the call \
                again with a new JSON-RPC id",
            why: "A client that only lost its connection makes the tool run twice; every status \
                is 200.",
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
