//! An application with the layer in it, and the usual steps of a client.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Request, Response, Version};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use rejoin_core::settings::Settings;
use rejoin_gateway::{LayerConfig, RejoinLayer, RejoinService, serve};
use rejoin_testkit::call::Call;
use rejoin_testkit::check::{Owed, complete};
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::Failure;
use rejoin_testkit::raw::{Connection, WireError};
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::Session;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::charges::Charges;

/// What is logged: every move of a stream, so that a test can wait for it.
const LOG: &str = "info,rejoin_gateway::telemetry=debug";

/// Who serves the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    Rejoin,
    Axum,
}

/// Both of them.
pub(crate) const LISTENERS: [Listener; 2] = [Listener::Rejoin, Listener::Axum];

/// What was logged in this thread, which is where a test and all its tasks run.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Takes what is logged in this thread until the guard is dropped. A test whose code logs
    /// without it can switch the same line of code off for all others.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let logging = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(LOG))
            .with_writer(log.clone())
            .with_ansi(false);
        let logging = tracing::subscriber::set_default(logging.finish());
        (log, logging)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// How many lines contain all of `texts`.
    pub(crate) fn count(&self, texts: &[&str]) -> usize {
        let text = self.text();
        text.lines().filter(|line| texts.iter().all(|part| line.contains(part))).count()
    }

    /// Waits until more than `before` lines contain all of `texts`.
    pub(crate) async fn more(&self, before: usize, texts: &[&str]) -> Result<(), WireError> {
        until(&format!("a line of the log with {texts:?}"), WAIT, async || {
            Ok((self.count(texts) > before).then_some(()))
        })
        .await
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// A running application.
pub(crate) struct Bench {
    pub(crate) address: SocketAddr,
    pub(crate) charges: Charges,
    /// rmcp's own sessions.
    pub(crate) sessions: Arc<LocalSessionManager>,
    pub(crate) service: RejoinService,
    pub(crate) log: Log,
    /// Tells the application to end.
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: JoinHandle<()>,
    _logging: DefaultGuard,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.serving.abort();
        if std::thread::panicking() {
            eprintln!("{}", self.log.text());
        }
    }
}

impl Bench {
    pub(crate) async fn start(listener: Listener) -> Result<Self, Failure> {
        Self::start_with(listener, |_| {}).await
    }

    /// As [`Bench::start`], with rmcp's sessions set.
    pub(crate) async fn start_with(
        listener: Listener,
        set: impl FnOnce(&mut SessionConfig),
    ) -> Result<Self, Failure> {
        let (log, logging) = Log::start();
        let charges = Charges::default();
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = None;
        set(&mut sessions.session_config);
        let sessions = Arc::new(sessions);
        let made = charges.clone();
        let rmcp = StreamableHttpService::new(
            move || Ok(made.clone()),
            Arc::clone(&sessions),
            StreamableHttpServerConfig::default(),
        );
        let service = layer()?.layer(rmcp);
        let app = Router::new().nest_service("/mcp", service.clone());
        let (stop, stopped) = oneshot::channel();
        let shutdown = service.drain_on(async { assert!(stopped.await.is_ok(), "told, not left") });
        let socket = TcpListener::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?;
        let serving = match listener {
            Listener::Rejoin => tokio::spawn(serve(socket, app, shutdown)),
            Listener::Axum => tokio::spawn(async move {
                let serving = axum::serve(socket, app).with_graceful_shutdown(shutdown);
                serving.await.expect("axum serves");
            }),
        };
        let stop = Some(stop);
        Ok(Self { address, charges, sessions, service, log, stop, serving, _logging: logging })
    }

    pub(crate) async fn session(&self) -> Result<Session, Failure> {
        Ok(Session::open(self.address).await?)
    }

    /// Cuts a connection with a reset, and waits until its stream is known to have lost it.
    async fn cut(&self, connection: Connection) -> Result<(), WireError> {
        let lost = ["a stream moved", "to=\"owed\""];
        let before = self.log.count(&lost);
        connection.cut_rst()?;
        self.log.more(before, &lost).await
    }

