//! What a server answers to a version that it cannot know.

use async_trait::async_trait;
use serde_json::json;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;
use crate::session::request;

pub(super) struct VersionStatus;

#[async_trait]
impl Hazard for VersionStatus {
    fn about(&self) -> About {
        About {
            id: "version-status",
            title: "a protocol version that does not exist",
            done: "sends ping with `Mcp-Protocol-Version: 1999-01-01`",
            why: "A server that guesses speaks another revision than its client.",
            fix: "Answer an invalid or unsupported version with 400",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let session = bench.session().await?;
        let ping = request("version-ping", "ping", &json!({}));
        let http = session.post_request(&ping).header("Mcp-Protocol-Version", "1999-01-01");
        let status = session.answer(&http).await?.0;
        Ok(match status {
            400 => Seen::safe("400"),
            _ => Seen::violation("VER-4", format!("status {status}, not 400")),
        })
    }
}
