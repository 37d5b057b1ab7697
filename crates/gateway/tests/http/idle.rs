//! A proxy on the way that ends connections on which nothing moves, in virtual time: how long a
//! stream is silent at most, and what is lost if it is ended all the same.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use rejoin_core::settings::Settings;
use rejoin_gateway::config::GatewayConfig;
use rejoin_gateway::gateway::{AnswerBody, Gateway};
use rejoin_gateway::upstream::Channel;
use rejoin_store::{MemoryLimits, MemoryStore};
use rejoin_testkit::call::Call;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Event, Item, SseParser};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::living::{Face, Living};
use crate::support::initialize;

/// After so much silence, in seconds, something between client and server ends a connection:
/// nginx and load balancers at 30 and 60, content networks at 100 and 125, HTTP libraries at 300.
const IDLE_CUTS: [u64; 5] = [30, 60, 100, 125, 300];
/// How long a stream is watched: the longest cut twice, and more.
const WATCHED: Duration = Duration::from_secs(700);

struct Rig {
    gateway: Gateway,
    server: Arc<Living>,
    session: String,
}

impl Rig {
    async fn start(keep_alive_ms: u64) -> Result<Self, Failure> {
        let mut settings = Settings::default();
        settings.limits.keep_alive_ms = keep_alive_ms;
        let store = Arc::new(MemoryStore::new(MemoryLimits::from(&settings.limits))?);
        let server = Arc::new(Living::default());
        let upstream = Arc::new(Face(Arc::clone(&server)));
        let gateway = Gateway::new(GatewayConfig::new(Arc::new(settings), upstream, store))?;
        let mut rig = Self { gateway, server, session: String::new() };
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
        self.ask_after(None, method, body).await
    }

    async fn ask_after(
        &self,
        cursor: Option<&str>,
        method: &str,
        body: Value,
    ) -> Result<Response<AnswerBody>, Failure> {
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
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        Ok(self.gateway.handle(request.body(Full::new(body))?).await)
    }

    async fn post(&self, body: Value) -> Result<Stream, Failure> {
        Ok(Stream::of(self.ask("POST", body).await?))
    }

    async fn get(&self, cursor: Option<&str>) -> Result<Stream, Failure> {
        Ok(Stream::of(self.ask_after(cursor, "GET", Value::Null).await?))
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

/// A stream, as far as it was read.
struct Stream {
    body: AnswerBody,
    parser: SseParser,
    events: Vec<Event>,
}

impl Stream {
    fn of(answer: Response<AnswerBody>) -> Self {
        assert_eq!(answer.status(), 200);
        Self { body: answer.into_body(), parser: SseParser::default(), events: Vec::new() }
    }

    /// Reads one frame; false at the end.
    async fn more(&mut self) -> Result<bool, Failure> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        let data = frame.unwrap().into_data().unwrap_or_default();
        for item in self.parser.push(&data, std::time::Instant::now())? {
            if let Item::Event(event) = item {
                self.events.push(event);
            }
        }
        Ok(true)
    }

    /// Reads until the path cuts the stream; gives the cursor that its client has then.
    async fn cut_after(mut self, time: Duration) -> Result<String, Failure> {
        let reading = async {
            while self.more().await? {}
            Err(Failure::new("the stream ended"))
        };
        if let Ok(ended) = timeout(time, reading).await {
            return ended;
        }
        let last = self.events.into_iter().rev().find_map(|event| event.id);
        last.ok_or_else(|| Failure::new("there is no cursor"))
    }

    /// Reads until a message.
    async fn message(&mut self) -> Result<Value, Failure> {
        loop {
            if let Some(message) = self.events.iter().find_map(Event::message) {
                return Ok(message);
            }
            if !self.more().await? {
                return Err(Failure::new("the stream ended"));
            }
        }
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

/// Whether the client comes back at once, or only after its stream counts as abandoned.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_cut_all_the_same_goes_on_and_is_resumed_and_runs_once() -> TestResult {
    for cut in IDLE_CUTS.map(Duration::from_secs) {
        for away in [Duration::ZERO, cut] {
            let rig = Rig::start(Settings::default().limits.keep_alive_ms).await?;
            let call = Call::new(1, "slow", json!({"for": "long"}));
            let cursor = rig.post(call.message()).await?.cut_after(cut).await?;
            sleep(away).await;
            let repeat = rig.ask("POST", call.again(2).message()).await?;
            assert_eq!(repeat.status(), 409, "{cut:?} {away:?}");
            let refusal = repeat.into_body().collect().await.unwrap().to_bytes();
            let refusal: Value = serde_json::from_slice(&refusal)?;
            assert_eq!(refusal["error"]["data"]["reason"], "request_in_flight", "{refusal}");
            // It is cut once more, while nothing has happened.
            let cursor = rig.get(Some(&cursor)).await?.cut_after(cut).await?;
            rig.server.go_on.notify_one();
            for _ in 0..2 {
                let answer = rig.get(Some(&cursor)).await?.message().await?;
                assert_eq!((&answer["id"], &answer["result"]), (&json!(1), &json!({})));
            }
            assert_eq!(rig.server.runs("slow"), 1, "{cut:?} {away:?}");
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_a_cut_standalone_stream_misses_comes_on_the_next_one_once() -> TestResult {
    const URI: &str = "test://a";
    for cut in IDLE_CUTS.map(Duration::from_secs) {
        let rig = Rig::start(Settings::default().limits.keep_alive_ms).await?;
        let subscribe = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe",
            "params": {"uri": URI}});
        rig.ask("POST", subscribe).await?.into_body().collect().await.unwrap();
        let cursor = rig.get(None).await?.cut_after(cut).await?;
        assert!(rig.server.update(URI, Channel::Standalone).await);
        sleep(cut).await;
        let mut next = rig.get(Some(&cursor)).await?;
        assert_eq!(next.message().await?["method"], "notifications/resources/updated");
        let cursor = next.cut_after(cut).await?;
        let late = rig.get(Some(&cursor)).await?;
        assert_eq!(late.cut_after(cut).await?, cursor, "nothing new");
    }
    Ok(())
}
