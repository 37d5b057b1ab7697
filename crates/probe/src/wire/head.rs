//! The head of an answer, and how its body is framed (RFC 9112 sections 4 to 7).

use super::WireError;
use crate::limits::{HEAD_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Status and header fields of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// Names in lower case, with their values.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first value of a field, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Whether the body is a stream of events.
    pub fn is_event_stream(&self) -> bool {
        let kind = self.header("content-type").unwrap_or_default();
        kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
    }

    /// Takes a complete head off the front of `input`; interim answers are left out.
    pub(super) fn take(input: &mut Vec<u8>) -> Result<Option<Self>, WireError> {
        while let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            if end > HEAD_BYTES_MAX {
                break;
            }
            let text = String::from_utf8_lossy(&input[..end]).into_owned();
            input.drain(..end + 4);
            let head = Self::parse(&text)?;
            if head.status >= 200 {
                return Ok(Some(head));
            }
        }
        if input.len() > HEAD_BYTES_MAX {
            return Err(WireError::TooMuch { max: HEAD_BYTES_MAX, unit: "bytes of a head" });
        }
        Ok(None)
    }

    fn parse(text: &str) -> Result<Self, WireError> {
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
        let Some(status) = status.and_then(|status| status.parse().ok()) else {
            let begins: String = first.chars().take(40).collect();
            return Err(WireError::Http { what: format!("it begins with {begins:?}") });
        };
        let fields = lines.filter_map(|line| line.split_once(':'));
        let headers = fields
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Ok(Self { status, headers })
    }
}

/// How far a body was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    ChunkSize,
    Chunk { left: usize },
    ChunkEnd,
    Trailer,
    Length { left: usize },
    UntilClose,
    Ended,
}

impl Framing {
    pub(super) fn of(head: &Head) -> Result<Self, WireError> {
        if matches!(head.status, 204 | 304) {
            return Ok(Self::Ended);
        }
        let encoding = head.header("transfer-encoding").unwrap_or_default();
        if encoding.to_ascii_lowercase().contains("chunked") {
            return Ok(Self::ChunkSize);
        }
        match head.header("content-length").map(str::parse) {
            None => Ok(Self::UntilClose),
            Some(Ok(0)) => Ok(Self::Ended),
            Some(Ok(left)) => Ok(Self::Length { left }),
            Some(Err(_)) => Err(WireError::Http { what: "its length is no number".to_owned() }),
        }
    }

    /// Moves what can be decoded from the front of `input` to `output`.
    pub(super) fn decode(
        &mut self,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        loop {
            match *self {
                Self::ChunkSize => {
                    let Some(line) = take_line(input)? else { return Ok(()) };
                    let left = chunk_size(&line)?;
                    *self = if left == 0 { Self::Trailer } else { Self::Chunk { left } };
                }
                Self::Chunk { left } | Self::Length { left } => {
                    let taken = left.min(input.len());
                    if taken == 0 {
                        return Ok(());
                    }
                    output.extend(input.drain(..taken));
                    *self = match (*self, left - taken) {
                        (Self::Chunk { .. }, 0) => Self::ChunkEnd,
                        (Self::Chunk { .. }, left) => Self::Chunk { left },
                        (_, 0) => Self::Ended,
                        (_, left) => Self::Length { left },
                    };
                }
                Self::ChunkEnd => {
                    let Some(_empty) = take_line(input)? else { return Ok(()) };
                    *self = Self::ChunkSize;
                }
                Self::Trailer => {
                    let Some(line) = take_line(input)? else { return Ok(()) };
                    if line.is_empty() {
                        *self = Self::Ended;
                    }
                }
                Self::UntilClose => {
                    output.append(input);
                    return Ok(());
                }
                Self::Ended => return Ok(()),
            }
        }
    }
}

fn take_line(input: &mut Vec<u8>) -> Result<Option<String>, WireError> {
    let Some(end) = input.windows(2).position(|two| two == b"\r\n") else {
        if input.len() > HEAD_BYTES_MAX {
            return Err(WireError::Http { what: "a line of its chunks does not end".to_owned() });
        }
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&input[..end]).into_owned();
    input.drain(..end + 2);
    Ok(Some(line))
}

fn chunk_size(line: &str) -> Result<usize, WireError> {
    let digits = line.split(';').next().unwrap_or_default().trim();
    let size = usize::from_str_radix(digits, 16).ok().filter(|size| *size <= MESSAGE_BYTES_MAX);
    size.ok_or_else(|| WireError::Http { what: "the size of a chunk is none".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: &[u8], step: usize) -> (Head, Vec<u8>, bool) {
        let (mut input, mut body) = (Vec::new(), Vec::new());
        let mut state: Option<(Head, Framing)> = None;
        for piece in bytes.chunks(step) {
            input.extend_from_slice(piece);
            if state.is_none() {
                let head = Head::take(&mut input).unwrap();
                state = head.map(|head| (head.clone(), Framing::of(&head).unwrap()));
            }
            if let Some((_, framing)) = &mut state {
                framing.decode(&mut input, &mut body).unwrap();
            }
        }
        let (head, framing) = state.unwrap();
        (head, body, framing == Framing::Ended)
    }

    #[test]
    fn answers_are_the_same_however_their_bytes_are_split() {
        let chunked = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: \
            Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n\
            5;x=y\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
        let sized = b"HTTP/1.1 409 Conflict\r\nContent-Length: 6\r\n\r\nhello!";
        for step in 1..chunked.len() {
            let (head, body, ended) = answer(chunked, step);
            assert!(head.status == 200 && head.is_event_stream() && ended, "{step}");
            assert_eq!(body, b"hello!");
            assert_eq!(answer(sized, step).1, b"hello!");
        }
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        assert!(Head::take(&mut b"SSH-2.0-x\r\n\r\n".to_vec()).is_err());
        let mut framing = Framing::ChunkSize;
        assert!(framing.decode(&mut b"zz\r\n".to_vec(), &mut Vec::new()).is_err());
    }

    #[test]
    fn heads_and_lines_that_do_not_end_are_errors() {
        let mut head = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
        head.resize(HEAD_BYTES_MAX + 30, b'x');
        assert!(Head::take(&mut head.clone()).is_err());
        head.extend_from_slice(b"\r\n\r\n");
        assert!(Head::take(&mut head).is_err());
        for mut framing in [Framing::ChunkSize, Framing::ChunkEnd, Framing::Trailer] {
            let mut line = vec![b'0'; HEAD_BYTES_MAX + 1];
            assert!(framing.decode(&mut line, &mut Vec::new()).is_err());
        }
    }
}
