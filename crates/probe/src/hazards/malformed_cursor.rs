//! A stream is resumed with something that is no event id.

use super::unknown_cursor::judge;
use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;

pub(super) struct MalformedCursor;

#[async_trait]
impl Hazard for MalformedCursor {
    fn about(&self) -> About {
        About {
            id: "malformed-cursor",
            title: "an event id that is none",
            done: "sends GET with `Last-Event-ID: no event id`",
            why: "An empty or a silent 200 hides a client's mistake, and it waits, or polls, for \
                ever.",
            fix: "Answer what is no event id of yours with an error status (not 404, which ends \
                the session)",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        if !bench.plan.subject.ids {
            return Ok(Seen::not_applicable("its events have no ids: streams cannot be resumed"));
        }
        let session = bench.session().await?;
        judge(&session, "no event id").await
    }
}
