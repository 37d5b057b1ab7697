//! An SSE parser that reports what stands on the wire: every block, also those that a browser
//! would drop, and every comment, each with its place and time.

use std::time::Instant;

/// One block of fields, ended by an empty line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The `id` field.
    pub id: Option<String>,
    /// The `data` lines joined by line feeds; `None` if there was no `data` line at all.
    pub data: Option<String>,
    /// The `retry` field, in milliseconds.
    pub retry: Option<u64>,
    /// The `event` field.
    pub name: Option<String>,
    /// Where the block starts in the decoded body, in bytes.
    pub offset: u64,
    /// When its last byte was read.
    pub at: Instant,
}

impl Event {
    /// The JSON-RPC message of the event; `None` if its data is absent, empty or not JSON.
    pub fn message(&self) -> Option<serde_json::Value> {
        serde_json::from_str(self.data.as_deref()?).ok()
    }

    /// Whether the event carries no message: priming, a repeated cursor, a retry time.
    pub fn is_empty(&self) -> bool {
        self.data.as_deref().unwrap_or_default().is_empty()
    }
}

/// One comment line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// What follows the colon, without one leading space.
    pub text: String,
    /// Where the line starts in the decoded body, in bytes.
    pub offset: u64,
    /// When its last byte was read.
    pub at: Instant,
}

/// A block or a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A block of fields.
    Event(Event),
    /// A comment line.
    Comment(Comment),
}

/// Bytes that are not an event stream as Rejoin promises it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line is not UTF-8.
    #[error("line at byte {offset} is not UTF-8")]
    NotUtf8 {
        /// Where the line starts.
        offset: u64,
    },
    /// A field that no SSE reader knows.
    #[error("unknown field {field:?} in the line at byte {offset}")]
    Field {
        /// The field's name.
        field: String,
        /// Where the line starts.
        offset: u64,
    },
    /// The same field twice in one block (other than `data`).
    #[error("second {field:?} in one block, line at byte {offset}")]
    Twice {
        /// The field's name.
        field: String,
        /// Where the line starts.
        offset: u64,
    },
    /// A `retry` that is not a number of milliseconds.
    #[error("not a retry time: {value:?}")]
    Retry {
        /// What stands there.
        value: String,
    },
}

/// Parses an event stream piece by piece.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    after_cr: bool,
    /// Bytes seen in all.
    seen: u64,
    /// Where the current line starts.
    line_offset: u64,
    block: Option<Event>,
}

impl SseParser {
    /// Takes the next bytes of the body, read at `at`, and gives what they complete.
    pub fn push(&mut self, bytes: &[u8], at: Instant) -> Result<Vec<Item>, SseError> {
        let mut items = Vec::new();
        for &byte in bytes {
            self.seen += 1;
            if byte == b'\n' && self.after_cr {
                self.after_cr = false;
                self.line_offset = self.seen;
                continue;
            }
            self.after_cr = byte == b'\r';
            if matches!(byte, b'\r' | b'\n') {
                let line = std::mem::take(&mut self.line);
                items.extend(self.line_ended(line, at)?);
                self.line_offset = self.seen;
            } else {
                self.line.push(byte);
            }
        }
        Ok(items)
    }

    /// Whether the stream stopped in the middle of a line or a block.
    pub fn is_torn(&self) -> bool {
        !self.line.is_empty() || self.block.is_some()
    }

    fn line_ended(&mut self, line: Vec<u8>, at: Instant) -> Result<Option<Item>, SseError> {
        let offset = self.line_offset;
        if line.is_empty() {
            let finished = self.block.take().map(|event| Item::Event(Event { at, ..event }));
            return Ok(finished);
        }
        let text = String::from_utf8(line).map_err(|_| SseError::NotUtf8 { offset })?;
        let text = if offset == 0 { text.trim_start_matches('\u{feff}') } else { &text };
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        if field.is_empty() {
            return Ok(Some(Item::Comment(Comment { text: value.to_owned(), offset, at })));
        }
        self.field(field, value, offset, at)?;
        Ok(None)
    }

    fn field(
        &mut self,
        field: &str,
        value: &str,
        offset: u64,
        at: Instant,
    ) -> Result<(), SseError> {
        let block = self.block.get_or_insert(Event {
            id: None,
            data: None,
            retry: None,
            name: None,
            offset,
            at,
        });
        let twice = match field {
            "data" => {
                let joined = block.data.take().map(|data| format!("{data}\n{value}"));
                block.data = Some(joined.unwrap_or_else(|| value.to_owned()));
                false
            }
            "id" => block.id.replace(value.to_owned()).is_some(),
            "event" => block.name.replace(value.to_owned()).is_some(),
            "retry" => {
                let refused = |_| SseError::Retry { value: value.to_owned() };
                block.retry.replace(value.parse().map_err(refused)?).is_some()
            }
            _ => {
                return Err(SseError::Field { field: field.to_owned(), offset });
            }
        };
        if twice { Err(SseError::Twice { field: field.to_owned(), offset }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], step: usize) -> Result<Vec<Item>, SseError> {
        let (mut parser, at) = (SseParser::default(), Instant::now());
        let mut items = Vec::new();
        for piece in bytes.chunks(step) {
            items.extend(parser.push(piece, at)?);
        }
        Ok(items)
    }

    fn events(items: &[Item]) -> Vec<&Event> {
        let mut events = Vec::new();
        for item in items {
            if let Item::Event(event) = item {
                events.push(event);
            }
        }
        events
    }

    #[test]
    fn blocks_and_comments_are_the_same_for_every_line_end_and_split() {
        let wire = "id: 1-2-3\nretry: 500\ndata:\n\n: held\n\ndata: a\ndata: \u{e9}\n\n";
        for end in ["\n", "\r\n", "\r"] {
            for step in 1..9 {
                let items = parse(wire.replace('\n', end).as_bytes(), step).unwrap();
                let found = events(&items);
                assert_eq!(found.len(), 2, "{end:?} {step}");
                assert_eq!(found[0].id.as_deref(), Some("1-2-3"));
                assert_eq!((found[0].retry, found[0].data.as_deref()), (Some(500), Some("")));
                assert_eq!(found[1].data.as_deref(), Some("a\n\u{e9}"));
                assert!(matches!(&items[1], Item::Comment(c) if c.text == "held"));
            }
        }
    }

    #[test]
    fn a_block_without_data_is_told_from_one_with_empty_data() {
        let items = parse(b"id: 1\n\nid: 2\ndata\n\n", 3).unwrap();
        assert_eq!(events(&items)[0].data, None);
        assert_eq!(events(&items)[1].data.as_deref(), Some(""));
        assert_eq!(events(&items)[1].offset, 7);
    }

    #[test]
    fn faults_of_a_writer_are_errors() {
        assert!(matches!(parse(b"data: \xff\n", 9), Err(SseError::NotUtf8 { offset: 0 })));
        assert!(matches!(parse(b"dat: x\n", 9), Err(SseError::Field { .. })));
        assert!(matches!(parse(b"id: 1\nid: 2\n", 9), Err(SseError::Twice { offset: 6, .. })));
        assert!(matches!(parse(b"retry: soon\n", 99), Err(SseError::Retry { .. })));
    }

    #[test]
    fn a_stream_cut_inside_a_block_is_torn() {
        let mut parser = SseParser::default();
        parser.push(b"data: 1\n\n", Instant::now()).unwrap();
        assert!(!parser.is_torn());
        parser.push(b"data: 1\n", Instant::now()).unwrap();
        assert!(parser.is_torn());
    }
}
