//! Connections of clients, byte by byte.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Kept of what a connection reads, for what is looked for in it.
const KEPT_BYTES_MAX: usize = 256 * 1_024;
/// Writes wait no longer: a gateway may refuse to read on.
const WRITE_MAX: Duration = Duration::from_secs(5);

/// Begins an answer.
const HEAD: &[u8] = b"HTTP/1.1 ";
/// Ends one in chunks.
pub(super) const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// One connection, and what came on it.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    pub(super) read: Vec<u8>,
    /// True once the other side has ended or cut it.
    pub(super) is_over: bool,
    /// Bytes that have come.
    taken: u64,
    /// How many had when something was written last; `None`: nothing was.
    taken_before: Option<u64>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        // No port is kept for a minute after each of a million connections.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new(), is_over: false, taken: 0, taken_before: None })
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) {
        self.take();
        if !bytes.is_empty() && !self.is_behind_stream() {
            self.taken_before = Some(self.taken);
        }
        // Whether it was taken shows in what is read.
        let _taken = timeout(WRITE_MAX, self.stream.write_all(bytes)).await;
    }

    /// True if the last answer is a stream that goes on: nothing behind it on this connection is
    /// answered before it ends, and what is passed through may never end.
    fn is_behind_stream(&self) -> bool {
        let heads = self.read.windows(HEAD.len()).rposition(|window| window == HEAD);
        let last = heads.map_or(&[][..], |at| &self.read[at..]);
        find(last, b"transfer-encoding: chunked").is_some() && !last.ends_with(LAST_CHUNK)
    }

    /// Says that nothing more will be written.
    pub(super) async fn finish(&mut self) {
        let _gone = self.stream.shutdown().await;
    }

    /// Takes what has come.
    pub(super) fn take(&mut self) {
        let mut buffer = [0; 16 * 1_024];
        while !self.is_over {
            match self.stream.try_read(&mut buffer) {
                Ok(0) => self.is_over = true,
                Ok(count) => {
                    self.taken += count as u64;
                    self.read.extend_from_slice(&buffer[..count]);
                    let excess = self.read.len().saturating_sub(KEPT_BYTES_MAX);
                    self.read.drain(..excess);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.is_over = true,
            }
        }
    }

    /// Waits until what was read holds this, or the connection is over, or time is up.
    pub(super) async fn until(&mut self, sought: &[u8], longest: Duration) -> bool {
        self.wait(|connection| find(&connection.read, sought).is_some(), longest).await
    }

    /// Waits for an answer, or the end, to what was written last; false: neither came.
    pub(super) async fn settles(&mut self, longest: Duration) -> bool {
        let Some(before) = self.taken_before else { return true };
        self.wait(|connection| connection.taken > before, longest).await || self.is_over
    }

    async fn wait(&mut self, is_there: impl Fn(&Self) -> bool, longest: Duration) -> bool {
        let end = Instant::now() + longest;
        loop {
            self.take();
            if is_there(self) {
                return true;
            }
            if self.is_over || Instant::now() >= end {
                return false;
            }
            if timeout(end - Instant::now(), self.stream.readable()).await.is_err() {
                return false;
            }
            // Lets the other side go on where readiness was stale.
            sleep(Duration::from_micros(10)).await;
        }
    }

    /// What follows the first occurrence of a text, up to the end of its line.
    pub(super) fn first_after(&self, text: &[u8]) -> Option<Vec<u8>> {
        let rest = &self.read[find(&self.read, text)? + text.len()..];
        rest.split(|byte| matches!(byte, b'\r' | b'\n')).next().map(<[u8]>::to_vec)
    }

    /// What follows the last occurrence of a text, up to the end of its line.
    pub(super) fn last_after(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut rest = &self.read[..];
        let mut found = None;
        while let Some(at) = find(rest, text) {
            rest = &rest[at + text.len()..];
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            found = end.map(|end| rest[..end].to_vec()).or(found);
        }
        found
    }
}

pub(super) fn find(text: &[u8], sought: &[u8]) -> Option<usize> {
    text.windows(sought.len()).position(|window| window == sought)
}
