//! A call is sent again byte for byte after it ended, while its answer was never read.

use async_trait::async_trait;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::repeat::{Again, REPEAT_FIX};
use crate::session::Trouble;

pub(super) struct RepeatSameIdAfterEnd;

#[async_trait]
impl Hazard for RepeatSameIdAfterEnd {
    fn about(&self) -> About {
        About {
            id: "repeat-after-end-same-id",
            title: "the same call again, same id, after its unseen end",
            done: "calls the tool, reads two events, resets the connection, lets the call end, \
                POSTs the very same body again, and then resumes the first stream",
            why: "The tool runs again, and two answers stand under one id: a client that resumes \
                gets the events of both.",
            fix: REPEAT_FIX,
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        Again::SameBodyAfterEnd.play(bench).await
    }
}
