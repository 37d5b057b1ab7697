//! Two sessions use the same JSON-RPC id at the same time, as every client that counts from 0 does.

use async_trait::async_trait;

use crate::bench::{Bench, cursor};
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::Call;
use crate::tail::Tail;

pub(super) struct SameIdElsewhere;

#[async_trait]
impl Hazard for SameIdElsewhere {
    fn about(&self) -> About {
        About {
            id: "same-id-in-another-session",
            title: "the same JSON-RPC id in another session",
            done: "calls the tool in two sessions with the same id, cuts the first, and \
                resumes it after its end",
            why: "A log keyed by the request's id alone mixes the streams of two clients.",
            fix: "Key streams and logs by session and stream, not by the JSON-RPC id",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.resumable() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let session = bench.session().await?;
        let other = bench.session().await?;
        let mut call = Call::new(&subject.tool);
        let mut theirs = call.clone();
        call.set_token("probe-first");
        theirs.set_token("probe-second");
        let mut their_exchange = other.post(&theirs.message).await?;
        let before = bench.cut(&session, subject, &call, 2).await?;
        bench.let_end(subject).await;
        let after = bench.resume(&session, subject, &call, &cursor(&before)?).await?;
        let undisturbed = Reading::of(&mut their_exchange, Until::end_of(subject, &theirs)).await?;
        let strangers = undisturbed.foreign(&theirs);
        if strangers > 0 || undisturbed.responses(&theirs.id).count() > 1 {
            let text = "the other session's stream carried messages of the first";
            return Ok(Seen::violation("RES-6", text));
        }
        if undisturbed.response(&theirs.id).is_none() {
            return Ok(Seen::hazard("the other session's call got no response"));
        }
        let tail = Tail::of(subject, &call, &before, &[&after]);
        if tail.foreign == 0 && !tail.faults().is_empty() {
            // What is lost without another session as well is no fault of there being one.
            let faults = bench.resumed_alone(subject, true).await?.faults();
            if !faults.is_empty() {
                return Ok(Seen::not_applicable(format!(
                    "without another session not all of it comes either, see resume-after-end: \
                     {faults}"
                )));
            }
        }
        Ok(tail.seen())
    }
}
