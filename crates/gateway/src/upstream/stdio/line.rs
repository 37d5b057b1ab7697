//! Splits a byte stream into lines, in linear time and bounded memory, sans I/O.
use bytes::{Bytes, BytesMut};

/// Bytes of a line beyond the limit that are kept from its start, to read an id from.
const HEAD_BYTES: usize = 4 * 1024;
/// Bytes of such a line that are kept from its end: some servers write the id last.
const TAIL_BYTES: usize = 64;
/// An empty buffer that grew beyond this is given back.
const KEPT_BUFFER_BYTES: usize = 1024 * 1024;

/// One line, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// All of it.
    Whole(Bytes),
    /// It was longer than the limit; only its ends were kept.
    TooLong {
        /// Its first bytes.
        head: Bytes,
        /// Its last bytes.
        tail: Bytes,
        /// Its length.
        length_bytes: u64,
    },
}

/// What was kept of a line that is being skipped.
#[derive(Debug)]
struct Skipped {
    head: Bytes,
    tail: Vec<u8>,
    length_bytes: u64,
}

impl Skipped {
    fn new(start: &[u8]) -> Self {
        let head = Bytes::copy_from_slice(&start[..start.len().min(HEAD_BYTES)]);
        let mut skipped = Self { head, tail: Vec::new(), length_bytes: 0 };
        skipped.absorb(start);
        skipped
    }

    fn absorb(&mut self, bytes: &[u8]) {
        self.length_bytes += bytes.len() as u64;
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
    }

    fn finish(self) -> Line {
        let Self { head, tail, length_bytes } = self;
        Line::TooLong { head, tail: tail.into(), length_bytes }
    }
}

/// The splitter. Bytes are read into [`Lines::buffer`], then lines are taken until there is none.
#[derive(Debug)]
pub(super) struct Lines {
    buffer: BytesMut,
    /// Bytes of `buffer` known to hold no newline, so that no byte is looked at twice.
    scanned: usize,
    line_bytes_max: usize,
    skipped: Option<Skipped>,
}

impl Lines {
    /// A splitter for lines of at most `line_bytes_max` bytes.
    pub(super) fn new(line_bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), scanned: 0, line_bytes_max, skipped: None }
    }

    /// The buffer to read into, with room for `room_bytes` more.
    pub(super) fn buffer(&mut self, room_bytes: usize) -> &mut BytesMut {
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BUFFER_BYTES {
            self.buffer = BytesMut::new();
        }
        self.buffer.reserve(room_bytes);
        &mut self.buffer
    }

    /// The next complete line of what was read so far.
    pub(super) fn next_line(&mut self) -> Option<Line> {
        match self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n') {
            Some(offset) => {
                let length = self.scanned + offset;
                let line = self.buffer.split_to(length + 1);
                self.scanned = 0;
                Some(self.complete(&line[..length]))
            }
            None => {
                self.scanned = self.buffer.len();
                self.skip_if_too_long();
                None
            }
        }
    }

    /// What follows the last newline, at the end of the stream.
    pub(super) fn finish(&mut self) -> Option<Line> {
        let rest = self.buffer.split();
        self.scanned = 0;
        if rest.is_empty() && self.skipped.is_none() { None } else { Some(self.complete(&rest)) }
    }

    fn complete(&mut self, end: &[u8]) -> Line {
        if let Some(mut skipped) = self.skipped.take() {
            skipped.absorb(end);
            return skipped.finish();
        }
        if end.len() > self.line_bytes_max {
            return Skipped::new(end).finish();
        }
        // A copy of its own: a kept message must not keep a whole read buffer alive.
        Line::Whole(Bytes::copy_from_slice(end))
    }

    fn skip_if_too_long(&mut self) {
        match &mut self.skipped {
            Some(skipped) => skipped.absorb(&self.buffer),
            None if self.buffer.len() > self.line_bytes_max => {
                self.skipped = Some(Skipped::new(&self.buffer));
            }
            None => return,
        }
        self.buffer.clear();
        self.scanned = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(limit: usize, chunks: &[&[u8]]) -> Vec<Line> {
        let mut lines = Lines::new(limit);
        let mut found = Vec::new();
        for chunk in chunks {
            lines.buffer(chunk.len()).extend_from_slice(chunk);
            while let Some(line) = lines.next_line() {
                found.push(line);
            }
        }
        found.extend(lines.finish());
        found
    }

    fn whole(text: &str) -> Line {
        Line::Whole(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn lines_split_anywhere_are_the_same_lines() {
        let text = b"one\n\ntwo\r\nthree";
        let expected = vec![whole("one"), whole(""), whole("two\r"), whole("three")];
        for cut in 0..text.len() {
            assert_eq!(split(100, &[&text[..cut], &text[cut..]]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_line_beyond_the_limit_is_skipped_to_its_newline_and_its_ends_are_kept() {
        let long = format!("head{}tail", "x".repeat(10_000));
        let chunks: Vec<&[u8]> = long.as_bytes().chunks(7).collect();
        let mut input: Vec<&[u8]> = vec![b"before\n"];
        input.extend(chunks);
        input.push(b"\nafter\n");
        let found = split(20, &input);
        assert_eq!(found.len(), 3);
        assert_eq!((&found[0], &found[2]), (&whole("before"), &whole("after")));
        let Line::TooLong { head, tail, length_bytes } = &found[1] else { panic!("{found:?}") };
        assert!(head.starts_with(b"head") && tail.ends_with(b"tail"), "{head:?} {tail:?}");
        assert_eq!((*length_bytes, tail.len()), (long.len() as u64, TAIL_BYTES));
    }

    #[test]
    fn the_limit_counts_the_line_and_not_its_newline() {
        assert_eq!(split(4, &[b"four\n"]), vec![whole("four")]);
        assert!(matches!(split(4, &[b"fiver\n"])[..], [Line::TooLong { length_bytes: 5, .. }]));
        assert!(matches!(split(4, &[b"fiver"])[..], [Line::TooLong { length_bytes: 5, .. }]));
    }

    #[test]
    fn a_stream_without_newline_uses_bounded_memory() {
        let mut lines = Lines::new(1_000);
        for _ in 0..10_000 {
            lines.buffer(1_000).extend_from_slice(&[b'x'; 1_000]);
            assert_eq!(lines.next_line(), None);
            assert!(lines.buffer.capacity() <= 16_000, "{}", lines.buffer.capacity());
        }
        assert!(matches!(lines.finish(), Some(Line::TooLong { length_bytes: 10_000_000, .. })));
    }
}