    /// Posts a call, reads `seen` of its messages and cuts; gives the last event id.
    pub(crate) async fn drop_after(
        &self,
        session: &Session,
        call: &Call,
        seen: usize,
    ) -> Result<String, WireError> {
        let mut connection = session.call(call).await?;
        let cursor = connection.messages(seen).await?;
        self.cut(connection).await?;
        Ok(cursor)
    }
}

/// The request that opens a session, as a client sends it to `host`.
pub(crate) fn initialize(host: &str, version: Version) -> Result<Request<Full<Bytes>>, Failure> {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    } });
    let request = Request::post(format!("http://{host}/any/where")).version(version);
    let request = request.header(CONTENT_TYPE, "application/json").header(HOST, host);
    let request = request.header(ACCEPT, "application/json, text/event-stream");
    Ok(request.body(Full::new(Bytes::from(message.to_string())))?)
}

/// The JSON of an answer.
pub(crate) async fn json_of<B: Body>(response: Response<B>) -> Result<Value, Failure>
where
    B::Error: std::fmt::Debug,
{
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Ok(serde_json::from_slice(&body)?)
}

/// A layer with limits short enough for a test: `4 x retry <= owed_grace < hold_max`.
pub(crate) fn layer() -> Result<RejoinLayer, Failure> {
    let mut settings = Settings::default();
    let limits = &mut settings.limits;
    (limits.owed_grace_ms, limits.retry_ms, limits.hold_max_ms) = (Some(3_000), 500, 4_500);
    let allowed_hosts = vec!["tools.example".to_owned()];
    Ok(RejoinLayer::with(LayerConfig { settings, allowed_hosts, ..LayerConfig::default() })?)
}

/// A call with so many progress events, each after `pause_ms`.
pub(crate) fn charge(id: u64, amount: u64, steps: u64, pause_ms: u64) -> Call {
    Call::new(id, "charge", json!({ "amount": amount, "steps": steps, "pause_ms": pause_ms }))
}

/// Resumes after `cursor`; what comes must be the whole rest, from progress number `first` on.
pub(crate) async fn resume_complete(
    session: &Session,
    cursor: &str,
    call: &Call,
    first: u64,
) -> Result<Value, Failure> {
    let mut connection = session.get(Some(cursor)).await?;
    assert_eq!(connection.head().await?.status, 200);
    connection.clean_rest().await?;
    let last = call.arguments["steps"].as_u64().unwrap();
    let progress_token = &call.progress_token;
    let owed = Owed { progress_token, id: call.id, first, last };
    Ok(complete(connection.events(), &owed)?)
}

/// Posts a call again and again until it is answered with a result; every other answer on the way
/// must be a refusal.
pub(crate) async fn answered(session: &Session, call: &Call) -> Result<Value, WireError> {
    until("a result after refusals", WAIT, async || {
        let mut connection = session.call(call).await?;
        let head = connection.head().await?;
        let response = connection.response().await?;
        if response.get("result").is_some() {
            return Ok(Some(response));
        }
        let refusal = Refusal::of(head, &response);
        assert!(refusal.is_some(), "neither a result nor a refusal: {response}");
        Ok(None)
    })
    .await
}

/// Posts a call, which must be refused with 409.
pub(crate) async fn refused(session: &Session, call: &Call) -> Result<Refusal, Failure> {
    let refusal = Refusal::read(&mut session.call(call).await?).await?;
    assert_eq!((refusal.head.status, &refusal.id), (409, &call.id.into()), "{refusal:?}");
    Ok(refusal)
}

/// The text of a tool's result.
#[track_caller]
pub(crate) fn text(response: &Value) -> &str {
    let text = response["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no result: {response}"))
}

/// Whether a response is a record of an earlier execution.
pub(crate) fn is_record(response: &Value) -> bool {
    !response["result"]["_meta"]["dev.rejoin/recorded"].is_null()
}
