//! A body: chunked, by length, or until the connection closes (RFC 9112 section 6).

use super::head::{Head, RequestHead};

/// A body that breaks its framing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// A chunk does not start with its size in hexadecimal digits.
    #[error("not the size of a chunk: {line:?}")]
    ChunkSize {
        /// What stands there.
        line: String,
    },
    /// A chunk is not followed by CRLF.
    #[error("a chunk is not followed by CRLF")]
    ChunkEnd,
    /// The length is not a number.
    #[error("not a content length: {value:?}")]
    Length {
        /// What stands there.
        value: String,
    },
}

/// How far a body was decoded.
#[derive(Debug)]
pub(crate) struct Body {
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Size,
    Chunk { left: usize },
    ChunkEnd,
    Trailer,
    Length { left: usize },
    UntilClose,
    Ended { chunked: bool },
}

impl Body {
    /// The body that follows `head` as the response to a request other than HEAD.
    pub(crate) fn after(head: &Head) -> Result<Self, BodyError> {
        if matches!(head.status, 204 | 304) {
            return Ok(Self { state: State::Ended { chunked: false } });
        }
        let fields = (head.header("transfer-encoding"), head.header("content-length"));
        Self::framed(fields, State::UntilClose)
    }

    /// The body that follows `head` as a request: without a length there is none.
    pub(crate) fn of_request(head: &RequestHead) -> Result<Self, BodyError> {
        let fields = (head.header("transfer-encoding"), head.header("content-length"));
        Self::framed(fields, State::Ended { chunked: false })
    }

    fn framed(
        (encoding, length): (Option<&str>, Option<&str>),
        unframed: State,
    ) -> Result<Self, BodyError> {
        if encoding.unwrap_or_default().eq_ignore_ascii_case("chunked") {
            return Ok(Self { state: State::Size });
        }
        let Some(value) = length else {
            return Ok(Self { state: unframed });
        };
        let left = value.parse().map_err(|_| BodyError::Length { value: value.to_owned() })?;
        Ok(Self { state: State::Length { left }.settled() })
    }

    /// Moves what can be decoded from the front of `input` to `output`.
    pub(crate) fn decode(
        &mut self,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<(), BodyError> {
        let mut at = 0;
        let result = self.advance(input, &mut at, output);
        input.drain(..at);
        result
    }

    fn advance(
        &mut self,
        input: &[u8],
        at: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyError> {
        loop {
            let rest = &input[*at..];
            match self.state {
                State::Size => {
                    let Some(end) = crlf(rest) else { return Ok(()) };
                    let left = chunk_size(&rest[..end])?;
                    *at += end + 2;
                    self.state = if left == 0 { State::Trailer } else { State::Chunk { left } };
                }
                State::Chunk { left } | State::Length { left } => {
                    if rest.is_empty() {
                        return Ok(());
                    }
                    let taken = left.min(rest.len());
                    out.extend_from_slice(&rest[..taken]);
                    *at += taken;
                    self.state = self.state.less(taken);
                }
                State::ChunkEnd => {
                    let Some(two) = rest.get(..2) else {
                        return Ok(());
                    };
                    if two != b"\r\n" {
                        return Err(BodyError::ChunkEnd);
                    }
                    *at += 2;
                    self.state = State::Size;
                }
                State::Trailer => {
                    let Some(end) = crlf(rest) else { return Ok(()) };
                    *at += end + 2;
                    if end == 0 {
                        self.state = State::Ended { chunked: true };
                    }
                }
                State::UntilClose => {
                    out.extend_from_slice(rest);
                    *at = input.len();
                    return Ok(());
                }
                State::Ended { .. } => return Ok(()),
            }
        }
    }

    /// `Some(true)` after a last chunk, `Some(false)` after the last byte of a length.
    pub(crate) fn ended(&self) -> Option<bool> {
        match self.state {
            State::Ended { chunked } => Some(chunked),
            _ => None,
        }
    }

    /// Whether the end of the connection is the proper end of this body.
    pub(crate) fn ends_by_close(&self) -> bool {
        self.state == State::UntilClose
    }
}

impl State {
    fn less(&self, taken: usize) -> Self {
        match *self {
            Self::Chunk { left } if left == taken => Self::ChunkEnd,
            Self::Chunk { left } => Self::Chunk { left: left - taken },
            Self::Length { left } => Self::Length { left: left - taken }.settled(),
            _ => Self::Ended { chunked: false },
        }
    }

    fn settled(self) -> Self {
        if self == (Self::Length { left: 0 }) { Self::Ended { chunked: false } } else { self }
    }
}

fn crlf(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|two| two == b"\r\n")
}

fn chunk_size(line: &[u8]) -> Result<usize, BodyError> {
    let text = String::from_utf8_lossy(line);
    let digits = text.split(';').next().unwrap_or_default();
    let refused = || BodyError::ChunkSize { line: text.clone().into_owned() };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(refused());
    }
    usize::from_str_radix(digits, 16).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> Head {
        let headers = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Head { status: 200, headers }
    }

    fn decode(body: &mut Body, pieces: &[&[u8]]) -> Result<Vec<u8>, BodyError> {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            body.decode(&mut input, &mut output)?;
        }
        Ok(output)
    }

    #[test]
    fn chunks_split_at_every_byte_are_joined_and_the_last_chunk_ends_them() {
        let bytes = b"5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n";
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        let mut body = Body::after(&head(&[("Transfer-Encoding", "chunked")])).unwrap();
        assert_eq!(decode(&mut body, &pieces[..pieces.len() - 1]).unwrap(), b"hello!");
        assert_eq!(body.ended(), None);
        let mut body = Body::after(&head(&[("Transfer-Encoding", "chunked")])).unwrap();
        assert_eq!(decode(&mut body, &pieces).unwrap(), b"hello!");
        assert_eq!(body.ended(), Some(true));
    }

    #[test]
    fn a_length_ends_after_its_last_byte() {
        let mut body = Body::after(&head(&[("content-length", "3")])).unwrap();
        assert_eq!(decode(&mut body, &[b"ab"]).unwrap(), b"ab");
        assert_eq!(body.ended(), None);
        assert_eq!(decode(&mut body, &[b"cX"]).unwrap(), b"c");
        assert_eq!(body.ended(), Some(false));
        let empty = Body::after(&head(&[("content-length", "0")])).unwrap();
        assert_eq!(empty.ended(), Some(false));
    }

    #[test]
    fn broken_framing_is_an_error() {
        let chunked = || Body::after(&head(&[("transfer-encoding", "chunked")])).unwrap();
        assert!(decode(&mut chunked(), &[b"xyz\r\n"]).is_err());
        assert_eq!(decode(&mut chunked(), &[b"1\r\nab\r\n"]), Err(BodyError::ChunkEnd));
        assert!(Body::after(&head(&[("content-length", "-1")])).is_err());
    }
}
