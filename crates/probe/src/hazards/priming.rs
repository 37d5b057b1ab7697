//! With 2025-11-25 a stream begins with an id; with older revisions it must not.

use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::reading::{Reading, Until};
use crate::session::REVISION;
use crate::session::Trouble;
use crate::subject::Call;

pub(super) struct Priming;

#[async_trait]
impl Hazard for Priming {
    fn about(&self) -> About {
        About {
            id: "priming",
            title: "a cursor before the first event",
            done: "opens a session of 2025-11-25 and one of 2025-06-18, and looks at the first \
                event of a call in each",
            why: "Without it, a connection lost before the first event leaves no cursor; before \
                2025-11-25 clients choke on empty data.",
            fix: "From 2025-11-25 on begin every stream with an event that has an id and empty \
                data; never before",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let subject = &bench.plan.subject;
        if !subject.ids {
            return Ok(Seen::not_applicable("its events have no ids: streams cannot be resumed"));
        }
        let mut seen = Vec::new();
        for revision in [REVISION, "2025-06-18"] {
            let session = bench.session_of(revision).await?;
            if session.revision != revision {
                seen.push(format!("{revision}: the server has {} instead", session.revision));
                continue;
            }
            let call = Call::new(&subject.tool);
            let mut exchange = session.post(&call.message).await?;
            let reading = Reading::of(&mut exchange, Until::end_of(subject, &call)).await?;
            let first = reading.heard.first();
            let primed = first.is_some_and(|heard| heard.id.is_some() && heard.message.is_none());
            if primed != (revision == REVISION) {
                return Ok(Seen::hazard(match primed {
                    true => format!("an event with empty data in revision {revision}"),
                    false => format!("no priming event in revision {revision} (SSE-1, a SHOULD)"),
                }));
            }
            seen.push(format!("{revision}: {}", if primed { "primed" } else { "not primed" }));
        }
        Ok(Seen::safe(seen.join("; ")))
    }
}
