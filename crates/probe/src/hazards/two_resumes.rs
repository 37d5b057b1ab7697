//! Two connections resume the same stream at the same time.

use async_trait::async_trait;

use crate::bench::{Bench, cursor, read_resumed};
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;
use crate::subject::Call;
use crate::tail::Tail;

pub(super) struct TwoResumes;

#[async_trait]
impl Hazard for TwoResumes {
    fn about(&self) -> About {
        About {
            id: "two-resumes",
            title: "two resumes of one stream at once",
            done: "cuts a call and sends two GETs with the same cursor, one right after the other",
            why: "A client whose first GET hangs sends a second: the events may go half to each, \
                or to the dead one.",
            fix: "Let the newest connection have the stream, and end the older one properly",
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
        let from = cursor(&before)?;
        let mut one = session.get(Some(&from)).await?;
        let mut two = session.get(Some(&from)).await?;
        let (one, two) = tokio::join!(
            read_resumed(&mut one, subject, &call),
            read_resumed(&mut two, subject, &call),
        );
        let (one, two) = (one?, two?);
        if one.response(&call.id).is_some() && two.response(&call.id).is_some() {
            return Ok(Seen::violation("MULTI-2", "the response came on both connections"));
        }
        let whole = |reading| Tail::of(subject, &call, &before, &[reading]);
        let (first, second) = (whole(&one), whole(&two));
        if first.faults().is_empty() || second.faults().is_empty() {
            return Ok(Seen::safe("one of the two got all of it"));
        }
        let both = Tail::of(subject, &call, &before, &[&one, &two]);
        if both.lost == 0 && both.responses == 1 && both.foreign == 0 {
            return Ok(Seen::safe("the two together got all of it"));
        }
        // What one resume alone does not give is no fault of there being two.
        let faults = bench.resumed_alone(subject, false).await?.faults();
        if !faults.is_empty() {
            return Ok(Seen::not_applicable(format!(
                "one resume alone does not give all of it either, see resume-in-flight: {faults}"
            )));
        }
        Ok(both.seen())
    }
}
