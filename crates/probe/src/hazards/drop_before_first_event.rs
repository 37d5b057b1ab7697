//! The connection is lost before the client processed one byte; it has no cursor.

use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::limits::{COMEBACK_MS, ms};
use crate::reading::{Reading, Until};
use crate::repeat::Repeat;
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct DropBeforeFirstEvent;

#[async_trait]
impl Hazard for DropBeforeFirstEvent {
    fn about(&self) -> About {
        About {
            id: "drop-before-first-event",
            title: "a reset before anything was read, then the call again",
            done: "POSTs a call, waits until the server has answered something, reads none of it, \
                resets, and POSTs the call again with a new id",
            why: "Without a cursor a client can only repeat the call or give it up, and the \
                server cannot see which it was.",
            fix: "Recognise the call itself, by a token or by method and arguments, and answer \
                the repeat with a cursor or with the record",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.lasting() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let session = bench.session().await?;
        let (counted, first) = (bench.count().await?, Call::new(&subject.tool));
        let exchange = session.post(&first.message).await?;
        // A server that is silent until its tool reports something has the call by then too.
        exchange.readable(ms(subject.duration_ms / 3)).await;
        exchange.reset();
        tokio::time::sleep(ms(COMEBACK_MS)).await;
        let second = Call::new(&subject.tool);
        let mut exchange = session.post(&second.message).await?;
        let answer = Reading::of(&mut exchange, Until::end_of(subject, &second)).await?;
        let counted = counted.zip(bench.count().await?);
        let repeat = Repeat {
            subject,
            first: &first,
            second: &second,
            before: &Reading::default(),
            answer: &answer,
            resumed: None,
            counted,
        };
        Ok(repeat.seen())
    }
}
