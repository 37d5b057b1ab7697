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
const LIST_TOOLS: &str = r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#;
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

/// How long a body is.
enum Length {
    Chunked,
    Bytes(usize),
}

/// The answer to what opens a session or prepares it, which have the id 0.
const OPENING: Wanted<'static> = Wanted { id: b"\"id\":0,", counts_progress: false };

/// Nothing of an answer is looked for.
const NOTHING: Wanted<'static> = Wanted { id: b"no id", counts_progress: false };

/// A stream whose connection was reset.
pub(crate) struct Cut {
    session: String,
    /// The first event of progress: the last that was read.
    cursor: String,
}

impl Cut {
    /// Resumes it on a new connection, and reads it to the result of the call: how many events of
    /// progress came.
    pub(crate) async fn resume(&self, host: SocketAddr, id: u64) -> Result<u64, Failure> {
        let mut connection = Connection::connect(host, &self.session).await?;
        let cursor = format!("Last-Event-ID: {}\r\n", self.cursor);
        connection.send("GET", &cursor, "").await?;
        connection.answer_of(id, true).await
    }
}

/// The id of the first event of progress, once all of that event is there.
fn first_progress(text: &[u8]) -> Result<Option<String>, Failure> {
    let Some(at) = memmem::find(text, PROGRESS) else { return Ok(None) };
    let Some(end) = memmem::find(&text[at..], b"\n\n") else { return Ok(None) };
    let text = std::str::from_utf8(&text[..at + end])?;
    let event = text.rsplit("\n\n").next().unwrap_or_default();
    let id = event.lines().find_map(|line| line.strip_prefix("id:"));
    Ok(Some(id.ok_or("events have no ids")?.trim().to_owned()))
}

/// What of an answer is looked for.
struct Wanted<'a> {
    id: &'a [u8],
    counts_progress: bool,
}

impl Connection {
    async fn connect(host: SocketAddr, session: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        let (buffer, request) = (Vec::new(), Vec::new());
        Ok(Self { stream, host, session: session.to_owned(), buffer, from: 0, request })
    }

    /// Connects, and opens a session.
    pub(crate) async fn open(host: SocketAddr) -> Result<Self, Failure> {
        let mut own = Self::connect(host, "").await?;
        own.session = match own.exchange(INITIALIZE, &OPENING).await? {
            Answer { status: 200, has_result: true, session: Some(session), .. } => session,
            Answer { status, .. } => return Err(format!("initialize: {status}").into()),
        };
        let answer = own.exchange(INITIALIZED, &NOTHING).await?;
        if answer.status != 202 {
            return Err(format!("initialized: {}", answer.status).into());
        }
        Ok(own)
    }

    /// Connects for a session that is there.
    pub(crate) async fn join(host: SocketAddr, session: &str) -> Result<Self, Failure> {
        Ok(Self::connect(host, session).await?)
    }

    /// Connects for a session that is there, and opens its standalone stream.
    pub(crate) async fn listen(host: SocketAddr, session: &str) -> Result<Self, Failure> {
        let mut own = Self::connect(host, session).await?;
        own.send("GET", "", "").await?;
        match own.head().await? {
            (Answer { status: 200, .. }, _) => Ok(own),
            (Answer { status, .. }, _) => Err(format!("standalone stream: {status}").into()),
        }
    }

    /// Its session's id.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Reads the list of tools, as clients do before they call one.
    pub(crate) async fn list_tools(&mut self) -> Result<(), Failure> {
        match self.exchange(LIST_TOOLS, &OPENING).await? {
            Answer { status: 200, has_result: true, .. } => Ok(()),
            Answer { status, .. } => Err(format!("tools/list: {status}").into()),
        }
    }

    /// Calls a tool and reads its answer to the end: how many events of progress came with it.
    pub(crate) async fn call(
        &mut self,
        id: u64,
        tool: &str,
        arguments: &str,
        has_progress: bool,
    ) -> Result<u64, Failure> {
        self.send_call(id, tool, arguments, has_progress).await?;
        self.answer_of(id, has_progress).await
    }

