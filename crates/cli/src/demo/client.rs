//! A raw Streamable HTTP client: one connection per request, read event by event, cut at will.
//!
//! No HTTP library: the point of the demo is what is on the wire, and when.

mod body;
mod message;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rejoin_core::sse::{DecodeError, Decoder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use body::{Body, BodyError};
pub(super) use message::{Received, What, what_of};

/// Longest wait for a connection, a head or the next bytes.
const STEP_MAX: Duration = Duration::from_secs(20);

/// Largest head of a response.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Largest event, and largest body that is not a stream.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// The protocol revision the demo speaks.
const REVISION: &str = "2025-11-25";

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The connection could not be opened or used.
    #[error("the connection to {address} failed")]
    Connection {
        /// The server.
        address: SocketAddr,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// Nothing happened for too long.
    #[error("{address} sent nothing for {} seconds", STEP_MAX.as_secs())]
    TimedOut {
        /// The server.
        address: SocketAddr,
    },
    /// The response is not HTTP.
    #[error("the response of {address} is no HTTP/1.1: {problem}")]
    NotHttp {
        /// The server.
        address: SocketAddr,
        /// What is wrong.
        problem: String,
    },
    /// The body is badly framed.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The stream of events is bad.
    #[error(transparent)]
    Stream(#[from] DecodeError),
    /// A message is no JSON.
    #[error("a message is no JSON")]
    Json(#[from] serde_json::Error),
    /// The server did not do what every session starts with.
    #[error("the server did not open a session: status {status}")]
    NoSession {
        /// The status of its answer to `initialize`.
        status: u16,
    },
}

/// A client with its session.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    session: Option<String>,
}

/// A connection on which nothing was sent yet.
pub(super) struct Connection {
    address: SocketAddr,
    socket: TcpStream,
}

/// A response whose head has arrived.
pub(super) struct Exchange {
    pub(super) status: u16,
    address: SocketAddr,
    headers: Vec<(String, String)>,
    socket: TcpStream,
    buffer: BytesMut,
    body: Body,
    decoder: Decoder,
}

impl Client {
    /// Opens a session.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn open(address: SocketAddr) -> Result<Self, ClientError> {
        let mut client = Self { address, session: None };
        let params = json!({
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": { "name": "rejoin-demo", "version": env!("CARGO_PKG_VERSION") },
        });
        let message =
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let mut exchange = client.post(&message).await?;
        client.session = exchange.header("mcp-session-id").map(ToOwned::to_owned);
        if exchange.status != 200 || client.session.is_none() {
            return Err(ClientError::NoSession { status: exchange.status });
        }
        exchange.read_to_end().await?;
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        client.post(&initialized).await?.read_to_end().await?;
        Ok(client)
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn connect(&self) -> Result<Connection, ClientError> {
        let address = self.address;
        let failed = |cause| ClientError::Connection { address, cause };
        let connecting = timeout(STEP_MAX, TcpStream::connect(address)).await;
        let socket = connecting.map_err(|_| ClientError::TimedOut { address })?.map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        Ok(Connection { address, socket })
    }

    /// Sends a message and waits for the head of the response.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn post(&self, message: &Value) -> Result<Exchange, ClientError> {
        let mut connection = self.connect().await?;
        connection.send(&self.post_bytes(message)).await?;
        connection.head().await
    }

    /// Resumes the stream of this cursor and waits for the head of the response.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn resume(&self, cursor: &str) -> Result<Exchange, ClientError> {
        let mut connection = self.connect().await?;
        connection.send(&self.resume_bytes(cursor)).await?;
        connection.head().await
    }

    /// The bytes of a POST with this message.
    pub(super) fn post_bytes(&self, message: &Value) -> Vec<u8> {
        let body = message.to_string();
        let head = format!(
            "Accept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.request_bytes("POST", &head, &body)
    }

    /// The bytes of a GET that resumes the stream of this cursor.
    pub(super) fn resume_bytes(&self, cursor: &str) -> Vec<u8> {
        let head = format!("Accept: text/event-stream\r\nLast-Event-ID: {cursor}\r\n");
        self.request_bytes("GET", &head, "")
    }

    fn request_bytes(&self, method: &str, head: &str, body: &str) -> Vec<u8> {
        let session = self.session.as_ref().map_or_else(String::new, |session| {
            format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {REVISION}\r\n")
        });
        let host = self.address;
        format!("{method} /mcp HTTP/1.1\r\nHost: {host}\r\n{session}{head}\r\n{body}").into_bytes()
    }
}

impl Connection {
    /// Sends the bytes of a request.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let address = self.address;
        match timeout(STEP_MAX, self.socket.write_all(bytes)).await {
            Ok(sent) => sent.map_err(|cause| ClientError::Connection { address, cause }),
            Err(_) => Err(ClientError::TimedOut { address }),
        }
    }

