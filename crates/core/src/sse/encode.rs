//! The encoder: blocks, appended to a buffer; only an event can be written in parts.
use bytes::{BufMut, BytesMut};

/// Appends one event. `data` is split into `data:` lines at CR, LF and CRLF, so a receiver joins
/// it with LF; a JSON message without raw line breaks stays one line, byte for byte.
///
/// An `id` with CR, LF or NUL cannot be written and is left out: the event is then without a
/// cursor, never with a wrong one.
pub fn write_event(out: &mut BytesMut, id: Option<&str>, data: &[u8]) {
    let mut event = EventWriter::begin(out, id);
    event.data(out, data);
    event.end(out);
}

/// Writes one event in parts, wherever its data is cut: together they are what [`write_event`]
/// writes. Nothing else may be written before its end.
#[derive(Debug)]
pub struct EventWriter {
    /// The current line has no value yet, nor the space before it.
    line_is_empty: bool,
    /// The data so far ends with CR: a following LF belongs to the same line break.
    ends_with_cr: bool,
}

impl EventWriter {
    /// Appends what comes before the data. For `id` see [`write_event`].
    pub fn begin(out: &mut BytesMut, id: Option<&str>) -> Self {
        write_id(out, id);
        out.put_slice(b"data:");
        Self { line_is_empty: true, ends_with_cr: false }
    }

    /// Appends the next part of the data.
    pub fn data(&mut self, out: &mut BytesMut, part: &[u8]) {
        let Some(last) = part.last() else { return };
        let part = if self.ends_with_cr { part.strip_prefix(b"\n").unwrap_or(part) } else { part };
        self.ends_with_cr = *last == b'\r';
        out.reserve(part.len() + 3);
        for (number, line) in lines(part).enumerate() {
            if number > 0 {
                out.put_slice(b"\ndata:");
                self.line_is_empty = true;
            }
            if !line.is_empty() && std::mem::take(&mut self.line_is_empty) {
                out.put_u8(b' ');
            }
            out.put_slice(line);
        }
    }

    /// Appends the end: from here on a receiver takes the event.
    pub fn end(self, out: &mut BytesMut) {
        out.put_slice(b"\n\n");
    }

    /// Appends the reconnection time in place of the rest of the event. If the stream ends here, a
    /// receiver drops the event and keeps its cursor.
    pub fn break_off(self, out: &mut BytesMut, retry_ms: u64) {
        out.put_u8(b'\n');
        write_line(out, b"retry:", retry_ms.to_string().as_bytes());
    }
}

/// Appends an event that sets the cursor and the reconnection time, and carries nothing: `id:`,
/// `retry:` and an empty `data:` line. Without that line one widely used client hangs (design
/// section 6). For `id` see [`write_event`].
pub fn write_retry_event(out: &mut BytesMut, id: Option<&str>, retry_ms: u64) {
    write_id(out, id);
    write_line(out, b"retry:", retry_ms.to_string().as_bytes());
    write_line(out, b"data:", b"");
    out.put_u8(b'\n');
}

/// Appends a comment as a block of its own, one comment line for each line of `text`.
pub fn write_comment(out: &mut BytesMut, text: &str) {
    for line in lines(text.as_bytes()) {
        write_line(out, b":", line);
    }
    out.put_u8(b'\n');
}

fn write_id(out: &mut BytesMut, id: Option<&str>) {
    let writable = |id: &&str| !id.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if let Some(id) = id.filter(writable) {
        write_line(out, b"id:", id.as_bytes());
    }
}

fn write_line(out: &mut BytesMut, field: &[u8], value: &[u8]) {
    out.reserve(field.len() + value.len() + 3);
    out.put_slice(field);
    if !value.is_empty() {
        out.put_u8(b' ');
        out.put_slice(value);
    }
    out.put_u8(b'\n');
}

/// The lines of `text`, ended by CR, LF or CRLF; always at least one.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = text.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
            rest = None;
            return Some(text);
        };
        let end_bytes = if text[at..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = Some(&text[at + end_bytes..]);
        Some(&text[..at])
    })
}
