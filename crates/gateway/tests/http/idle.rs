//! A proxy on the way that ends connections on which nothing moves, in virtual time: how long a
//! stream is silent at most.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use rejoin_core::settings::Settings;
use rejoin_gateway::config::GatewayConfig;
use rejoin_gateway::gateway::{AnswerBody, Gateway};
use rejoin_store::{MemoryLimits, MemoryStore};
use rejoin_testkit::call::Call;
use rejoin_testkit::failure::{Failure, TestResult};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::living::Face;
use crate::support::initialize;

/// After so much silence, in seconds, something between client and server ends a connection:
/// nginx and load balancers at 30 and 60, content networks at 100 and 125, HTTP libraries at 300.
const IDLE_CUTS: [u64; 5] = [30, 60, 100, 125, 300];
/// How long a stream is watched: the longest cut twice, and more.
const WATCHED: Duration = Duration::from_secs(700);

struct Rig {
    gateway: Gateway,
    session: String,
}

impl Rig {
    async fn start(keep_alive_ms: u64) -> Result<Self, Failure> {
        let mut settings = Settings::default();
        settings.limits.keep_alive_ms = keep_alive_ms;
        let store = Arc::new(MemoryStore::new(MemoryLimits::from(&settings.limits))?);
        let upstream = Arc::new(Face::default());
        let gateway = Gateway::new(GatewayConfig::new(Arc::new(settings), upstream, store))?;
        let mut rig = Self { gateway, session: String::new() };
        let opening = initialize(&json!(0), "2025-11-25");
        let answer = rig.ask("POST", serde_json::from_str(&opening)?).await?;
        let id =
            answer.headers().get("mcp-session-id").ok_or_else(|| Failure::new("no session"))?;
        rig.session = id.to_str()?.to_owned();
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(rig.ask("POST", initialized).await?.status(), 202);
        Ok(rig)
    }

    async fn ask(&self, method: &str, body: Value) -> Result<Response<AnswerBody>, Failure> {
        let accept = if method == "GET" { "" } else { "application/json, " };
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, format!("{accept}text/event-stream"));
        if !self.session.is_empty() {
            request = request.header("mcp-session-id", &self.session);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        Ok(self.gateway.handle(request.body(Full::new(body))?).await)
    }

    /// The longest silence on a stream of the session while it is watched.
    async fn silence(&self, method: &str, body: Value) -> Result<Duration, Failure> {
        let answer = self.ask(method, body).await?;
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let (began, mut moved, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        while let Some(left) = WATCHED.checked_sub(began.elapsed()) {
            match timeout(left, body.frame()).await {
                Ok(Some(_)) => {}
                Ok(None) => return Err(Failure::new("the stream ended")),
                Err(_) => break,
            }
            longest = longest.max(moved.elapsed());
            moved = Instant::now();
        }
        Ok(longest.max(moved.elapsed()))
    }
}

/// Which idle cuts end the stream of a call that is silent, and the standalone stream.
async fn cut_by(keep_alive_ms: u64) -> Result<[Vec<u64>; 2], Failure> {
    let rig = Rig::start(keep_alive_ms).await?;
    let call = Call::new(1, "hang", json!({})).message();
    let mut cuts = [Vec::new(), Vec::new()];
    for (place, (method, body)) in [("POST", call), ("GET", Value::Null)].into_iter().enumerate() {
        let silence = rig.silence(method, body).await?;
        let shorter = |cut: &u64| Duration::from_secs(*cut) <= silence;
        cuts[place] = IDLE_CUTS.into_iter().filter(shorter).collect();
    }
    Ok(cuts)
}

#[tokio::test(start_paused = true)]
async fn no_usual_idle_cut_ends_a_silent_stream() -> TestResult {
    let set = Settings::default().limits.keep_alive_ms;
    assert!(cut_by(set).await?.iter().all(Vec::is_empty));
    // What would be cut if comments came once in 110 s.
    assert_eq!(cut_by(110_000).await?, [[30, 60, 100], [30, 60, 100]]);
    Ok(())
}
