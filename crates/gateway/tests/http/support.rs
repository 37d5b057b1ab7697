//! A gateway on real sockets, in front of a server that lives in the test.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use rejoin_core::limits::Limits;
use rejoin_core::settings::Settings;
use rejoin_gateway::gateway::Gateway;
use rejoin_gateway::listen::{self, ListenConfig};
use rejoin_gateway::upstream::{
    Channel, CloseReason, Command, Continuation, Event, OpenError, Opened, Opening, Resumed,
    Resumption, Upstream, UpstreamCursor,
};
use rejoin_store::{MemoryLimits, MemoryStore, Store};
use rejoin_testkit::failure::Failure;
use rejoin_testkit::raw::{Connection, Head, Request};
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

#[path = "../support/serve.rs"]
mod serving;

pub(crate) use serving::serve;
use serving::{CONNECTIONS_END, serve_from, value};

/// Headers of the client that the server is told.
static FORWARDED: [HeaderName; 2] = [AUTHORIZATION, HeaderName::from_static("x-tenant")];
/// Messages in one queue of the server.
const QUEUE: usize = 64;
/// What the server does with `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// Answers, with the revision it was asked for.
    Agrees,
    /// Answers with an error.
    Refuses,
    /// Has no child left to run it.
    IsFull,
    /// Ends before it answers.
    Exits,
    /// Does not answer.
    Hangs,
    /// Answers, and ends at once.
    Dies,
    /// Is behind a URL that asks for a credential, with this status.
    Challenges(u16),
    /// Is behind a URL where nobody listens.
    IsAway,
    /// Agrees, and its sessions can be resumed: every call that is picked up is answered then.
    Continues,
}

/// A server in this process: it notes what it is sent, and answers every call but `hang`.
pub(crate) struct FakeServer {
    greeting: Greeting,
    /// How many sessions were opened, or tried.
    pub(crate) opened: AtomicUsize,
    /// How many openings were given up by the gateway.
    pub(crate) abandoned: Arc<AtomicUsize>,
    /// How many sessions have ended.
    pub(crate) ended: Arc<AtomicUsize>,
    /// How many sessions were left to be resumed.
    pub(crate) left: Arc<AtomicUsize>,
    /// Calls that were picked up, by their cursors.
    pub(crate) picked_up: Mutex<Vec<UpstreamCursor>>,
    seen: Arc<Mutex<Vec<Value>>>,
    /// The headers that each opening, and each change in a session, came with.
    headers: Arc<Mutex<Vec<HeaderMap>>>,
}

/// Counts an opening that is dropped before it is done.
struct Abandoned(Arc<AtomicUsize>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl FakeServer {
    fn new(greeting: Greeting) -> Self {
        Self {
            greeting,
            opened: AtomicUsize::new(0),
            abandoned: Arc::default(),
            ended: Arc::default(),
            left: Arc::default(),
            picked_up: Mutex::default(),
            seen: Arc::default(),
            headers: Arc::default(),
        }
    }

    /// The messages it was sent, of all sessions, `initialize` included.
    pub(crate) fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap().clone()
    }

    /// Which values of a header it was told, of all sessions.
    pub(crate) fn told(&self, name: &str) -> Vec<Option<String>> {
        let value = |headers: &HeaderMap| Some(headers.get(name)?.to_str().ok()?.to_owned());
        self.headers.lock().unwrap().iter().map(value).collect()
    }

    /// How often a tool ran.
    pub(crate) fn runs(&self, tool: &str) -> usize {
        self.seen().iter().filter(|message| message["params"]["name"] == tool).count()
    }
}

impl FakeServer {
    /// Starts a session, which says these things first.
    fn converse(&self, first: Vec<Event>) -> Resumed {
        let (commands, commanded) = mpsc::channel(QUEUE);
        let (happened, events) = mpsc::channel(QUEUE);
        let (seen, ended) = (Arc::clone(&self.seen), Arc::clone(&self.ended));
        let (headers, left) = (Arc::clone(&self.headers), Arc::clone(&self.left));
        let greeting = self.greeting;
        tokio::spawn(async move {
            let mut reason = CloseReason::Ended;
            for event in first {
                let _driver_left = happened.send(event).await.is_err();
            }
            if greeting != Greeting::Dies {
                reason = converse(commanded, &happened, &seen, &headers, greeting).await;
            }
            left.fetch_add((reason == CloseReason::Left).into(), Ordering::SeqCst);
            let _driver_left = happened.send(Event::Closed { reason }).await.is_err();
            ended.fetch_add(1, Ordering::SeqCst);
        });
        Resumed { commands, events, pressure: None }
    }
}

