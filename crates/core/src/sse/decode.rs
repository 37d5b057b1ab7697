//! The decoder: lines, then blocks.
use bytes::{Buf, Bytes, BytesMut};

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One block of an SSE stream: everything between two blank lines.
///
/// Blocks without `data` are events here too, because an `id` alone moves a client's cursor
/// (SEP-1699). Blocks in which nothing was understood are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Value of the last usable `id` field; empty resets the cursor. `None`: the block had none.
    /// An id with a NUL byte is ignored (HTML standard 9.2.6).
    pub id: Option<Bytes>,
    /// Value of the last `event` field.
    pub name: Option<Bytes>,
    /// The `data` lines joined by LF.
    pub data: Bytes,
    /// Reconnection time in milliseconds, if the block had a `retry` field of digits only.
    pub retry_ms: Option<u64>,
    /// Whether the block had a `data` line at all; one empty line is data too.
    pub has_data: bool,
    /// The comments, each without its colon and one leading space.
    pub comments: Vec<Bytes>,
}

impl Event {
    /// Whether a browser would dispatch the block as `message`: no event name, an empty one, or
    /// that very name.
    pub fn is_message(&self) -> bool {
        self.name.as_ref().is_none_or(|name| name.is_empty() || name.as_ref() == b"message")
    }

    fn is_blank(&self) -> bool {
        self.id.is_none()
            && self.name.is_none()
            && self.retry_ms.is_none()
            && !self.has_data
            && self.comments.is_empty()
    }
}

/// What was wrong with a stream. The decoder stays usable after either error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The block is dropped; decoding goes on after its blank line.
    #[error(
        "an SSE event is larger than {event_bytes_max} bytes and was dropped: \
         make the sender send less at once, or raise `--limit event_bytes_max=`"
    )]
    EventTooLarge {
        /// The limit in bytes.
        event_bytes_max: usize,
    },
    /// The stream ended inside a block, which the HTML standard says to discard.
    #[error("the SSE stream ended inside an event, {bytes} bytes were discarded: it was cut off")]
    Incomplete {
        /// Bytes of the block that had arrived.
        bytes: usize,
    },
}

/// Incremental decoder of one SSE stream. Linear in its input; holds at most one event up to the
/// limit, and what was pushed and not yet asked for.
#[derive(Debug)]
pub struct Decoder {
    event_bytes_max: usize,
    buffer: BytesMut,
    /// Bytes at the front of `buffer` known to hold no line end, so that none is looked at twice.
    scanned: usize,
    event: Event,
    /// The block's data lines, each followed by LF.
    data: Vec<u8>,
    /// Cost of the block's complete lines, in bytes.
    block_bytes: usize,
    skip_line_feed: bool,
    at_start: bool,
    /// The current block was too large; everything up to its blank line is dropped.
    dropping: bool,
    /// While dropping: the current line has bytes, so its end is not a blank line.
    dropped_line: bool,
}

