//! One TCP connection to a server under test, with the account of what came in on it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};

use super::body::Body;
use super::error::WireError;
use super::head::Head;
use super::request::Request;
use super::sse::{Comment, Event, Item, SseParser};
use crate::deadline::{WAIT, within};

/// Bytes taken from the kernel at once.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A chunked body ended with its last chunk: the clean end of a stream.
    LastChunk,
    /// A body with a length is complete.
    Length,
    /// The connection was closed and the body had no other end.
    Close,
    /// The connection was closed in the middle of the answer.
    Truncated,
    /// The connection was reset.
    Reset,
}

/// The next thing of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// An event.
    Event(Event),
    /// A comment.
    Comment(Comment),
    /// The end of the answer.
    End(End),
}

/// How a connection is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// `SO_RCVBUF` in bytes, set before connecting; `None` leaves it to the kernel.
    pub receive_buffer_bytes: Option<u32>,
}

/// A connection. Nothing is read from it unless a method says so.
#[derive(Debug)]
pub struct Connection {
    pub(super) stream: TcpStream,
    pub(super) wait: Duration,
    input: Vec<u8>,
    head: Option<Head>,
    body: Option<Body>,
    sse: SseParser,
    queue: VecDeque<Item>,
    pub(super) plain: Vec<u8>,
    pub(super) events: Vec<Event>,
    pub(super) comments: Vec<Comment>,
    end: Option<End>,
}

impl Connection {
    /// Connects to a server.
    pub async fn open(address: SocketAddr) -> Result<Self, WireError> {
        Self::open_with(address, OpenOptions::default()).await
    }