#[async_trait]
impl Upstream for FakeServer {
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError> {
        let Opening { initialize, headers } = opening;
        self.headers.lock().unwrap().push(headers);
        self.opened.fetch_add(1, Ordering::SeqCst);
        let message: Value = serde_json::from_slice(&initialize).unwrap();
        self.seen.lock().unwrap().push(message.clone());
        let answer = match self.greeting {
            Greeting::Agrees | Greeting::Dies | Greeting::Continues => {
                json!({"jsonrpc": "2.0", "id": message["id"], "result": {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fake", "version": "1"},
                }})
            }
            Greeting::Refuses => json!({"jsonrpc": "2.0", "id": message["id"], "error": {
                "code": -32602, "message": "I speak another revision",
            }}),
            Greeting::IsFull => return Err(OpenError::TooManyChildren { children_max: 3 }),
            Greeting::Exits => {
                let status = CloseReason::Exited { code: 7 };
                return Err(OpenError::ExitedBeforeAnswer { upstream: "fake".into(), status });
            }
            Greeting::Challenges(status) => return Err(challenge(status)),
            Greeting::IsAway => {
                let what = "connection refused".to_owned();
                return Err(OpenError::Unreachable { upstream: "fake".into(), what });
            }
            Greeting::Hangs => {
                let _counted = Abandoned(Arc::clone(&self.abandoned));
                std::future::pending().await
            }
        };
        let Resumed { commands, events, pressure } = self.converse(Vec::new());
        let continues = self.greeting == Greeting::Continues;
        let continuation = continues.then(|| Continuation::new("fake"));
        Ok(Opened { answer: answer.to_string().into(), continuation, commands, events, pressure })
    }

    fn resume(&self, resumption: Resumption) -> Option<Resumed> {
        assert_eq!(resumption.continuation.expose(), "fake");
        let answer = |call| {
            let answer = json!({"jsonrpc": "2.0", "id": call, "result": {"picked": "up"}});
            let (channel, message) = (Channel::Call(call), answer.to_string().into());
            Event::Message { channel, message, cursor: None }
        };
        let (calls, cursors): (Vec<_>, Vec<_>) = resumption.calls.into_iter().unzip();
        self.picked_up.lock().unwrap().extend(cursors);
        Some(self.converse(calls.into_iter().map(answer).collect()))
    }

    fn name(&self) -> &str {
        "fake"
    }

    fn forwarded_headers(&self) -> &[HeaderName] {
        &FORWARDED
    }
}

fn challenge(status: u16) -> OpenError {
    let headers = [
        (WWW_AUTHENTICATE, "Bearer resource_metadata=\"https://tools.example/meta\""),
        (CONTENT_TYPE, "text/plain"),
    ];
    let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
    OpenError::Refused {
        upstream: "fake".into(),
        remedy: "check it",
        status: StatusCode::from_u16(status).unwrap(),
        headers: Box::new(headers.into_iter().collect()),
        body: "who are you?".into(),
    }
}

async fn converse(
    mut commanded: mpsc::Receiver<Command>,
    happened: &mpsc::Sender<Event>,
    seen: &Mutex<Vec<Value>>,
    headers: &Mutex<Vec<HeaderMap>>,
    greeting: Greeting,
) -> CloseReason {
    let continues = greeting == Greeting::Continues;
    while let Some(command) = commanded.recv().await {
        let (call, message) = match command {
            Command::Call { call, message } => (Some(call), message),
            Command::Cancel { message, .. } | Command::Send { message } => (None, message),
            Command::Headers(newer) => {
                headers.lock().unwrap().push(newer);
                continue;
            }
            Command::Leave if continues => return CloseReason::Left,
            Command::End | Command::Leave => break,
        };
        let message: Value = serde_json::from_slice(&message).unwrap();
        seen.lock().unwrap().push(message.clone());
        let Some(call) = call else { continue };
        let mut events = vec![Event::Sent { call }];
        if let Some(token) = message["params"]["_meta"].get("progressToken") {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": 1}});
            events.push(Event::Message {
                channel: if continues { Channel::Call(call) } else { Channel::Unknown },
                message: progress.to_string().into(),
                cursor: continues.then(|| "at 1".into()),
            });
        }
        if message["params"]["name"] != "hang" {
            let answer = json!({"jsonrpc": "2.0", "id": message["id"],
                "result": {"echo": message["params"]["arguments"]}});
            events.push(Event::Message {
                channel: Channel::Call(call),
                message: answer.to_string().into(),
                cursor: None,
            });
        }
        for event in events {
            if happened.send(event).await.is_err() {
                return CloseReason::Ended;
            }
        }
    }
    CloseReason::Ended
}

