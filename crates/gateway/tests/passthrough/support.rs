//! A gateway between a raw client and a raw server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use rejoin_core::limits::Limits;
use rejoin_core::settings::Settings;
use rejoin_gateway::gateway::Gateway;
use rejoin_gateway::upstream::http::{HttpOptions, HttpUpstream, UpstreamAuth};
use rejoin_testkit::deadline::{WAIT, until, within};
use rejoin_testkit::failure::{Failure, TestResult};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[path = "../support/serve.rs"]
mod serving;

use serving::{serve, value};

/// How soon the end of one side is seen on the other.
const AT_ONCE: Duration = Duration::from_secs(2);
/// How long a test looks for what must not happen.
const NOTHING: Duration = Duration::from_millis(200);

/// A running gateway, and the address of the server behind it.
pub(crate) struct Bench {
    pub(crate) gateway: Gateway,
    pub(crate) address: SocketAddr,
    server: TcpListener,
    serving: JoinHandle<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Bench {
    pub(crate) async fn start() -> Result<Self, Failure> {
        Self::start_with("/mcp", UpstreamAuth::Forward, |_| {}).await
    }

    pub(crate) async fn limited(set: impl FnOnce(&mut Limits)) -> Result<Self, Failure> {
        Self::start_with("/mcp", UpstreamAuth::Forward, set).await
    }

    /// `place`: path and query of the server's endpoint.
    pub(crate) async fn start_with(
        place: &str,
        auth: UpstreamAuth,
        set: impl FnOnce(&mut Limits),
    ) -> Result<Self, Failure> {
        let server = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}{place}", server.local_addr()?);
        let mut settings = Settings::default();
        set(&mut settings.limits);
        let mut options = HttpOptions::new(Arc::new(settings.limits.clone()));
        options.auth = auth;
        let upstream = Arc::new(HttpUpstream::new(&url, options)?);
        let (gateway, address, serving) = serve(upstream, settings).await?;
        Ok(Self { gateway, address, server, serving })
    }

    /// The next connection of the gateway to its server, with the request on it.
    pub(crate) async fn peer(&self) -> Result<Peer, Failure> {
        let (stream, _) =
            within("a connection to the server", WAIT, self.server.accept()).await??;
        let mut peer =
            Peer { wire: Wire { stream, input: Vec::new() }, head: String::new(), body: vec![] };
        peer.request().await?;
        Ok(peer)
    }

    /// Nothing came to the server.
    pub(crate) async fn nothing_came(&self) -> bool {
        tokio::time::timeout(NOTHING, self.server.accept()).await.is_err()
    }

    /// Sends a request on a connection of its own.
    pub(crate) async fn client(&self, request: &str) -> Result<Client, Failure> {
        self.client_of(request.as_bytes()).await
    }

    pub(crate) async fn client_of(&self, request: &[u8]) -> Result<Client, Failure> {
        let stream = TcpStream::connect(self.address).await?;
        let mut client = Client(Wire { stream, input: Vec::new() });
        client.0.stream.write_all(request).await?;
        Ok(client)
    }

    /// The next request's answer by the server, and what becomes of it at the client.
    pub(crate) async fn exchange(
        &self,
        request: &str,
        answer: &str,
    ) -> Result<(Peer, Answer), Failure> {
        let mut client = self.client(request).await?;
        let mut peer = self.peer().await?;
        peer.say(answer).await?;
        let answer = client.answer().await?;
        Ok((peer, answer))
    }

    /// Waits, not long, until a metric has this value.
    pub(crate) async fn counts(&self, name: &str, wanted: f64) -> TestResult {
        until(&format!("{name} {wanted}"), AT_ONCE, async || {
            let request = http::Request::get("/metrics").body(())?;
            let page = self.gateway.admin(request).await.into_body().collect().await?.to_bytes();
            let found = value(std::str::from_utf8(&page)?, name);
            Ok((found == Some(wanted)).then_some(()))
        })
        .await
    }

    /// Ends the server: from now on nobody listens.
    pub(crate) async fn without_server(self) -> Result<Self, Failure> {
        let mut bench = self;
        let other = TcpListener::bind("127.0.0.1:0").await?;
        drop(std::mem::replace(&mut bench.server, other));
        Ok(bench)
    }
}

/// A POST as a client of the newest revision sends it.
pub(crate) fn modern(id: u64, more: &str) -> String {
    let params = r#"{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
    post(&format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n{more}"), &body)
}

/// A POST with more header fields.
pub(crate) fn post(more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n\
         Content-Length: {length}\r\n{more}\r\n{body}"
    )
}

/// A request without a body.
pub(crate) fn bare(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n{more}\r\n")
}

/// An answer of the server with this body.
pub(crate) fn answer(status: &str, more: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len())
}

/// The head of a stream, with its first chunk.
pub(crate) fn stream(first: &str) -> String {
    let chunk = chunk(first);
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n\
         {chunk}"
    )
}

