//! One keep-alive connection with a session of its own. What it sends is ready-made, what it reads
//! is looked through and dropped: the generator must never be what is measured.

use std::io;
use std::net::SocketAddr;

use memchr::memmem;
use rejoin_bench::Failure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const READ_BYTES: usize = 256 * 1024;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// More than what is sought has.
const END_BYTES: usize = 64;
const PROGRESS: &[u8] = b"notifications/progress";

/// A connection, and the session that was opened on it.
pub(crate) struct Connection {
    stream: TcpStream,
    host: SocketAddr,
    session: String,
    buffer: Vec<u8>,
    from: usize,
    request: Vec<u8>,
}

/// What one answer had.
#[derive(Default)]
struct Answer {
    status: u16,
    session: Option<String>,
    progress: u64,
    has_id: bool,
    /// A result behind the id.
    has_result: bool,
    /// The end of what was looked through: what is sought may lie across two chunks.
    end: Vec<u8>,
}

impl Answer {
    /// How often these bytes are in `data`, or begin before it.
    fn count(&self, data: &[u8], sought: &[u8]) -> u64 {
        let before = &self.end[self.end.len().saturating_sub(sought.len() - 1)..];
        let after = &data[..data.len().min(sought.len() - 1)];
        let across = [before, after].concat();
        let found = memmem::find_iter(data, sought).count();
        (found + memmem::find_iter(&across, sought).count()) as u64
    }

    fn look_through(&mut self, data: &[u8], wanted: &Wanted<'_>) {
        if wanted.counts_progress {
            self.progress += self.count(data, PROGRESS);
        }
        self.has_id |= self.count(data, wanted.id) > 0;
        self.has_result |= self.has_id && self.count(data, b"\"result\"") > 0;
        self.end.extend_from_slice(&data[data.len().saturating_sub(END_BYTES)..]);
        self.end.drain(..self.end.len().saturating_sub(END_BYTES));
    }
}

/// What of an answer is looked for.
struct Wanted<'a> {
    id: &'a [u8],
    counts_progress: bool,
}

impl Connection {
    /// Connects, and opens a session.
    pub(crate) async fn open(host: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        let (buffer, request) = (Vec::with_capacity(READ_BYTES), Vec::new());
        let mut own = Self { stream, host, session: String::new(), buffer, from: 0, request };
        let answer = own.exchange(INITIALIZE, &Wanted { id: b"\"id\":0,", counts_progress: false });
        let answer = answer.await?;
        own.session = match answer {
            Answer { status: 200, has_result: true, session: Some(session), .. } => session,
            Answer { status, .. } => return Err(format!("initialize: {status}").into()),
        };
        let nothing = Wanted { id: b"no id", counts_progress: false };
        let answer = own.exchange(INITIALIZED, &nothing).await?;
        if answer.status != 202 {
            return Err(format!("initialized: {}", answer.status).into());
        }
        Ok(own)
    }

    /// Calls a tool and reads its answer to the end: how many events of progress came with it.
    pub(crate) async fn call(
        &mut self,
        id: u64,
        tool: &str,
        arguments: &str,
        has_progress: bool,
    ) -> Result<u64, Failure> {
        let meta = if has_progress { r#","_meta":{"progressToken":7}"# } else { "" };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}{meta}}}}}"#
        );
        let sought = format!("\"id\":{id},");
        let wanted = Wanted { id: sought.as_bytes(), counts_progress: has_progress };
        let answer = self.exchange(&body, &wanted).await?;
        match answer {
            Answer { status: 200, has_result: true, progress, .. } => Ok(progress),
            Answer { status, .. } => Err(format!("call {id}: {status}, no result").into()),
        }
    }

    async fn exchange(&mut self, body: &str, wanted: &Wanted<'_>) -> Result<Answer, Failure> {
        self.request.clear();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            self.host,
            body.len()
        );
        self.request.extend_from_slice(head.as_bytes());
        if !self.session.is_empty() {
            let session = &self.session;
            let own = format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
            self.request.extend_from_slice(own.as_bytes());
        }
        self.request.extend_from_slice(b"\r\n");
        self.request.extend_from_slice(body.as_bytes());
        self.stream.write_all(&self.request).await?;
        self.answer(wanted).await
    }

    async fn answer(&mut self, wanted: &Wanted<'_>) -> Result<Answer, Failure> {
        let mut answer = Answer::default();
        let end = self.find(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&self.buffer[self.from..end]).to_ascii_lowercase();
        self.from = end;
        answer.status = head.get(9..12).unwrap_or_default().parse()?;
        let field =
            |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        answer.session = field("mcp-session-id:").map(ToOwned::to_owned);
        if field("transfer-encoding:") == Some("chunked") {
            while self.chunk(&mut answer, wanted).await? {}
        } else {
            let length = field("content-length:").unwrap_or("0").parse()?;
            self.body(length, &mut answer, wanted).await?;
        }
        Ok(answer)
    }

    /// Reads one chunk. False after the last.
    async fn chunk(&mut self, answer: &mut Answer, wanted: &Wanted<'_>) -> Result<bool, Failure> {
        let end = self.find(b"\r\n").await?;
        let line = std::str::from_utf8(&self.buffer[self.from..end - 2])?;
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16)?;
        self.from = end;
        self.body(size, answer, wanted).await?;
        self.fill(2).await?;
        self.from += 2;
        Ok(size > 0)
    }

    async fn body(
        &mut self,
        length: usize,
        answer: &mut Answer,
        wanted: &Wanted<'_>,
    ) -> Result<(), Failure> {
        self.fill(length).await?;
        answer.look_through(&self.buffer[self.from..self.from + length], wanted);
        self.from += length;
        Ok(())
    }

    /// Where the first such bytes end, after what was read already.
    async fn find(&mut self, sought: &[u8]) -> io::Result<usize> {
        loop {
            if let Some(at) = memmem::find(&self.buffer[self.from..], sought) {
                return Ok(self.from + at + sought.len());
            }
            self.read().await?;
        }
    }

    /// Reads until so many bytes are there.
    async fn fill(&mut self, bytes: usize) -> io::Result<()> {
        while self.buffer.len() - self.from < bytes {
            self.read().await?;
        }
        Ok(())
    }

    async fn read(&mut self) -> io::Result<()> {
        if self.from == self.buffer.len() {
            self.buffer.clear();
            self.from = 0;
        } else if self.from > READ_BYTES {
            self.buffer.drain(..self.from);
            self.from = 0;
        }
        self.buffer.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
