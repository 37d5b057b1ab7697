//! A call is sent again after it ended, while its answer was never read.

use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::repeat::{Again, REPEAT_FIX};
use crate::session::Trouble;

pub(super) struct RepeatAfterEnd;

#[async_trait]
impl Hazard for RepeatAfterEnd {
    fn about(&self) -> About {
        About {
            id: "repeat-after-end-unseen",
            title: "the same call again after its unseen end",
            done: "calls the tool, reads two events, resets the connection, lets the call end, and \
                POSTs it again with a new id",
            why: "The first answer is there, nobody has it, and the tool runs again instead.",
            fix: REPEAT_FIX,
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        Again::NewIdAfterEnd.play(bench).await
    }
}
