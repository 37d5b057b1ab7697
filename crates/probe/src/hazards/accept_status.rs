//! What a server answers to a client that can read none of its answers.

use async_trait::async_trait;
use serde_json::json;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;
use crate::session::request;

pub(super) struct AcceptStatus;

#[async_trait]
impl Hazard for AcceptStatus {
    fn about(&self) -> About {
        About {
            id: "accept-status",
            title: "an Accept that fits no answer",
            done: "sends ping with `Accept: text/plain`",
            why: "A client that cannot read the answer is better told than answered.",
            fix: "Answer an Accept without application/json and text/event-stream with 406 or 400",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let session = bench.session().await?;
        let ping = request("accept-ping", "ping", &json!({}));
        let http = session.post_request(&ping).header("Accept", "text/plain");
        let status = session.answer(&http).await?.0;
        Ok(match status {
            400..500 => Seen::safe(format!("refused with {status}")),
            _ => Seen::hazard(format!("status {status}")),
        })
    }
}