    /// Waits for the head of the response.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn head(mut self) -> Result<Exchange, ClientError> {
        let address = self.address;
        let not_http = |problem: &str| {
            let problem = problem.to_owned();
            ClientError::NotHttp { address, problem }
        };
        let mut buffer = BytesMut::new();
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break buffer.split_to(end + 4);
            }
            if buffer.len() > HEAD_BYTES_MAX {
                return Err(not_http("its head does not end"));
            }
            if !read_more(address, &mut self.socket, &mut buffer).await? {
                return Err(not_http("it ended within the head"));
            }
        };
        let head = String::from_utf8_lossy(&head).into_owned();
        let (status, headers) = parse_head(&head).ok_or_else(|| not_http("a bad head"))?;
        let body = Body::of(status, &headers)?;
        let decoder = Decoder::new(EVENT_BYTES_MAX);
        Ok(Exchange { status, address, headers, socket: self.socket, buffer, body, decoder })
    }
}

impl Exchange {
    /// The value of a header, its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether the body is a stream of events.
    pub(super) fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// The next thing on the stream, `None` at its end.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn next(&mut self) -> Result<Option<Received>, ClientError> {
        loop {
            if let Some(event) = self.decoder.next_event()? {
                let id = event.id.map(|id| String::from_utf8_lossy(&id).into_owned());
                let what = match event.comments.first() {
                    _ if !event.data.is_empty() => what_of(&serde_json::from_slice(&event.data)?),
                    Some(comment) => What::Sign(String::from_utf8_lossy(comment).into_owned()),
                    None => What::Sign(String::new()),
                };
                return Ok(Some(Received { id, what }));
            }
            let Some(chunk) = self.chunk().await? else {
                return Ok(None);
            };
            self.decoder.push(&chunk);
        }
    }

    /// The message of a response that is no stream.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn message(&mut self) -> Result<Value, ClientError> {
        Ok(serde_json::from_slice(&self.read_to_end().await?)?)
    }

    /// Reads the body to its end.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn read_to_end(&mut self) -> Result<Bytes, ClientError> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            whole.extend_from_slice(&chunk);
            if whole.len() > EVENT_BYTES_MAX {
                let problem = "its body does not end".to_owned();
                return Err(ClientError::NotHttp { address: self.address, problem });
            }
        }
        Ok(whole.freeze())
    }

    /// Cuts the connection with a reset, as a broken network would.
    ///
    /// # Errors
    /// When the operating system refuses; the connection is then closed the ordinary way.
    pub(super) fn cut(self) -> Result<(), ClientError> {
        socket2::SockRef::from(&self.socket)
            .set_linger(Some(Duration::ZERO))
            .map_err(|cause| ClientError::Connection { address: self.address, cause })
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            if let Some(chunk) = self.body.take(&mut self.buffer)? {
                return Ok(Some(chunk));
            }
            if self.body.is_ended() {
                return Ok(None);
            }
            if !read_more(self.address, &mut self.socket, &mut self.buffer).await? {
                return self.body.end_of_input().map(|()| None).map_err(Into::into);
            }
        }
    }
}

async fn read_more(
    address: SocketAddr,
    socket: &mut TcpStream,
    buffer: &mut BytesMut,
) -> Result<bool, ClientError> {
    buffer.reserve(READ_BYTES);
    match timeout(STEP_MAX, socket.read_buf(buffer)).await {
        Ok(Ok(bytes)) => Ok(bytes > 0),
        Ok(Err(cause)) => Err(ClientError::Connection { address, cause }),
        Err(_) => Err(ClientError::TimedOut { address }),
    }
}

fn parse_head(head: &str) -> Option<(u16, Vec<(String, String)>)> {
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    Some((status, headers.collect()))
}
