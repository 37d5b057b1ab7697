//! The encoder: whole blocks, appended to a buffer.
use bytes::{BufMut, BytesMut};

/// Appends one event. `data` is split into `data:` lines at CR, LF and CRLF, so a receiver joins
/// it with LF; a JSON message without raw line breaks stays one line, byte for byte.
///
/// An `id` with CR, LF or NUL cannot be written and is left out: the event is then without a
/// cursor, never with a wrong one.
pub fn write_event(out: &mut BytesMut, id: Option<&str>, data: &[u8]) {
    write_id(out, id);
    for line in lines(data) {
        write_line(out, b"data:", line);
    }
    out.put_u8(b'\n');
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
