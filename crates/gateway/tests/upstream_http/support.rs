//! Scripted servers over HTTP, and the upstreams that lead to them.
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::id::CallId;
use rejoin_core::limits::Limits;
use rejoin_gateway::upstream::conformance::{INITIALIZE, Session, response, write};
use rejoin_gateway::upstream::http::{HttpOptions, HttpUpstream};
use rejoin_gateway::upstream::{
    Command, Event, OpenError, Opened, Opening, Resumed, Resumption, Upstream,
};
use serde_json::{Value, json};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream_http_server.py");

/// A server process, ended with it.
pub(crate) struct Server {
    process: Child,
    /// Scheme, host and port.
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut command = Process::new("python3");
        command.arg(SERVER).args(flags).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3 runs");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("the server says where it is");
        Self { process, url: line.trim().to_owned() }
    }

    pub(crate) fn port(&self) -> String {
        self.url.rsplit(':').next().expect("a port").to_owned()
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// An upstream with the server it leads to.
pub(crate) struct Served<U> {
    pub(crate) upstream: U,
    pub(crate) _server: Server,
}

#[async_trait]
impl<U: Upstream> Upstream for Served<U> {
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError> {
        self.upstream.open(opening).await
    }

    fn resume(&self, resumption: Resumption) -> Option<Resumed> {
        self.upstream.resume(resumption)
    }

    fn name(&self) -> &str {
        self.upstream.name()
    }
}

pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.upstream_queue_max = 64;
    let upstream = &mut limits.upstream;
    (upstream.unreachable_max_ms, upstream.retry_ms) = (1_500, 100);
    (upstream.resume_attempts_max, upstream.linger_ms) = (4, 300);
    upstream.resume_max_ms = 5_000;
    // An answer that a test waits for comes within this however busy the machine is.
    upstream.elsewhere_ms = 10_000;
    limits
}

/// Limits that are shorter than the real ones where a test waits for their end.
pub(crate) fn options() -> HttpOptions {
    HttpOptions::new(Arc::new(limits()))
}

pub(crate) fn at(url: &str, options: HttpOptions) -> Arc<dyn Upstream> {
    Arc::new(HttpUpstream::new(url, options).expect("a good URL"))
}

pub(crate) fn to(server: &Server) -> Arc<dyn Upstream> {
    at(&format!("{}/mcp", server.url), options())
}

/// An upstream whose server lives as long as it does.
pub(crate) fn served(flags: &[&str]) -> Arc<dyn Upstream> {
    let server = Server::start(flags);
    let upstream = HttpUpstream::new(&format!("{}/mcp", server.url), options()).expect("good");
    Arc::new(Served { upstream, _server: server })
}

pub(crate) async fn open_error(upstream: &Arc<dyn Upstream>) -> OpenError {
    match upstream.open(Bytes::from_static(INITIALIZE.as_bytes()).into()).await {
        Ok(_) => panic!("the session opened"),
        Err(error) => error,
    }
}

/// Sends `notifications/initialized` and waits for its echo, which comes on the standalone stream.
pub(crate) async fn initialized(session: &mut Session) {
    session.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert!(session.message().await.contains("test/received"));
}

/// A call that must come back.
pub(crate) async fn round_trip(session: &mut Session, call: u64) {
    session.script(call, [write(response(call, "{}"))]).await;
    assert_eq!(session.message().await, response(call, "{}"));
}

/// The requests that the server received: HTTP method, JSON-RPC method, headers.
pub(crate) async fn requests(session: &mut Session, call: u64) -> Vec<Value> {
    let message = json!({ "jsonrpc": "2.0", "id": call, "method": "test/stats" }).to_string();
    assert!(session.command(Command::Call { call: CallId(call), message: message.into() }).await);
    loop {
        let text = session.message().await;
        let value: Value = serde_json::from_str(&text).expect("messages are JSON");
        if value["id"] == call {
            return value["result"]["requests"].as_array().expect("a list").clone();
        }
    }
}

/// How many of the requests are scripts.
pub(crate) fn scripts(requests: &[Value]) -> usize {
    requests.iter().filter(|request| request["method"] == "test/script").count()
}

/// The next event that is not the outcome of a call.
pub(crate) async fn event(session: &mut Session) -> Event {
    loop {
        match session.next().await {
            Some(Event::Sent { .. } | Event::Cursor { .. }) => {}
            Some(event) => return event,
            None => panic!("the channel ended"),
        }
    }
}

/// The next message must be an error answer of the call; its text.
pub(crate) async fn error_of(session: &mut Session, call: u64) -> String {
    let error: Value = serde_json::from_str(&session.message().await).expect("messages are JSON");
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(call), &json!(-32603)), "{error}");
    error["error"]["message"].as_str().expect("a text").to_owned()
}
