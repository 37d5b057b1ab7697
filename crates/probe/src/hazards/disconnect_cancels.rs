//! The connection of a call is lost: the call must go on.

use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct DisconnectCancels;

#[async_trait]
impl Hazard for DisconnectCancels {
    fn about(&self) -> About {
        About {
            id: "disconnect-is-no-cancel",
            title: "a lost connection is no cancel",
            done: "reads three events of a call, resets the connection, and resumes from the first \
                event, at once and again after its end",
            why: "A call that stops half-way when a train enters a tunnel has done half of its \
                work, and its answer never comes.",
            fix: "Stop a call for notifications/cancelled only; let it run when its connection is \
                gone",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = match bench.resumable() {
            Ok(subject) => subject,
            Err(seen) => return Ok(seen),
        };
        let session = bench.session().await?;
        let call = Call::new(&subject.tool);
        let before = bench.cut(&session, subject, &call, 3).await?;
        let steps = before.steps();
        let Some(early) = steps.first().and_then(|step| step.id.clone()) else {
            return Ok(Seen::unclear("the first event has no id"));
        };
        let live = bench.resume(&session, subject, &call, &early).await?;
        bench.let_end(subject).await;
        let late = bench.resume(&session, subject, &call, &early).await?;
        let finished = [&live, &late].into_iter().any(|reading| {
            let has_result = reading.responses(&call.id).any(|one| one.get("result").is_some());
            let last = subject.steps.last();
            has_result || reading.steps().iter().any(|step| Some(&step.progress) == last)
        });
        let replayed = [&live, &late].into_iter().any(|reading| !reading.steps().is_empty());
        let error = live.error().or_else(|| late.error());
        Ok(match (finished, error, replayed) {
            (true, ..) => Seen::safe("the call went on to its end"),
            (false, Some(error), _) => Seen::hazard(format!("the call ended with error {error}")),
            (false, None, true) => {
                let text = "what came before the reset is kept, and nothing ever came after it";
                Seen::hazard(text)
            }
            (false, None, false) => Seen::unclear("nothing of the stream can be resumed"),
        })
    }
}
