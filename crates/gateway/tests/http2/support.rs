//! A client of HTTP/2, and a gateway that speaks it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::request;
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use rejoin_core::limits::Limits;
use rejoin_core::settings::Settings;
use rejoin_gateway::gateway::Gateway;
use rejoin_gateway::listen::ListenConfig;
use rejoin_testkit::call::Call;
use rejoin_testkit::check::{Owed, complete};
use rejoin_testkit::deadline::{WAIT, until, within};
use rejoin_testkit::failure::Failure;
use rejoin_testkit::raw::{Event, Item, SseParser};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::serving::{serve, serve_by, value};
use crate::tool::Tool;

/// A running gateway.
pub(crate) struct Bench {
    pub(crate) gateway: Gateway,
    pub(crate) tool: Tool,
    pub(crate) address: SocketAddr,
    pub(crate) serving: JoinHandle<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Bench {
    /// With HTTP/2 switched on.
    pub(crate) async fn start() -> Result<Self, Failure> {
        Self::start_with(true, |_| {}).await
    }

    pub(crate) async fn start_with(
        http2: bool,
        set: impl FnOnce(&mut Limits),
    ) -> Result<Self, Failure> {
        let mut settings = Settings::default();
        set(&mut settings.limits);
        let tool = Tool::default();
        let upstream = Arc::new(tool.clone());
        let (gateway, address, serving) = if http2 {
            let config = ListenConfig { limits: settings.limits.clone(), http2 };
            serve_by(config, upstream, settings).await?
        } else {
            serve(upstream, settings).await?
        };
        Ok(Self { gateway, tool, address, serving })
    }

    /// Waits until a metric, by its name with labels, has this value.
    pub(crate) async fn metric(&self, name: &str, wanted: f64) -> Result<(), Failure> {
        until(&format!("{name} {wanted}"), WAIT, async || {
            let request = Request::get("/metrics").body(())?;
            let page = self.gateway.admin(request).await.into_body().collect().await?.to_bytes();
            let page = String::from_utf8(page.to_vec())?;
            Ok((value(&page, name) == Some(wanted)).then_some(()))
        })
        .await
    }

    /// Waits until so many call streams are known to have lost their connections.
    pub(crate) async fn owed(&self, streams: f64) -> Result<(), Failure> {
        self.metric("rejoin_streams{state=\"owed\"}", streams).await
    }
}

/// A connection, and the session that it is used for.
pub(crate) struct Client {
    pub(crate) requests: SendRequest<Bytes>,
    pub(crate) pings: PingPong,
    /// Ends with the connection.
    pub(crate) connection: JoinHandle<Result<(), h2::Error>>,
    authority: String,
    session: String,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        Self::connect_as(address, &Builder::new()).await
    }

    pub(crate) async fn connect_as(
        address: SocketAddr,
        settings: &Builder,
    ) -> Result<Self, Failure> {
        let socket = TcpStream::connect(address).await?;
        let (requests, mut connection) = settings.handshake(socket).await?;
        let pings = connection.ping_pong().ok_or_else(|| Failure::new("taken"))?;
        let connection = tokio::spawn(connection);
        let (authority, session) = (address.to_string(), String::new());
        Ok(Self { requests, pings, connection, authority, session })
    }

