//! Messages Rejoin writes itself, and the one-line form stdio needs.
use bytes::Bytes;

use super::text::write_string;

/// An error response. Without `id` (as JSON text) it carries `"id":null`; `data` is JSON text.
pub fn error_response(id: Option<&[u8]>, code: i64, message: &str, data: Option<&[u8]>) -> Bytes {
    let mut out = start(Some(id.unwrap_or(b"null")));
    out.extend_from_slice(b",\"error\":{\"code\":");
    out.extend_from_slice(code.to_string().as_bytes());
    out.extend_from_slice(b",\"message\":");
    write_string(message.as_bytes(), &mut out);
    write_raw_member("data", data, &mut out);
    out.push(b'}');
    end(out)
}

/// A response; `id` and `result` are JSON text.
pub fn response(id: &[u8], result: &[u8]) -> Bytes {
    let mut out = start(Some(id));
    write_raw_member("result", Some(result), &mut out);
    end(out)
}

/// A request; `id` and `params` are JSON text.
pub fn request(id: &[u8], method: &str, params: Option<&[u8]>) -> Bytes {
    call(start(Some(id)), method, params)
}

/// A notification; `params` is JSON text.
pub fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    call(start(None), method, params)
}

/// The message on one line, as the stdio transport needs it. In JSON a raw CR or LF can only be
/// whitespace between tokens, so each becomes a space. No copy if there is none.
pub fn single_line(message: Bytes) -> Bytes {
    let is_line_end = |byte: u8| byte == b'\n' || byte == b'\r';
    if !message.iter().any(|&byte| is_line_end(byte)) {
        return message;
    }
    message.iter().map(|&byte| if is_line_end(byte) { b' ' } else { byte }).collect()
}

fn start(id: Option<&[u8]>) -> Vec<u8> {
    let mut out = b"{\"jsonrpc\":\"2.0\"".to_vec();
    write_raw_member("id", id, &mut out);
    out
}

fn call(mut out: Vec<u8>, method: &str, params: Option<&[u8]>) -> Bytes {
    out.extend_from_slice(b",\"method\":");
    write_string(method.as_bytes(), &mut out);
    write_raw_member("params", params, &mut out);
    end(out)
}

fn write_raw_member(key: &str, value: Option<&[u8]>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        out.push(b',');
        write_string(key.as_bytes(), out);
        out.push(b':');
        out.extend_from_slice(value);
    }
}

fn end(mut out: Vec<u8>) -> Bytes {
    out.push(b'}');
    out.into()
}