impl Decoder {
    /// A decoder that refuses blocks larger than `event_bytes_max` bytes. All lines of a block
    /// count, with their ends; a comment counts the size of its handle in memory as well.
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            buffer: BytesMut::new(),
            scanned: 0,
            event: Event::default(),
            data: Vec::new(),
            block_bytes: 0,
            skip_line_feed: false,
            at_start: true,
            dropping: false,
            dropped_line: false,
        }
    }

    /// Adds bytes of the stream. Call [`Self::next_event`] until it gives `None` before the next
    /// push, since the limit is applied there.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete block, `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`DecodeError::EventTooLarge`], once for each block beyond the limit.
    pub fn next_event(&mut self) -> Result<Option<Event>, DecodeError> {
        if !self.strip_byte_order_mark() {
            return Ok(None);
        }
        loop {
            if self.skip_line_feed && !self.buffer.is_empty() {
                self.skip_line_feed = false;
                if self.buffer[0] == b'\n' {
                    self.buffer.advance(1);
                }
            }
            let rest = &self.buffer[self.scanned..];
            let Some(found) = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
                self.scanned = self.buffer.len();
                return self.check_unfinished_line().map(|()| None);
            };
            let line_bytes = self.scanned + found;
            self.scanned = 0;
            let line = self.buffer.split_to(line_bytes);
            // A CR ends the line at once; waiting for a possible LF would delay the event.
            self.skip_line_feed = self.buffer[0] == b'\r';
            self.buffer.advance(1);
            if self.dropping {
                self.dropping = self.dropped_line || !line.is_empty();
                self.dropped_line = false;
            } else if line.is_empty() {
                if let Some(event) = self.take_event() {
                    return Ok(Some(event));
                }
            } else {
                self.block_bytes += line.len() + 1;
                if line[0] == b':' {
                    self.block_bytes += size_of::<Bytes>();
                }
                if self.block_bytes > self.event_bytes_max {
                    return Err(self.drop_block(false));
                }
                self.handle_line(&line);
            }
        }
    }

    /// Whether part of an event has arrived, other than a comment, and its end has not.
    pub fn is_inside_event(&self) -> bool {
        !self.data.is_empty() || self.buffer.first().is_some_and(|&byte| byte != b':')
    }

    /// Bytes of an event that has not come whole, and of what was not asked for yet.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len() + self.block_bytes
    }

    /// Ends the stream. Events already pushed and not asked for are lost, so drain first.
    ///
    /// # Errors
    /// [`DecodeError::Incomplete`] if the stream ended inside a block, which is discarded. A stream
    /// that ended with a line but without the blank line after it is incomplete too.
    pub fn finish(self) -> Result<(), DecodeError> {
        let line_bytes = match self.buffer.as_ref() {
            b"\n" if self.skip_line_feed => 0,
            rest => rest.len(),
        };
        let bytes = self.block_bytes + line_bytes;
        if bytes > 0 || self.dropping {
            return Err(DecodeError::Incomplete { bytes });
        }
        Ok(())
    }

    /// Whether the start of the stream is settled, so that lines can be read.
    fn strip_byte_order_mark(&mut self) -> bool {
        if !self.at_start {
            return true;
        }
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.advance(BYTE_ORDER_MARK.len());
        } else if BYTE_ORDER_MARK.starts_with(&self.buffer) {
            return false;
        }
        self.at_start = false;
        true
    }

    fn check_unfinished_line(&mut self) -> Result<(), DecodeError> {
        if self.dropping {
            self.dropped_line |= !self.buffer.is_empty();
            self.buffer.clear();
            self.scanned = 0;
        } else if self.block_bytes + self.buffer.len() > self.event_bytes_max {
            self.buffer.clear();
            self.scanned = 0;
            return Err(self.drop_block(true));
        }
        Ok(())
    }

    fn drop_block(&mut self, in_line: bool) -> DecodeError {
        self.event = Event::default();
        self.data = Vec::new();
        self.block_bytes = 0;
        self.dropping = true;
        self.dropped_line = in_line;
        DecodeError::EventTooLarge { event_bytes_max: self.event_bytes_max }
    }

    fn take_event(&mut self) -> Option<Event> {
        self.block_bytes = 0;
        let mut event = std::mem::take(&mut self.event);
        let mut data = std::mem::take(&mut self.data);
        data.pop();
        // Exactly as large as it says: events are kept for long and counted by their length.
        event.data = data.into_boxed_slice().into();
        (!event.is_blank()).then_some(event)
    }

    fn handle_line(&mut self, line: &[u8]) {
        let colon = line.iter().position(|&byte| byte == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"" => self.event.comments.push(Bytes::copy_from_slice(value)),
            b"data" => {
                self.event.has_data = true;
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"id" if !value.contains(&0) => self.event.id = Some(Bytes::copy_from_slice(value)),
            b"event" => self.event.name = Some(Bytes::copy_from_slice(value)),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                // A number beyond 64 bits is no time to wait: ignored like other junk.
                let digits = std::str::from_utf8(value).unwrap_or_default();
                self.event.retry_ms = digits.parse().ok().or(self.event.retry_ms);
            }
            _ => {}
        }
    }
}
