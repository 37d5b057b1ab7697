//! A call is sent again with a new id while it runs, as MCP clients do it.

use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::repeat::{Again, REPEAT_FIX};
use crate::session::Trouble;

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
            fix: REPEAT_FIX,
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        Again::NewId.play(bench).await
    }
}
