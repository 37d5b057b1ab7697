//! One request and what came back for it.

use std::io::{ErrorKind, Read as _};
use std::time::Duration;

use rejoin_core::sse::Decoder;
use serde_json::Value;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

use super::connect::{Io, socket};
use super::head::Framing;
use super::{Dialer, Head, Request, WireError};
use crate::limits::{
    ANSWER_BYTES_MAX, ELEMENTS_MAX, EVENTS_MAX, HEAD_MAX_MS, MESSAGE_BYTES_MAX, ms,
};
use crate::transcript::Line;

const READ_BYTES: usize = 64 * 1024;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As its framing says.
    Whole,
    /// The connection was closed in the middle of it.
    Cut,
    /// The connection was reset.
    Reset,
}

/// One event of a stream, or the body of an answer that is no stream.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The event's id.
    pub id: Option<String>,
    /// The JSON-RPC message, if there is one.
    pub message: Option<Value>,
    /// The time to wait before the next connection, in milliseconds.
    pub retry_ms: Option<u64>,
    /// When it was read.
    pub at: Instant,
}

/// The next thing of an answer.
#[derive(Clone, Debug)]
pub enum Item {
    /// An event or a body.
    Heard(Heard),
    /// The end.
    End(End),
    /// Nothing came in time.
    Nothing,
}

/// A connection with one request on it. Nothing is read unless a method says so.
#[derive(Debug)]
pub struct Exchange {
    io: Io,
    line: Line,
    input: Vec<u8>,
    head: Option<Head>,
    framing: Option<Framing>,
    decoder: Decoder,
    decoded_bytes: usize,
    events: usize,
    elements: usize,
    plain: Vec<u8>,
    told_plain: bool,
    end: Option<End>,
}

impl Exchange {
    /// Connects and sends a request; reads nothing.
    ///
    /// # Errors
    /// No connection, or the request could not be written.
    pub async fn send(
        dialer: &Dialer,
        request: &Request,
        receive_bytes: Option<usize>,
        line: Line,
    ) -> Result<Self, WireError> {
        let mut io = dialer.connect(receive_bytes).await?;
        line.sent(request);
        let end = Instant::now() + ms(HEAD_MAX_MS);
        let bytes = request.to_bytes(dialer.path());
        let writing = async {
            io.write_all(&bytes).await?;
            io.flush().await
        };
        match timeout_at(end, writing).await {
            Ok(Ok(())) => {}
            Ok(Err(source)) => return Err(WireError::Socket { what: "writing", source }),
            Err(_) => return Err(WireError::Late { waited_ms: HEAD_MAX_MS }),
        }
        Ok(Self {
            io,
            line,
            input: Vec::new(),
            head: None,
            framing: None,
            decoder: Decoder::new(MESSAGE_BYTES_MAX),
            decoded_bytes: 0,
            events: 0,
            elements: 0,
            plain: Vec::new(),
            told_plain: false,
            end: None,
        })
    }

    /// Reads until the head is there.
    ///
    /// # Errors
    /// None came, or what came is no HTTP.
    pub async fn head(&mut self) -> Result<Head, WireError> {
        let end = Instant::now() + ms(HEAD_MAX_MS);
        loop {
            if let Some(head) = &self.head {
                return Ok(head.clone());
            }
            if self.end.is_some() {
                return Err(WireError::Closed);
            }
            if Instant::now() >= end || !self.fill(end).await? {
                return Err(WireError::Late { waited_ms: HEAD_MAX_MS });
            }
        }
    }

    /// The next event or the end, if it comes before `end`.
    ///
    /// # Errors
    /// What came is no HTTP.
    pub async fn next(&mut self, end: Instant) -> Result<Item, WireError> {
        loop {
            if let Some(item) = self.take()? {
                return Ok(item);
            }
            // Comments may come without a pause and without an end.
            if Instant::now() >= end || !self.fill(end).await? {
                return Ok(Item::Nothing);
            }
        }
    }

    /// Takes what the kernel has for this connection now, without waiting for anything: the
    /// runtime may not know yet that bytes are there. (Over TLS only what the runtime knows of.)
    ///
    /// # Errors
    /// What came is no HTTP.
    pub async fn available(&mut self) -> Result<Vec<Item>, WireError> {
        while self.end.is_none() && self.fill_now().await? {}
        let mut items = Vec::new();
        while let Some(item) = self.take()? {
            let ends = matches!(item, Item::End(_));
            items.push(item);
            if ends {
                break;
            }
        }
        Ok(items)
    }

    /// What came so far of a body that is no stream.
    pub fn plain(&self) -> &[u8] {
        &self.plain
    }

    async fn fill_now(&mut self) -> Result<bool, WireError> {
        if !matches!(self.io.inner(), hyper_rustls::MaybeHttpsStream::Http(_)) {
            return self.fill(Instant::now()).await;
        }
        let mut bytes = vec![0; READ_BYTES];
        let read = (&*SockRef::from(socket(&self.io))).read(&mut bytes);
        match read {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Ok(count) => self.take_bytes(&bytes[..count])?,
            Err(_) => self.end = Some(End::Reset),
        }
        Ok(true)
    }

