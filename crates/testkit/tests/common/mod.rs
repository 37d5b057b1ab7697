//! A tiny server: it takes one connection after another and does what the test says.

use std::net::SocketAddr;
use std::time::Duration;

use rejoin_testkit::deadline::{WAIT, within};
use rejoin_testkit::failure::Failure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The head of an SSE answer.
pub(crate) const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A listening socket.
pub(crate) struct Tiny {
    listener: TcpListener,
}

/// One accepted connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
}

impl Tiny {
    pub(crate) async fn start() -> Result<Self, Failure> {
        Ok(Self { listener: TcpListener::bind("127.0.0.1:0").await? })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.listener.local_addr()?)
    }

    pub(crate) async fn accept(&self) -> Result<Peer, Failure> {
        let (stream, _) = within("a client", WAIT, self.listener.accept()).await??;
        Ok(Peer { stream })
    }
}

impl Peer {
    /// Reads a request: its head, and a body as long as `Content-Length` says.
    pub(crate) async fn request(&mut self) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        loop {
            let mut piece = [0; 1024];
            let count = within("a request", WAIT, self.stream.read(&mut piece)).await??;
            bytes.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.map_or(Ok(0), str::parse)?;
            if body.len() >= length {
                return Ok(text);
            }
        }
    }

    pub(crate) async fn write(&mut self, bytes: &str) -> Result<(), Failure> {
        Ok(self.stream.write_all(bytes.as_bytes()).await?)
    }

    /// Writes `text` as one chunk.
    pub(crate) async fn chunk(&mut self, text: &str) -> Result<(), Failure> {
        self.write(&format!("{:x}\r\n{text}\r\n", text.len())).await
    }

    /// What the next read gives: a number of bytes, or the kind of its error.
    pub(crate) async fn read(&mut self) -> Result<Result<usize, std::io::ErrorKind>, Failure> {
        let mut bytes = [0; 1024];
        let read = within("a read", WAIT, self.stream.read(&mut bytes)).await?;
        Ok(read.map_err(|error| error.kind()))
    }

    /// Lets the kernel give the connection up when a byte stays unacknowledged for `limit`.
    pub(crate) fn give_up_after(&self, limit: Duration) -> Result<(), Failure> {
        Ok(socket2::SockRef::from(&self.stream).set_tcp_user_timeout(Some(limit))?)
    }
}