    /// Connects, and opens a session.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let mut client = Self::connect(address).await?;
        client.initialize().await?;
        Ok(client)
    }

    pub(crate) async fn initialize(&mut self) -> Result<(), Failure> {
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }});
        let answer = self.post(&initialize).await?;
        assert_eq!(answer.status, 200);
        let id = answer.headers.get("mcp-session-id").ok_or_else(|| Failure::new("no session"))?;
        self.session = id.to_str()?.to_owned();
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&initialized).await?.status, 202);
        Ok(())
    }

    /// The same session on a connection of its own.
    pub(crate) async fn again(&self, address: SocketAddr) -> Result<Self, Failure> {
        let mut other = Self::connect(address).await?;
        other.session.clone_from(&self.session);
        Ok(other)
    }

    /// Names its session in a request of another kind.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    pub(crate) fn request(&self, method: &str) -> request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}/mcp", self.authority))
            .header("content-type", "application/json");
        let accept = if method == "GET" { "" } else { "application/json, " };
        let request = request.header("accept", format!("{accept}text/event-stream"));
        if self.session.is_empty() {
            return request;
        }
        request.header("mcp-session-id", &self.session)
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<()>,
        body: Option<String>,
    ) -> Result<Answer, Failure> {
        self.requests = within("room for a stream", WAIT, self.requests.clone().ready()).await??;
        let (response, mut sending) = self.requests.send_request(request, body.is_none())?;
        if let Some(body) = body {
            sending.send_data(body.into(), true)?;
        }
        let (head, body) = within("the head of an answer", WAIT, response).await??.into_parts();
        let (status, headers) = (head.status.as_u16(), head.headers);
        Ok(Answer { status, headers, body, sending, parser: SseParser::default(), events: vec![] })
    }

    pub(crate) async fn post(&mut self, message: &Value) -> Result<Answer, Failure> {
        let request = self.request("POST").body(())?;
        self.send(request, Some(message.to_string())).await
    }

    pub(crate) async fn call(&mut self, call: &Call) -> Result<Answer, Failure> {
        self.post(&call.message()).await
    }

    pub(crate) async fn get(&mut self, cursor: Option<&str>) -> Result<Answer, Failure> {
        let mut request = self.request("GET");
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        self.send(request.body(())?, None).await
    }

    /// Whatever the server has sent before it saw this has arrived.
    pub(crate) async fn ping(&mut self) -> Result<(), Failure> {
        within("a pong", WAIT, self.pings.ping(Ping::opaque())).await??;
        Ok(())
    }
}

/// An answer, as far as it was read.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: RecvStream,
    sending: SendStream<Bytes>,
    parser: SseParser,
    pub(crate) events: Vec<Event>,
}

impl Answer {
    /// The next bytes; `None` at the clean end.
    pub(crate) async fn data(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some(data) = within("data", WAIT, self.body.data()).await? else { return Ok(None) };
        let data = data?;
        self.body.flow_control().release_capacity(data.len())?;
        Ok(Some(data))
    }

    /// Reads more of an event stream; false at its clean end.
    async fn more(&mut self) -> Result<bool, Failure> {
        let Some(data) = self.data().await? else { return Ok(false) };
        for item in self.parser.push(&data, Instant::now())? {
            if let Item::Event(event) = item {
                self.events.push(event);
            }
        }
        Ok(true)
    }

    /// Reads at least so many messages, counted from the first; gives the id of the last of them.
    pub(crate) async fn messages(&mut self, count: usize) -> Result<String, Failure> {
        loop {
            let mut messages = self.events.iter().filter(|event| !event.is_empty());
            if let Some(last) = messages.nth(count - 1) {
                return last.id.clone().ok_or_else(|| Failure::new("a message has no id"));
            }
            if !self.more().await? {
                return Err(Failure::new("the stream ended early"));
            }
        }
    }

    /// Reads to the clean end.
    pub(crate) async fn rest(&mut self) -> Result<(), Failure> {
        while self.more().await? {}
        Ok(())
    }

    /// Reads to the clean end; what came must be the whole rest of a call, from progress number
    /// `first` on to `last`.
    pub(crate) async fn complete(
        &mut self,
        call: &Call,
        first: u64,
        last: u64,
    ) -> Result<Value, Failure> {
        assert_eq!(self.status, 200);
        self.rest().await?;
        let progress_token = &call.progress_token;
        Ok(complete(&self.events, &Owed { progress_token, id: call.id, first, last })?)
    }

    /// The whole body as JSON.
    pub(crate) async fn json(&mut self) -> Result<Value, Failure> {
        let mut body = Vec::new();
        while let Some(data) = self.data().await? {
            body.extend_from_slice(&data);
        }
        Ok(serde_json::from_slice(&body)?)
    }

    /// Leaves this stream alone, with a reset.
    pub(crate) fn reset(mut self) {
        self.sending.send_reset(Reason::CANCEL);
    }
}