    /// Waits until there is something to read, and leaves it there; says whether there is.
    pub async fn readable(&self, limit: Duration) -> bool {
        let readable = socket(&self.io).readable();
        matches!(tokio::time::timeout(limit, readable).await, Ok(Ok(())))
    }

    /// Ends the connection with a reset, whatever is unread.
    pub fn reset(self) {
        self.line.note("the connection is reset by the probe");
        // If the kernel refuses it, the connection is closed without a reset.
        let _closed = SockRef::from(socket(&self.io)).set_linger(Some(Duration::ZERO));
    }

    /// Reads once; says whether anything came before `end`.
    async fn fill(&mut self, end: Instant) -> Result<bool, WireError> {
        let mut bytes = vec![0; READ_BYTES];
        match timeout_at(end, self.io.read(&mut bytes)).await {
            Err(_) => return Ok(false),
            Ok(Ok(count)) => self.take_bytes(&bytes[..count])?,
            Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => self.take_bytes(&[])?,
            Ok(Err(_)) => self.end = Some(End::Reset),
        }
        Ok(true)
    }

    fn take_bytes(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        if bytes.is_empty() {
            let whole = self.framing == Some(Framing::UntilClose);
            self.end = self.end.or(Some(if whole { End::Whole } else { End::Cut }));
            return Ok(());
        }
        self.input.extend_from_slice(bytes);
        if self.head.is_none() {
            let Some(head) = Head::take(&mut self.input)? else {
                return Ok(());
            };
            self.line.answered(&head);
            self.framing = Some(Framing::of(&head)?);
            self.head = Some(head);
        }
        let (Some(head), Some(framing)) = (&self.head, &mut self.framing) else {
            return Ok(());
        };
        let mut decoded = Vec::new();
        framing.decode(&mut self.input, &mut decoded)?;
        self.decoded_bytes += decoded.len();
        let is_stream = head.is_event_stream();
        let max = if is_stream { ANSWER_BYTES_MAX } else { MESSAGE_BYTES_MAX };
        if self.decoded_bytes > max {
            return Err(WireError::TooMuch { max, unit: "bytes" });
        }
        if is_stream {
            self.decoder.push(&decoded);
        } else {
            self.plain.extend_from_slice(&decoded);
        }
        if *framing == Framing::Ended {
            self.end = Some(End::Whole);
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Item>, WireError> {
        if let Some(item) = self.take_heard()? {
            return Ok(Some(item));
        }
        let Some(end) = self.end else {
            return Ok(None);
        };
        if !self.told_plain {
            self.told_plain = true;
            if !self.plain.is_empty() {
                let plain = std::mem::take(&mut self.plain);
                let message = self.parsed(&plain);
                self.line.heard(None, &String::from_utf8_lossy(&plain));
                self.plain = plain;
                let message = message?;
                let at = Instant::now();
                return Ok(Some(Item::Heard(Heard { id: None, message, retry_ms: None, at })));
            }
        }
        self.line.note(match end {
            End::Whole => "the answer ended",
            End::Cut => "the server closed the connection in the middle of the answer",
            End::Reset => "the server reset the connection",
        });
        Ok(Some(Item::End(end)))
    }

    /// A message, if it is one. Parsed it can take a hundred times the memory of its bytes.
    fn parsed(&mut self, bytes: &[u8]) -> Result<Option<Value>, WireError> {
        let begins = |byte: &&u8| matches!(**byte, b',' | b'[' | b'{');
        self.elements += bytes.iter().filter(begins).count();
        if self.elements > ELEMENTS_MAX {
            return Err(WireError::TooMuch { max: ELEMENTS_MAX, unit: "elements of JSON" });
        }
        Ok(serde_json::from_slice(bytes).ok())
    }

    /// The next event that is already here. One that is too large is left out.
    fn take_heard(&mut self) -> Result<Option<Item>, WireError> {
        loop {
            let Ok(event) = self.decoder.next_event() else {
                continue;
            };
            let Some(event) = event else {
                return Ok(None);
            };
            self.events += 1;
            if self.events > EVENTS_MAX {
                return Err(WireError::TooMuch { max: EVENTS_MAX, unit: "events" });
            }
            let id = event.id.map(|id| String::from_utf8_lossy(&id).into_owned());
            if id.is_none() && !event.has_data && event.retry_ms.is_none() {
                self.line.note("a comment");
                continue;
            }
            self.line.heard(id.as_deref(), &String::from_utf8_lossy(&event.data));
            let message = self.parsed(&event.data)?;
            let at = Instant::now();
            return Ok(Some(Item::Heard(Heard { id, message, retry_ms: event.retry_ms, at })));
        }
    }
}
