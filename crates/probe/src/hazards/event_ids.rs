//! Event ids of one session must differ on all of its streams.

use async_trait::async_trait;
use std::collections::HashSet;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct EventIds;

#[async_trait]
impl Hazard for EventIds {
    fn about(&self) -> About {
        About {
            id: "event-ids",
            title: "event ids that are not unique",
            done: "reads three calls of one session, two of them at once, and compares all event \
                ids",
            why: "A cursor that stands on two streams resumes the wrong one.",
            fix: "Make event ids from the session's own counter, or from stream and number",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = &bench.plan.subject;
        if !subject.ids {
            return Ok(Seen::not_applicable("its events have no ids"));
        }
        let session = bench.session().await?;
        let calls = [Call::new(&subject.tool), Call::new(&subject.tool), Call::new(&subject.tool)];
        let mut first = session.post(&calls[0].message).await?;
        let mut second = session.post(&calls[1].message).await?;
        let (first, second) = tokio::join!(
            Reading::of(&mut first, Until::end_of(subject, &calls[0])),
            Reading::of(&mut second, Until::end_of(subject, &calls[1])),
        );
        let mut third = session.post(&calls[2].message).await?;
        let third = Reading::of(&mut third, Until::end_of(subject, &calls[2])).await?;
        let (first, second) = (first?, second?);
        let ids: Vec<&str> = [&first, &second, &third]
            .into_iter()
            .flat_map(|reading| &reading.heard)
            .filter_map(|heard| heard.id.as_deref())
            .collect();
        let distinct: HashSet<&str> = ids.iter().copied().collect();
        if distinct.len() < ids.len() {
            let text =
                format!("{} of {} event ids came twice", ids.len() - distinct.len(), ids.len());
            return Ok(Seen::violation("RES-2", text));
        }
        Ok(Seen::safe(format!("{} event ids, all different", ids.len())))
    }
}