    /// Connects to a server with options.
    pub async fn open_with(address: SocketAddr, options: OpenOptions) -> Result<Self, WireError> {
        let refused = |source| WireError::Connect { address, source };
        let socket = TcpSocket::new_v4().map_err(refused)?;
        if let Some(bytes) = options.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes).map_err(refused)?;
        }
        let connected = within("a connection", WAIT, socket.connect(address)).await?;
        let stream = connected.map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        Ok(Self {
            stream,
            wait: WAIT,
            input: Vec::new(),
            head: None,
            body: None,
            sse: SseParser::default(),
            queue: VecDeque::new(),
            plain: Vec::new(),
            events: Vec::new(),
            comments: Vec::new(),
            end: None,
        })
    }

    /// Sets how long each wait on this connection may take.
    pub fn set_wait(&mut self, wait: Duration) {
        self.wait = wait;
    }

    /// Sends any bytes.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let written = within("the bytes to leave", self.wait, self.stream.write_all(bytes)).await?;
        written.map_err(|source| WireError::Socket { what: "write", source })
    }

    /// Sends a request and forgets the answer before it, which must have ended.
    pub async fn request(&mut self, request: &Request) -> Result<(), WireError> {
        if self.head.is_some() {
            if self.end.is_none() {
                return Err(self.unexpected("the end of the answer before"));
            }
            self.forget();
        }
        self.send(&request.to_bytes()).await
    }

    fn forget(&mut self) {
        self.head = None;
        self.body = None;
        self.sse = SseParser::default();
        self.queue.clear();
        self.plain.clear();
        self.events.clear();
        self.comments.clear();
        self.end = None;
    }

    /// Reads until the head is complete.
    pub async fn head(&mut self) -> Result<Head, WireError> {
        let end = Instant::now() + self.wait;
        loop {
            if let Some(head) = &self.head {
                return Ok(head.clone());
            }
            if self.end.is_some() {
                return Err(self.unexpected("a response head"));
            }
            self.fill("a response head", end).await?;
        }
    }

    /// The next event, comment or end of the stream, within the connection's wait.
    pub async fn next(&mut self) -> Result<Received, WireError> {
        self.next_before(Instant::now() + self.wait).await
    }

    /// The next event, comment or end of the stream, if one comes within `limit`.
    pub async fn next_within(&mut self, limit: Duration) -> Result<Option<Received>, WireError> {
        match self.next_before(Instant::now() + limit).await {
            Ok(received) => Ok(Some(received)),
            Err(WireError::Late { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn next_before(&mut self, end: Instant) -> Result<Received, WireError> {
        loop {
            if let Some(received) = self.take_queued()? {
                return Ok(received);
            }
            self.fill("the next event", end).await?;
        }
    }

    /// What of the bytes already read is not handed out yet.
    pub(super) fn take_queued(&mut self) -> Result<Option<Received>, WireError> {
        Ok(match self.queue.pop_front() {
            Some(Item::Event(event)) => {
                self.events.push(event.clone());
                Some(Received::Event(event))
            }
            Some(Item::Comment(comment)) => {
                self.comments.push(comment.clone());
                Some(Received::Comment(comment))
            }
            None => self.end.map(Received::End),
        })
    }

    /// Takes what the kernel has for this connection now, without waiting for anything, and gives
    /// the items that are complete in it. The socket is asked directly: the runtime may not know
    /// yet that bytes are there.
    pub fn available(&mut self) -> Result<Vec<Received>, WireError> {
        let mut bytes = vec![0; READ_BYTES];
        while self.end.is_none() {
            match self.read_now(&mut bytes) {
                Ok(count) => self.take_bytes(&bytes[..count])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self.broken(error)?,
            }
        }
        let mut items = Vec::new();
        while let Some(received) = self.take_queued()? {
            let ended = matches!(received, Received::End(_));
            items.push(received);
            if ended {
                break;
            }
        }
        Ok(items)
    }

    fn read_now(&self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let socket = SockRef::from(&self.stream);
        match (&*socket).read(bytes) {
            // Asks once more by way of the runtime, which then knows that nothing is there.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.stream.try_io(Interest::READABLE, || (&*socket).read(bytes))
            }
            read => read,
        }
    }

    /// Waits until there is something to read, or `limit` passed; says which.
    pub async fn readable(&self, limit: Duration) -> bool {
        matches!(tokio::time::timeout(limit, self.stream.readable()).await, Ok(Ok(())))
    }

    /// Looks at the first `limit_bytes` unread bytes in the kernel and leaves them there.
    pub async fn peek(&self, limit_bytes: usize) -> Result<Vec<u8>, WireError> {
        let mut bytes = vec![0; limit_bytes];
        let peeked = within("bytes to peek at", self.wait, self.stream.peek(&mut bytes)).await?;
        let count = peeked.map_err(|source| WireError::Socket { what: "peek", source })?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Reads once and parses what came.
    pub(super) async fn fill(&mut self, what: &str, end: Instant) -> Result<(), WireError> {
        let mut bytes = vec![0; READ_BYTES];
        let limit = end.saturating_duration_since(Instant::now());
        match within(what, limit, self.stream.read(&mut bytes)).await {
            Ok(Ok(count)) => self.take_bytes(&bytes[..count]),
            Ok(Err(error)) => self.broken(error),
            Err(deadline) => Err(WireError::Late { deadline, account: self.account() }),
        }
    }

    fn broken(&mut self, error: std::io::Error) -> Result<(), WireError> {
        if !matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) {
            return Err(WireError::Socket { what: "read", source: error });
        }
        self.end = self.end.or(Some(End::Reset));
        Ok(())
    }

    fn take_bytes(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        if bytes.is_empty() {
            let proper = self.body.as_ref().is_some_and(Body::ends_by_close);
            let end = if proper { End::Close } else { End::Truncated };
            self.end = self.end.or(Some(end));
            return Ok(());
        }
        self.input.extend_from_slice(bytes);
        while self.head.is_none() {
            let Some((head, taken)) = Head::parse(&self.input)? else {
                return Ok(());
            };
            self.input.drain(..taken);
            if head.status >= 200 {
                self.body = Some(Body::after(&head)?);
                self.head = Some(head);
            }
        }
        self.decode()
    }

    fn decode(&mut self) -> Result<(), WireError> {
        let (Some(head), Some(body)) = (&self.head, &mut self.body) else {
            return Ok(());
        };
        let mut decoded = Vec::new();
        body.decode(&mut self.input, &mut decoded)?;
        if head.is_event_stream() {
            self.queue.extend(self.sse.push(&decoded, Instant::now())?);
        } else {
            self.plain.extend_from_slice(&decoded);
        }
        if let Some(chunked) = body.ended() {
            self.end = Some(if chunked { End::LastChunk } else { End::Length });
            if self.sse.is_torn() {
                return Err(WireError::Torn { account: self.account() });
            }
        }
        Ok(())
    }

    /// How the answer ended, as far as it was read.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// What came on this connection, in one line.
    pub fn account(&self) -> String {
        let status = self.head.as_ref().map(|head| head.status);
        let last: Vec<_> = self.events.iter().rev().take(2).collect();
        let plain = String::from_utf8_lossy(&self.plain[..self.plain.len().min(400)]).into_owned();
        format!(
            "status {status:?}, {} events, {} comments, end {:?}, body {plain:?}, last {last:?}",
            self.events.len(),
            self.comments.len(),
            self.end,
        )
    }

    pub(super) fn unexpected(&self, expected: &str) -> WireError {
        WireError::Unexpected { expected: expected.to_owned(), account: self.account() }
    }
}
