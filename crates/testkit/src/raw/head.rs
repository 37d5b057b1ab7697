//! The head of a response (RFC 9112 section 4), or of a request (section 3).

/// A response's status line and header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The header fields in the order they came, names as they were written.
    pub headers: Vec<(String, String)>,
}

/// A request's method and header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    /// The method.
    pub(crate) method: String,
    headers: Vec<(String, String)>,
}

/// A head that is not HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of an HTTP/1.1 head: {line:?}")]
pub struct HeadError {
    /// The line that is wrong.
    pub line: String,
}

impl Head {
    /// Parses the head at the start of `input`, and says how many bytes it took; `None` while it
    /// is incomplete.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, HeadError> {
        let Some((first, headers, taken)) = lines_of(input)? else {
            return Ok(None);
        };
        let status = status_of(&first).ok_or(HeadError { line: first })?;
        Ok(Some((Self { status, headers }, taken)))
    }

    /// The value of a header field, its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }

    /// Whether the body is an SSE stream.
    pub fn is_event_stream(&self) -> bool {
        self.media_type() == "text/event-stream"
    }

    /// The media type without parameters, in lower case; empty if there is none.
    pub fn media_type(&self) -> String {
        let value = self.header("content-type").unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }
}

impl RequestHead {
    /// As [`Head::parse`], for a request.
    pub(crate) fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, HeadError> {
        let Some((first, headers, taken)) = lines_of(input)? else {
            return Ok(None);
        };
        let method = method_of(&first).ok_or(HeadError { line: first })?;
        Ok(Some((Self { method, headers }, taken)))
    }

    /// The value of a header field, its name in any case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }
}

/// The first line, the header fields, and the bytes they took; `None` while the head is incomplete.
#[expect(clippy::type_complexity, reason = "taken apart at once by both callers")]
fn lines_of(input: &[u8]) -> Result<Option<(String, Vec<(String, String)>, usize)>, HeadError> {
    let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&input[..end]);
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) =
            line.split_once(':').ok_or_else(|| HeadError { line: line.to_owned() })?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    Ok(Some((first, headers, end + 4)))
}

fn field<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

fn method_of(line: &str) -> Option<String> {
    let (method, rest) = line.split_once(' ')?;
    rest.ends_with(" HTTP/1.1").then(|| method.to_owned())
}

fn status_of(line: &str) -> Option<u16> {
    let rest = line.strip_prefix("HTTP/1.1 ")?;
    let code = rest.get(..3)?;
    matches!(rest.as_bytes().get(3), None | Some(b' ')).then(|| code.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_parsed_when_it_is_complete() {
        let bytes =
            b"HTTP/1.1 409 Conflict\r\nContent-Type: Application/JSON; x=y\r\nA:b\r\n\r\nrest";
        assert_eq!(Head::parse(&bytes[..30]), Ok(None));
        let (head, taken) = Head::parse(bytes).unwrap().unwrap();
        assert_eq!((head.status, taken), (409, bytes.len() - 4));
        assert_eq!(head.header("a"), Some("b"));
        assert_eq!(head.media_type(), "application/json");
        assert!(!head.is_event_stream());
    }

    #[test]
    fn a_request_has_its_method_and_fields() {
        let bytes = b"POST /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(RequestHead::parse(&bytes[..20]), Ok(None));
        let (head, taken) = RequestHead::parse(bytes).unwrap().unwrap();
        assert_eq!((head.method.as_str(), taken), ("POST", bytes.len() - 2));
        assert_eq!(head.header("content-length"), Some("2"));
        assert!(RequestHead::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn other_protocols_are_refused() {
        assert!(Head::parse(b"HTTP/1.0 200 OK\r\n\r\n").is_err());
        assert!(Head::parse(b"HTTP/1.1 2000 OK\r\n\r\n").is_err());
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\nno field\r\n\r\n").is_err());
    }
}
