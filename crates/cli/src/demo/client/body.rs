//! The framing of an HTTP/1.1 response body (RFC 9112, section 6).

use bytes::{Buf, Bytes, BytesMut};

/// Longest line with a chunk's size, extensions included.
const SIZE_LINE_BYTES_MAX: usize = 4 * 1024;

/// What is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// Its length cannot be known.
    #[error("the length of the response's body is no number")]
    BadLength,
    /// A chunk has no size, or no end.
    #[error("the response's body has a bad chunk")]
    BadChunk,
    /// The connection ended before the body did.
    #[error("the connection ended before the response did")]
    Incomplete,
}

/// Where in a body the reader is.
#[derive(Debug)]
pub(super) enum Body {
    /// This many bytes remain.
    Length(u64),
    /// A chunk's size line is next.
    ChunkSize,
    /// This many bytes of a chunk remain.
    Chunk(u64),
    /// The line end after a chunk is next.
    ChunkEnd,
    /// Trailers, to an empty line.
    Trailers,
    /// It ends with the connection.
    ToEnd,
    /// Over.
    Ended,
}

impl Body {
    /// The body of a response with this head; header names in lower case.
    pub(super) fn of(status: u16, headers: &[(String, String)]) -> Result<Self, BodyError> {
        let header = |name: &str| headers.iter().find(|(known, _)| known == name);
        if status == 204 || status == 304 {
            return Ok(Self::Ended);
        }
        if header("transfer-encoding").is_some() {
            return Ok(Self::ChunkSize);
        }
        match header("content-length") {
            Some((_, length)) => length.parse().map(Self::Length).map_err(|_| BodyError::BadLength),
            None => Ok(Self::ToEnd),
        }
    }

    /// The next bytes of the body, if the buffer holds any.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, BodyError> {
        loop {
            match self {
                Self::Ended | Self::Length(0) => {
                    *self = Self::Ended;
                    return Ok(None);
                }
                Self::ToEnd => {
                    let bytes = buffer.split().freeze();
                    return Ok(Some(bytes).filter(|bytes| !bytes.is_empty()));
                }
                Self::Length(rest) => return Ok(take_some(buffer, rest)),
                Self::Chunk(0) => *self = Self::ChunkEnd,
                Self::Chunk(rest) => return Ok(take_some(buffer, rest)),
                Self::ChunkSize => {
                    let Some(line) = take_line(buffer)? else {
                        return Ok(None);
                    };
                    *self = match chunk_size(&line)? {
                        0 => Self::Trailers,
                        size => Self::Chunk(size),
                    };
                }
                Self::ChunkEnd => match take_line(buffer)? {
                    Some(line) if line.is_empty() => *self = Self::ChunkSize,
                    Some(_) => return Err(BodyError::BadChunk),
                    None => return Ok(None),
                },
                Self::Trailers => match take_line(buffer)? {
                    Some(line) if line.is_empty() => *self = Self::Ended,
                    Some(_) => {}
                    None => return Ok(None),
                },
            }
        }
    }

    /// Whether nothing more belongs to the body.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self, Self::Ended)
    }

    /// The connection has ended.
    pub(super) fn end_of_input(&mut self) -> Result<(), BodyError> {
        match std::mem::replace(self, Self::Ended) {
            Self::Ended | Self::ToEnd => Ok(()),
            _ => Err(BodyError::Incomplete),
        }
    }
}

fn take_some(buffer: &mut BytesMut, rest: &mut u64) -> Option<Bytes> {
    let wanted = usize::try_from(*rest).unwrap_or(usize::MAX).min(buffer.len());
    *rest -= wanted as u64;
    (wanted > 0).then(|| buffer.split_to(wanted).freeze())
}

fn take_line(buffer: &mut BytesMut) -> Result<Option<Bytes>, BodyError> {
    let Some(end) = buffer.windows(2).position(|window| window == b"\r\n") else {
        let bounded = buffer.len() <= SIZE_LINE_BYTES_MAX;
        return if bounded { Ok(None) } else { Err(BodyError::BadChunk) };
    };
    let line = buffer.split_to(end).freeze();
    buffer.advance(2);
    Ok(Some(line))
}

fn chunk_size(line: &[u8]) -> Result<u64, BodyError> {
    let text = std::str::from_utf8(line).map_err(|_| BodyError::BadChunk)?;
    let digits = text.split(';').next().unwrap_or_default().trim();
    u64::from_str_radix(digits, 16).map_err(|_| BodyError::BadChunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a chunked body that arrives in pieces of this size.
    fn read(wire: &[u8], piece_bytes: usize) -> Result<Vec<u8>, BodyError> {
        let (mut body, mut buffer, mut whole) = (Body::ChunkSize, BytesMut::new(), Vec::new());
        for piece in wire.chunks(piece_bytes) {
            buffer.extend_from_slice(piece);
            while let Some(bytes) = body.take(&mut buffer)? {
                whole.extend_from_slice(&bytes);
            }
        }
        body.end_of_input().map(|()| whole)
    }

    #[test]
    fn chunks_are_joined_wherever_the_wire_splits_them() {
        let wire = b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nName: value\r\n\r\n";
        for piece_bytes in 1..=wire.len() {
            assert_eq!(read(wire, piece_bytes).unwrap(), b"abc0123456789");
        }
    }

    #[test]
    fn a_body_cut_off_is_not_complete() {
        let wire = b"3\r\nabc\r\n0\r\n";
        assert_eq!(read(wire, 4), Err(BodyError::Incomplete));
        assert_eq!(read(b"3\r\nab", 4), Err(BodyError::Incomplete));
    }

    #[test]
    fn a_size_that_is_no_number_is_refused() {
        assert_eq!(read(b"zz\r\nabc\r\n", 64), Err(BodyError::BadChunk));
        assert_eq!(read(b"3\r\nabcd\r\n", 64), Err(BodyError::BadChunk));
    }

    #[test]
    fn a_length_ends_the_body_and_leaves_the_rest() {
        let headers = [("content-length".to_owned(), "2".to_owned())];
        let mut body = Body::of(200, &headers).unwrap();
        let mut buffer = BytesMut::from(&b"abc"[..]);
        assert_eq!(body.take(&mut buffer).unwrap().unwrap(), "ab");
        assert_eq!(body.take(&mut buffer).unwrap(), None);
        assert!(body.is_ended());
        assert_eq!(buffer, "c");
    }
}