/// A running gateway.
pub(crate) struct Bench {
    pub(crate) gateway: Gateway,
    pub(crate) server: Arc<FakeServer>,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Bench {
    pub(crate) async fn start() -> Result<Self, Failure> {
        Self::start_with(Greeting::Agrees, |_| {}).await
    }

    pub(crate) async fn start_with(
        greeting: Greeting,
        set: impl FnOnce(&mut Limits),
    ) -> Result<Self, Failure> {
        let mut settings = Settings::default();
        set(&mut settings.limits);
        let store = Arc::new(MemoryStore::new(MemoryLimits::from(&settings.limits))?);
        Self::start_from(store, greeting, settings).await
    }

    /// With a log and settings of the test's choice.
    pub(crate) async fn start_from(
        store: Arc<dyn Store>,
        greeting: Greeting,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let limits = settings.limits.clone();
        let server = Arc::new(FakeServer::new(greeting));
        let upstream: Arc<FakeServer> = Arc::clone(&server);
        let config = ListenConfig::from(&limits);
        let (gateway, address, serving) = serve_from(store, config, upstream, settings).await?;
        let (listener, admin) = listen::bind("127.0.0.1:0".parse()?).await?;
        let operated = gateway.clone();
        let administering = tokio::spawn(async move {
            let admin = move |request| {
                let gateway = operated.clone();
                async move { gateway.admin(request).await }
            };
            let never = std::future::pending();
            listen::serve(listener, &limits, admin, never, CONNECTIONS_END).await;
        });
        Ok(Self { gateway, server, address, admin, tasks: vec![serving, administering] })
    }

    pub(crate) async fn session(&self) -> Result<Session, Failure> {
        Ok(Session::open(self.address).await?)
    }

    pub(crate) async fn session_as(&self, identity: Identity) -> Result<Session, Failure> {
        Ok(Session::open_as(self.address, identity).await?)
    }

    /// Sends a request on a connection of its own.
    pub(crate) async fn ask(&self, request: &Request) -> Result<Asked, Failure> {
        ask(self.address, request).await
    }

    /// A POST without session, as a good client sends it.
    pub(crate) fn post(&self, body: impl Into<Vec<u8>>) -> Request {
        Request::new("POST", "/mcp")
            .header("Host", &self.address.to_string())
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(body)
    }

    /// A request without body to the MCP address.
    pub(crate) fn bare(&self, method: &str) -> Request {
        Request::new(method, "/mcp")
            .header("Host", &self.address.to_string())
            .header("Accept", "text/event-stream")
    }

    /// The value of a metric, by its name with labels.
    pub(crate) async fn metric(&self, name: &str) -> Result<Option<f64>, Failure> {
        let request = Request::new("GET", "/metrics").header("Host", "localhost");
        let page = String::from_utf8(ask(self.admin, &request).await?.body)?;
        Ok(value(&page, name))
    }
}

/// An answer, whole.
#[derive(Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    /// The JSON body; `null` if it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Code and id of the JSON-RPC error in it.
    pub(crate) fn error(&self) -> (i64, Value) {
        let body = self.json();
        (body["error"]["code"].as_i64().unwrap_or_default(), body["id"].clone())
    }

    /// All that a client can tell apart, but the date.
    pub(crate) fn without_date(mut self) -> Self {
        self.head.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("date"));
        self
    }
}

/// Sends a request and reads the whole answer.
pub(crate) async fn ask(address: SocketAddr, request: &Request) -> Result<Asked, Failure> {
    let mut connection = Connection::open(address).await?;
    connection.request(request).await?;
    let head = connection.head().await?;
    let body = connection.plain_body().await?;
    Ok(Asked { head, body })
}

pub(crate) fn initialize(id: &Value, revision: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
        "protocolVersion": revision,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }})
    .to_string()
}

pub(crate) fn request(id: u64, method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method})
}
