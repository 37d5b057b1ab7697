//! A notification is accepted with 202 and no body.

use async_trait::async_trait;
use serde_json::json;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;

pub(super) struct NotificationStatus;

#[async_trait]
impl Hazard for NotificationStatus {
    fn about(&self) -> About {
        About {
            id: "notification-status",
            title: "the answer to a notification",
            done: "POSTs a notification (notifications/cancelled for a request that never was)",
            why: "A client that waits for the body of a notification's answer hangs.",
            fix: "Answer an accepted notification with 202 and no body",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let session = bench.session().await?;
        let message = json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": { "requestId": "never-sent", "reason": "probe" },
        });
        let (status, reading) = session.answer(&session.post_request(&message)).await?;
        let body = reading.heard.len();
        Ok(match (status, body) {
            (202, 0) => Seen::safe("202 without a body"),
            (202, _) => Seen::violation("POST-4", "202 with a body"),
            (200..300, _) => Seen::violation("POST-4", format!("status {status}, not 202")),
            _ => Seen::unclear(format!("not accepted: status {status}")),
        })
    }
}
