//! The other side of the comparison: a plain Streamable HTTP server in front of the tool server.
//!
//! Built the way the SDKs' servers are: a session, one buffered stream per POST, replay by
//! `Last-Event-ID`, progress routed by token and responses by id. It honours every MUST of the
//! transport, and like them it asks no question about a call it has seen before.

mod stream;

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use stream::{Stream, StreamBody};

/// Largest request.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Most streams of the one session there is.
const STREAMS_MAX: usize = 1_000;

/// Connections served at the same time.
const CONNECTIONS_MAX: usize = 64;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// The running server. Dropping it ends the tool server too.
pub(super) struct BareServer {
    address: SocketAddr,
    bridge: Arc<Bridge>,
    accept: JoinHandle<()>,
    read: JoinHandle<()>,
    child: Child,
}

/// What all connections share.
struct Bridge {
    session: String,
    input: tokio::sync::Mutex<ChildStdin>,
    streams: Mutex<Streams>,
}

#[derive(Default)]
struct Streams {
    all: Vec<Arc<Stream>>,
    /// The stream of a running request, by the request's id as written.
    by_request: HashMap<String, Arc<Stream>>,
    /// The stream of a progress token.
    by_token: HashMap<String, Arc<Stream>>,
}

impl BareServer {
    /// Starts the tool server with this command, and an HTTP server in front of it.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(super) async fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the tool server has no pipes"));
        };
        let bridge = Arc::new(Bridge {
            session: format!("{:016x}", random_number()),
            input: tokio::sync::Mutex::new(input),
            streams: Mutex::default(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let lines = BufReader::new(output).lines();
        let read = tokio::spawn(read_messages(Arc::clone(&bridge), lines));
        let accept = tokio::spawn(accept(Arc::clone(&bridge), listener));
        Ok(Self { address, bridge, accept, read, child })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The messages the stream of this cursor still keeps after it.
    pub(super) fn kept_after(&self, cursor: &str) -> Vec<Value> {
        match self.bridge.find(cursor) {
            Some((stream, seen)) => stream.messages_after(seen),
            None => Vec::new(),
        }
    }

    /// Ends the HTTP server and the tool server.
    pub(super) async fn end(mut self) {
        self.accept.abort();
        self.read.abort();
        // Its input ends with the last reference to the bridge; whoever still holds one is cut.
        let _ = self.child.kill().await;
    }
}

impl Bridge {
    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of an event id, and the number of its events up to that one.
    fn find(&self, event_id: &str) -> Option<(Arc<Stream>, usize)> {
        let (stream, seen) = event_id.split_once('-')?;
        let stream = self.lock().all.get(stream.parse::<usize>().ok()?).cloned()?;
        Some((stream, seen.parse().ok()?))
    }

    /// A new stream for this request.
    fn open(&self, request: &Value) -> Option<Arc<Stream>> {
        let mut streams = self.lock();
        if streams.all.len() >= STREAMS_MAX {
            return None;
        }
        let stream = Arc::new(Stream::new(streams.all.len()));
        streams.all.push(Arc::clone(&stream));
        streams.by_request.insert(request["id"].to_string(), Arc::clone(&stream));
        let token = &request["params"]["_meta"]["progressToken"];
        if !token.is_null() {
            streams.by_token.insert(token.to_string(), Arc::clone(&stream));
        }
        Some(stream)
    }

    /// Puts a message of the tool server on the stream it belongs to.
    fn route(&self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let mut streams = self.lock();
        if message.get("method").is_none() {
            if let Some(stream) = streams.by_request.remove(&message["id"].to_string()) {
                stream.push(line, true);
            }
        } else if let Some(stream) =
            streams.by_token.get(&message["params"]["progressToken"].to_string())
        {
            stream.push(line, false);
        }
    }

    async fn write(&self, message: &Value) -> io::Result<()> {
        let mut input = self.input.lock().await;
        input.write_all(format!("{message}\n").as_bytes()).await?;
        input.flush().await
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let session = request.headers().get("mcp-session-id").map(|id| id.as_bytes().to_owned());
        let known = session.is_none_or(|id| id == self.session.as_bytes());
        match *request.method() {
            _ if request.uri().path() != "/mcp" || !known => empty(StatusCode::NOT_FOUND),
            Method::POST => self.post(request).await,
            Method::GET => self.get(&request),
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn post(&self, request: Request<Incoming>) -> Answer {
        let Ok(body) = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await else {
            return empty(StatusCode::PAYLOAD_TOO_LARGE);
        };
        let Ok(message) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
            return empty(StatusCode::BAD_REQUEST);
        };
        let is_request = message.get("id").is_some() && message.get("method").is_some();
        let stream = if is_request { self.open(&message) } else { None };
        match (self.write(&message).await, stream) {
            (Err(_), _) => empty(StatusCode::BAD_GATEWAY),
            (Ok(()), Some(stream)) => self.stream_answer(&stream, 0),
            (Ok(()), None) if is_request => empty(StatusCode::SERVICE_UNAVAILABLE),
            (Ok(()), None) => empty(StatusCode::ACCEPTED),
        }
    }

    fn get(&self, request: &Request<Incoming>) -> Answer {
        let cursor = request.headers().get("last-event-id");
        let found = cursor.and_then(|id| id.to_str().ok()).and_then(|id| self.find(id));
        match found {
            Some((stream, seen)) => self.stream_answer(&stream, seen),
            None => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    fn stream_answer(&self, stream: &Arc<Stream>, seen: usize) -> Answer {
        Response::builder()
            .header(CONTENT_TYPE, "text/event-stream")
            .header(CACHE_CONTROL, "no-cache")
            .header("mcp-session-id", &self.session)
            .body(StreamBody::new(Arc::clone(stream), seen).boxed())
            .unwrap_or_else(|_| empty(StatusCode::INTERNAL_SERVER_ERROR))
    }
}

fn empty(status: StatusCode) -> Answer {
    let mut response = Response::new(Empty::new().boxed());
    *response.status_mut() = status;
    response
}

async fn read_messages(bridge: Arc<Bridge>, mut lines: Lines<BufReader<ChildStdout>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        bridge.route(&line);
    }
}

async fn accept(bridge: Arc<Bridge>, listener: TcpListener) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        if connections.len() < CONNECTIONS_MAX {
            connections.spawn(serve(Arc::clone(&bridge), socket));
        }
    }
}

async fn serve(bridge: Arc<Bridge>, socket: TcpStream) {
    // Without it the first event waits for the client's delayed acknowledgement.
    let _ = socket.set_nodelay(true);
    let service = service_fn(|request| {
        let bridge = Arc::clone(&bridge);
        async move { Ok::<_, Infallible>(bridge.answer(request).await) }
    });
    // A connection that breaks is what the demo is about; the next one is not affected.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
}

/// A number nobody can guess from outside this process; enough for a demo on loopback.
fn random_number() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
