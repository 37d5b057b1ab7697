//! A call is sent again byte for byte while it runs, as HTTP clients and proxies do it.

use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::repeat::{Again, REPEAT_FIX};
use crate::session::Trouble;

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
            fix: REPEAT_FIX,
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        Again::SameBody.play(bench).await
    }
}
