//! HTTP/1.1 and event streams as a client reads them; nothing of it is the product's code.

use std::io;
use std::time::Duration;

use tokio::time::sleep;

use crate::history::{Conn, Leave};
use crate::net::End;

/// The answer's head.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        let is_it = |(known, _): &&(String, String)| known.eq_ignore_ascii_case(name);
        self.headers.iter().find(is_it).map(|(_, value)| value.as_str())
    }
}

/// What stands in an event stream, or the whole of another body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Event {
        id: Option<String>,
        data: String,
        retry_ms: Option<u64>,
    },
    Comment(String),
    Whole(String),
    /// The body is complete.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Chunks,
    Length(usize),
}

/// A request's answer, on its connection.
pub struct Exchange {
    end: End,
    /// Bytes that were read and not looked at.
    raw: Vec<u8>,
    framing: Framing,
    /// The body's bytes that were not looked at.
    body: Vec<u8>,
    is_stream: bool,
    is_whole: bool,
    /// A slow reader waits so long before each read.
    pub pause: Duration,
}

fn broken() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

impl Exchange {
    /// Sends a request.
    ///
    /// # Errors
    /// How the connection broke.
    pub async fn send(end: End, request: &[u8]) -> io::Result<Self> {
        end.write_all(request).await?;
        Ok(Self {
            end,
            raw: Vec::new(),
            framing: Framing::Length(0),
            body: Vec::new(),
            is_stream: false,
            is_whole: false,
            pause: Duration::ZERO,
        })
    }

    /// The connection's number.
    pub fn conn(&self) -> Conn {
        self.end.conn()
    }

    /// Leaves the connection.
    pub fn leave(&self, how: Leave) {
        self.end.leave(how);
    }

    /// The connection, if its answer was read to the end.
    pub fn finish(self) -> Option<End> {
        (self.is_whole && self.raw.is_empty()).then_some(self.end)
    }

    async fn more(&mut self) -> io::Result<()> {
        if !self.pause.is_zero() {
            sleep(self.pause).await;
        }
        match self.end.read(&mut self.raw).await? {
            0 => Err(broken()),
            _ => Ok(()),
        }
    }

    /// Reads the head.
    ///
    /// # Errors
    /// How the connection broke.
    pub async fn head(&mut self) -> io::Result<Head> {
        let length = loop {
            match self.raw.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(length) => break length,
                None => self.more().await?,
            }
        };
        let text = String::from_utf8_lossy(&self.raw[..length]).into_owned();
        self.raw.drain(..length + 4);
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(broken)?;
        let pairs = lines.filter_map(|line| line.split_once(": "));
        let headers = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let head = Head { status, headers };
        self.is_stream = head.header("content-type").is_some_and(|t| t.contains("event-stream"));
        self.framing = match head.header("content-length") {
            Some(length) => Framing::Length(length.parse().map_err(|_| broken())?),
            None if head.header("transfer-encoding").is_some() => Framing::Chunks,
            None => Framing::Length(0),
        };
        Ok(head)
    }

    /// Moves what can be from `raw` to `body`; true once that is complete.
    fn decode(&mut self) -> io::Result<bool> {
        if let Framing::Length(left) = self.framing {
            let length = left.min(self.raw.len());
            self.body.extend(self.raw.drain(..length));
            self.framing = Framing::Length(left - length);
            return Ok(left == length);
        }
        loop {
            let Some(line) = self.raw.windows(2).position(|two| two == b"\r\n") else {
                return Ok(false);
            };
            let size = String::from_utf8_lossy(&self.raw[..line]).into_owned();
            let size = usize::from_str_radix(&size, 16).map_err(|_| broken())?;
            if self.raw.len() < line + 2 + size + 2 {
                return Ok(false);
            }
            self.body.extend_from_slice(&self.raw[line + 2..line + 2 + size]);
            self.raw.drain(..line + 2 + size + 2);
            if size == 0 {
                return Ok(true);
            }
        }
    }

    /// Reads the next item.
    ///
    /// # Errors
    /// How the connection broke.
    pub async fn next(&mut self) -> io::Result<Item> {
        loop {
            if !self.is_whole {
                self.is_whole = self.decode()?;
            }
            if self.is_stream {
                if let Some(item) = self.take_item() {
                    return Ok(item);
                }
            } else if self.is_whole && !self.body.is_empty() {
                let body = std::mem::take(&mut self.body);
                return Ok(Item::Whole(String::from_utf8_lossy(&body).into_owned()));
            }
            if self.is_whole {
                return Ok(Item::End);
            }
            self.more().await?;
        }
    }

    /// Comments stand alone, events end with an empty line.
    fn take_item(&mut self) -> Option<Item> {
        let (mut id, mut data, mut retry_ms, mut at) = (None, Vec::new(), None, 0);
        loop {
            let length = self.body[at..].iter().position(|byte| *byte == b'\n')?;
            let line = String::from_utf8_lossy(&self.body[at..at + length]).into_owned();
            let is_first = at == 0;
            at += length + 1;
            if line.is_empty() {
                self.body.drain(..at);
                if is_first {
                    at = 0;
                    continue;
                }
                return Some(Item::Event { id, data: data.join("\n"), retry_ms });
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match field {
                "" if is_first => {
                    self.body.drain(..at);
                    return Some(Item::Comment(value));
                }
                "id" => id = Some(value),
                "data" => data.push(value),
                "retry" => retry_ms = value.parse().ok(),
                _ => {}
            }
        }
    }
}

/// A request's bytes.
pub fn request(method: &str, headers: &[(&str, String)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} /mcp HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if method == "POST" {
        text.push_str("content-type: application/json\r\n");
        text.push_str("accept: application/json, text/event-stream\r\n");
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    } else {
        text.push_str("accept: text/event-stream\r\n");
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}