pub(crate) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// One side of a connection.
struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Fin,
    Reset,
}

impl Wire {
    fn end(self, end: End) -> TestResult {
        if end == End::Reset {
            SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))?;
        }
        Ok(())
    }

    /// Reads once. `Some`: there is no more.
    async fn fill(&mut self, what: &str) -> Result<Option<End>, Failure> {
        match within(what, WAIT, self.stream.read_buf(&mut self.input)).await? {
            Ok(0) => Ok(Some(End::Fin)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Some(End::Reset)),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the head from the front of what came.
    async fn head(&mut self) -> Result<String, Failure> {
        loop {
            if let Some(at) = find(&self.input, b"\r\n\r\n") {
                let head = self.input.drain(..at + 4).collect();
                return Ok(String::from_utf8(head)?);
            }
            if self.fill("a head").await?.is_some() {
                return Err(Failure::new("the connection ended before a head came"));
            }
        }
    }
}

/// The server's side of one connection.
pub(crate) struct Peer {
    wire: Wire,
    /// Request line and header fields.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Peer {
    /// Reads the next request on this connection.
    pub(crate) async fn request(&mut self) -> TestResult {
        self.head = self.wire.head().await?;
        let length = field(&self.head, "content-length").map_or(Ok(0), |text| text.parse())?;
        while self.wire.input.len() < length {
            if self.wire.fill("a request body").await?.is_some() {
                return Err(Failure::new("the connection ended in a request body"));
            }
        }
        self.body = self.wire.input.drain(..length).collect();
        Ok(())
    }

    pub(crate) fn first_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// The header fields, in order.
    pub(crate) fn fields(&self) -> Vec<&str> {
        self.head.lines().skip(1).filter(|line| !line.is_empty()).collect()
    }

    pub(crate) async fn say(&mut self, text: impl AsRef<[u8]>) -> TestResult {
        Ok(self.wire.stream.write_all(text.as_ref()).await?)
    }

    /// The gateway closes this connection at once.
    pub(crate) async fn closed(&mut self) -> TestResult {
        let closed = async {
            while self.wire.fill("the close").await?.is_none() {}
            Ok(())
        };
        within("the connection to the server to be closed", AT_ONCE, closed).await?
    }

    pub(crate) fn end(self, end: End) -> TestResult {
        self.wire.end(end)
    }
}

/// The client's side of one connection.
pub(crate) struct Client(Wire);

/// What a client got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: String,
    /// Decoded, if it was chunked.
    pub(crate) body: Vec<u8>,
    /// True if it came to its end: the last chunk, or the declared length.
    pub(crate) is_whole: bool,
}

impl Answer {
    pub(crate) fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The header fields but `Date`, in order.
    pub(crate) fn fields(&self) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter(|line| !line.is_empty());
        fields.filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect()
    }
}

impl Client {
    /// Waits until these bytes have come.
    pub(crate) async fn sees(&mut self, text: &str) -> TestResult {
        while find(&self.0.input, text.as_bytes()).is_none() {
            if self.0.fill(text).await?.is_some() {
                let seen = String::from_utf8_lossy(&self.0.input).into_owned();
                return Err(Failure::new(format!("{text:?} did not come, but {seen:?}")));
            }
        }
        Ok(())
    }

    /// Reads the whole answer, or as much of it as comes.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Failure> {
        let head = self.0.head().await?;
        let is_chunked = field(&head, "transfer-encoding") == Some("chunked");
        let length = field(&head, "content-length").map(str::parse::<usize>).transpose()?;
        loop {
            let input = &self.0.input;
            let (body, is_whole) = match length {
                _ if is_chunked => dechunk(input),
                Some(length) => (input.clone(), input.len() >= length),
                None => (input.clone(), head.starts_with("HTTP/1.1 204")),
            };
            if is_whole || self.0.fill("the end of an answer").await?.is_some() {
                self.0.input.clear();
                return Ok(Answer { head, body, is_whole });
            }
        }
    }

    /// One more request on this connection.
    pub(crate) async fn again(&mut self, request: &str) -> TestResult {
        Ok(self.0.stream.write_all(request.as_bytes()).await?)
    }

    pub(crate) fn end(self, end: End) -> TestResult {
        self.0.end(end)
    }
}

/// The chunks that are whole, and whether the last one is among them.
fn dechunk(mut input: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(at) = find(input, b"\r\n") {
        let size = std::str::from_utf8(&input[..at]).ok();
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else { break };
        let rest = &input[at + 2..];
        if size == 0 {
            return (body, rest == b"\r\n");
        }
        if rest.len() < size + 2 {
            break;
        }
        body.extend_from_slice(&rest[..size]);
        input = &rest[size + 2..];
    }
    (body, false)
}

fn find(input: &[u8], wanted: &[u8]) -> Option<usize> {
    input.windows(wanted.len()).position(|window| window == wanted)
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}
