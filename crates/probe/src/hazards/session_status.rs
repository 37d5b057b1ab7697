//! What a server answers for a session that ended, that never was, or that is not named.

use async_trait::async_trait;
use serde_json::json;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;
use crate::session::request;

pub(super) struct SessionStatus;

#[async_trait]
impl Hazard for SessionStatus {
    fn about(&self) -> About {
        About {
            id: "session-status",
            title: "statuses for lost and missing sessions",
            done: "sends ping in a session that was ended with DELETE, in one that never was, and \
                without a session id",
            why: "404 is what makes a client initialize again; with any other status it is stuck, \
                or starts anew for nothing.",
            fix: "404 for a session that is gone or unknown, 400 where the id is missing",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let session = bench.session().await?;
        if session.id.is_empty() {
            return Ok(Seen::not_applicable("the server has no session ids"));
        }
        let ping = request("status-ping", "ping", &json!({}));
        let deleted = session.answer(&session.http("DELETE")).await?.0;
        let gone = session.answer(&session.post_request(&ping)).await?.0;
        let unknown = session.post_request(&ping).header("Mcp-Session-Id", &unknown(&session.id));
        let unknown = session.answer(&unknown).await?.0;
        let missing = session.post_request(&ping).without("Mcp-Session-Id");
        let missing = session.answer(&missing).await?.0;
        let seen = format!(
            "DELETE {deleted}, then {gone}; unknown session {unknown}; no session id {missing}"
        );
        let is_ended = (200..300).contains(&deleted);
        Ok(match (gone, unknown, missing) {
            (404, 404, 400) => Seen::safe(seen),
            (gone, ..) if is_ended && gone != 404 => Seen::violation("SES-7", seen),
            (_, 404, 400) => Seen::safe(seen),
            _ => Seen::hazard(seen),
        })
    }
}

/// A session id of the same form that was never given.
fn unknown(id: &str) -> String {
    let turned = |c: char| match c {
        '0'..='8' | 'a'..='e' => char::from_u32(c as u32 + 1).unwrap_or(c),
        '9' => '0',
        'f' => 'a',
        other => other,
    };
    id.chars().map(turned).collect()
}
