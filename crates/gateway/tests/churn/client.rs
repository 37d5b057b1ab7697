//! Clients that call, drop, resume, repeat, delete, or are never seen again.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use rejoin_gateway::gateway::{AnswerBody, Gateway};
use rejoin_testkit::call::Call;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Item, SseParser};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::server::PROGRESS;

/// Principals that share all sessions.
const PRINCIPALS: u64 = 50;
/// Time after which a client is back whose connection broke.
const SOON: Duration = Duration::from_secs(3);
/// Time in which a call ends, and an answer that nobody came for counts as given up.
const LATER: Duration = Duration::from_secs(30);
/// Time after which an idle session has lost its server.
const MUCH_LATER: Duration = Duration::from_secs(45 * 60);

/// What becomes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Three calls, then a DELETE.
    Deleted,
    /// Three calls, then silence.
    Idle,
    /// A call that is cut and resumed while it runs.
    Resumed,
    /// A call that is cut, and resumed when its session was idle for long.
    ResumedLate,
    /// A call with a token that is cut and sent again, while it runs and when it has ended.
    Repeated,
    /// A call that is cut, and nobody comes back for it.
    Abandoned,
    /// An open standalone stream that is cut.
    Listening,
    /// Nothing after `initialize`.
    Unused,
}

impl Fate {
    const ALL: [Self; 8] = [
        Self::Deleted,
        Self::Idle,
        Self::Resumed,
        Self::ResumedLate,
        Self::Repeated,
        Self::Abandoned,
        Self::Listening,
        Self::Unused,
    ];

    pub(crate) fn of(number: u64) -> Self {
        Self::ALL[(number % 8) as usize]
    }

    /// Calls that run in such a session.
    pub(crate) fn executions(self) -> u64 {
        match self {
            Self::Deleted | Self::Idle => 3,
            Self::Resumed | Self::ResumedLate | Self::Repeated | Self::Abandoned => 1,
            Self::Listening | Self::Unused => 0,
        }
    }
}

/// Lives through one session.
pub(crate) async fn live(gateway: Gateway, number: u64) -> TestResult {
    let client = Client::open(gateway, number).await?;
    let call = Call::new(1, "work", json!({"n": number}));
    match Fate::of(number) {
        Fate::Deleted => {
            client.calls(&call).await?;
            let deleted = client.ask("DELETE", None, &Value::Null).await?;
            expect(deleted.status() == 204, || format!("DELETE: {}", deleted.status()))
        }
        Fate::Idle => client.calls(&call).await,
        Fate::Resumed => client.cut_and_resume(&call, SOON).await,
        Fate::ResumedLate => client.cut_and_resume(&call, MUCH_LATER).await,
        Fate::Repeated => {
            let call = call.with_dedup_token(&format!("token {number}"));
            client.call(&call).await?.cut().await?;
            let refused = client.ask("POST", None, &call.again(2).message()).await?;
            expect(refused.status() == 409, || format!("a repeat: {}", refused.status()))?;
            sleep(LATER).await;
            let recorded = client.call(&call.again(3)).await?.rest().await?;
            let is_recorded = recorded.last().is_some_and(|last| last["result"].is_object());
            expect(is_recorded, || format!("a record: {recorded:?}"))
        }
        Fate::Abandoned => client.call(&call).await?.cut().await.map(drop),
        Fate::Listening => {
            let stream = client.ask("GET", None, &Value::Null).await?;
            expect(stream.status() == 200, || format!("GET: {}", stream.status()))?;
            sleep(LATER).await;
            Ok(())
        }
        Fate::Unused => Ok(()),
    }
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> TestResult {
    if holds { Ok(()) } else { Err(Failure::new(what())) }
}

/// Every message of a call, once and in order.
fn check_whole(messages: &[Value]) -> TestResult {
    let progress = messages.iter().filter_map(|message| message["params"]["progress"].as_u64());
    let has_result = messages.last().is_some_and(|last| last["result"].is_object());
    let is_whole = progress.eq(1..=PROGRESS) && messages.len() as u64 == PROGRESS + 1;
    expect(is_whole && has_result, || format!("a part is missing: {messages:?}"))
}

struct Client {
    gateway: Gateway,
    principal: u64,
    session: String,
}

impl Client {
    async fn open(gateway: Gateway, number: u64) -> Result<Self, Failure> {
        let mut client = Self { gateway, principal: number % PRINCIPALS, session: String::new() };
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "churn", "version": "1"},
        }});
        let answer = client.ask("POST", None, &initialize).await?;
        let session = answer.headers().get("mcp-session-id");
        let session = session.ok_or_else(|| Failure::new("no session"))?;
        client.session = session.to_str()?.to_owned();
        if Fate::of(number) != Fate::Unused {
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            let taken = client.ask("POST", None, &initialized).await?;
            expect(taken.status() == 202, || format!("a notification: {}", taken.status()))?;
        }
        Ok(client)
    }

    async fn ask(
        &self,
        method: &str,
        cursor: Option<&str>,
        body: &Value,
    ) -> Result<Response<AnswerBody>, Failure> {
        let accept = if method == "GET" { "" } else { "application/json, " };
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header(HOST, "localhost")
            .header(AUTHORIZATION, format!("Bearer {}", self.principal))
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

    async fn call(&self, call: &Call) -> Result<Reading, Failure> {
        Reading::of(self.ask("POST", None, &call.message()).await?)
    }

    /// Three calls, with a pause before each.
    async fn calls(&self, call: &Call) -> TestResult {
        for id in 1..=3 {
            sleep(LATER).await;
            check_whole(&self.call(&call.again(id)).await?.rest().await?)?;
        }
        Ok(())
    }

    async fn cut_and_resume(&self, call: &Call, after: Duration) -> TestResult {
        let (mut messages, cursor) = self.call(call).await?.cut().await?;
        sleep(after).await;
        let rest = Reading::of(self.ask("GET", Some(&cursor), &Value::Null).await?)?;
        messages.extend(rest.rest().await?);
        check_whole(&messages)
    }
}

/// The body of an answer, as far as it was read.
struct Reading {
    body: AnswerBody,
    parser: SseParser,
    messages: Vec<Value>,
    cursor: Option<String>,
}

impl Reading {
    fn of(answer: Response<AnswerBody>) -> Result<Self, Failure> {
        expect(answer.status() == 200, || format!("no stream: {}", answer.status()))?;
        let (parser, messages, body) = (SseParser::default(), Vec::new(), answer.into_body());
        Ok(Self { body, parser, messages, cursor: None })
    }

    /// Reads one frame; false at the end.
    async fn more(&mut self) -> Result<bool, Failure> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        let frame = frame.map_err(|_| Failure::new("the stream broke"))?;
        let data = frame.into_data().unwrap_or_default();
        for item in self.parser.push(&data, std::time::Instant::now())? {
            if let Item::Event(event) = item {
                self.messages.extend(event.message());
                self.cursor = event.id.or_else(|| self.cursor.take());
            }
        }
        Ok(true)
    }

    async fn rest(mut self) -> Result<Vec<Value>, Failure> {
        while self.more().await? {}
        Ok(self.messages)
    }

    /// Reads until the first progress, then leaves: what was read, and the cursor.
    async fn cut(mut self) -> Result<(Vec<Value>, String), Failure> {
        while self.messages.is_empty() {
            expect(self.more().await?, || "the stream ended".to_owned())?;
        }
        let cursor = self.cursor.ok_or_else(|| Failure::new("there is no cursor"))?;
        Ok((self.messages, cursor))
    }
}
