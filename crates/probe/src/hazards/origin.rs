//! DNS rebinding: a page in a browser on the same machine speaks to the server.

use async_trait::async_trait;
use serde_json::json;

use crate::bench::Bench;
use crate::hazard::{About, Hazard, Seen};
use crate::session::Trouble;
use crate::session::request;

pub(super) struct Origin;

#[async_trait]
impl Hazard for Origin {
    fn about(&self) -> About {
        About {
            id: "origin",
            title: "a page of another origin, another name for this host",
            done: "sends ping with `Origin: http://rebinding.example`, and on loopback with `Host: \
                rebinding.example`",
            why: "Any page that is open in a browser can use the tools of a server on its \
                machine.",
            fix: "Let in only origins (403 for others) and, on loopback, host names that you know",
        }
    }

    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble> {
        let session = bench.session().await?;
        let ping = request("origin-ping", "ping", &json!({}));
        let http = session.post_request(&ping).header("Origin", "http://rebinding.example");
        let origin = session.answer(&http).await?.0;
        let mut seen = format!("foreign Origin: {origin}");
        let mut host = 403;
        if bench.target.dialer.is_loopback() {
            let http = session.post_request(&ping).header("Host", "rebinding.example");
            host = session.answer(&http).await?.0;
            seen.push_str(&format!("; foreign Host on loopback: {host}"));
        }
        Ok(match (origin, host) {
            (403, 400..500) => Seen::safe(seen),
            (400..500, 400..500) => Seen::violation("SEC-2", seen),
            (400..500, _) => Seen::hazard(seen),
            _ => Seen::violation("SEC-1", seen),
        })
    }
}