    /// Calls a tool; nothing is read.
    pub(crate) async fn send_call(
        &mut self,
        id: u64,
        tool: &str,
        arguments: &str,
        has_progress: bool,
    ) -> Result<(), Failure> {
        let meta = if has_progress { r#","_meta":{"progressToken":7}"# } else { "" };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}{meta}}}}}"#
        );
        Ok(self.send("POST", "", &body).await?)
    }

    /// Reads the answer to a call to its end: how many events of progress came with it.
    pub(crate) async fn answer_of(&mut self, id: u64, has_progress: bool) -> Result<u64, Failure> {
        let sought = format!("\"id\":{id},");
        let wanted = Wanted { id: sought.as_bytes(), counts_progress: has_progress };
        match self.answer(&wanted).await? {
            Answer { status: 200, has_result: true, progress, .. } => Ok(progress),
            Answer { status, .. } => Err(format!("call {id}: {status}, no result").into()),
        }
    }

    /// Calls the tool that reports progress, and resets the connection after the first event.
    pub(crate) async fn call_and_cut(mut self, id: u64, arguments: &str) -> Result<Cut, Failure> {
        self.send_call(id, "stream", arguments, true).await?;
        let (Answer { status: 200, .. }, Length::Chunked) = self.head().await? else {
            return Err("a call was not answered with a stream".into());
        };
        let mut text = Vec::new();
        let cursor = loop {
            if let Some(cursor) = first_progress(&text)? {
                break cursor;
            }
            let from = self.chunk_size().await?;
            text.extend_from_slice(&self.buffer[self.from..self.from + from]);
            self.from += from;
            self.fill(2).await?;
            self.from += 2;
        };
        self.stream.set_zero_linger()?;
        Ok(Cut { session: self.session, cursor })
    }

    async fn exchange(&mut self, body: &str, wanted: &Wanted<'_>) -> Result<Answer, Failure> {
        self.send("POST", "", body).await?;
        self.answer(wanted).await
    }

    async fn send(&mut self, method: &str, fields: &str, body: &str) -> io::Result<()> {
        self.request.clear();
        let accept = if method == "GET" { "" } else { "application/json, " };
        let head = format!(
            "{method} /mcp HTTP/1.1\r\nHost: {}\r\nAccept: {accept}text/event-stream\r\n{fields}",
            self.host,
        );
        self.request.extend_from_slice(head.as_bytes());
        if !self.session.is_empty() {
            let session = &self.session;
            let own = format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
            self.request.extend_from_slice(own.as_bytes());
        }
        if method == "POST" {
            let length = body.len();
            let own = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
            self.request.extend_from_slice(own.as_bytes());
        }
        self.request.extend_from_slice(b"\r\n");
        self.request.extend_from_slice(body.as_bytes());
        self.stream.write_all(&self.request).await
    }

    async fn answer(&mut self, wanted: &Wanted<'_>) -> Result<Answer, Failure> {
        let (mut answer, length) = self.head().await?;
        match length {
            Length::Chunked => while self.chunk(&mut answer, wanted).await? {},
            Length::Bytes(length) => self.body(length, &mut answer, wanted).await?,
        }
        Ok(answer)
    }

    async fn head(&mut self) -> Result<(Answer, Length), Failure> {
        let mut answer = Answer::default();
        let end = self.find(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&self.buffer[self.from..end]).into_owned();
        self.from = end;
        answer.status = head.get(9..12).unwrap_or_default().parse()?;
        let field = |sought: &str| {
            head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(sought).then(|| value.trim())
            })
        };
        answer.session = field("mcp-session-id").map(ToOwned::to_owned);
        let length = match field("transfer-encoding") {
            Some("chunked") => Length::Chunked,
            _ => Length::Bytes(field("content-length").unwrap_or("0").parse()?),
        };
        Ok((answer, length))
    }

    async fn chunk_size(&mut self) -> Result<usize, Failure> {
        let end = self.find(b"\r\n").await?;
        let line = std::str::from_utf8(&self.buffer[self.from..end - 2])?;
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16)?;
        self.from = end;
        self.fill(size).await?;
        Ok(size)
    }

    /// Reads one chunk. False after the last.
    async fn chunk(&mut self, answer: &mut Answer, wanted: &Wanted<'_>) -> Result<bool, Failure> {
        let size = self.chunk_size().await?;
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
