//! Where a stream stands: the id of its last event (spec RES-4), as text for another process too.
use http::HeaderValue;
use rejoin_core::session::UpstreamCursor;
use rejoin_core::sse::Mark;

/// Bytes of the longest id that is written down: it is, with every event.
const ID_BYTES_MAX: usize = 1_024;
/// Hexadecimal digits of a mark.
const MARK_DIGITS: usize = 16;

/// Where a stream stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The id that `Last-Event-ID` carries.
    pub(super) id: HeaderValue,
    /// The event of that id: a replay may begin with it.
    pub(super) mark: Mark,
}

impl Cursor {
    /// The cursor behind an event. `None`: an empty id resets the cursor, and one that fits no
    /// header cannot be one.
    pub(super) fn behind(id: &[u8], mark: Mark) -> Option<Self> {
        let id = HeaderValue::from_bytes(id).ok().filter(|id| !id.is_empty())?;
        Some(Self { id, mark })
    }

    /// As text. `None`: the id is none, or too long for that.
    pub(super) fn to_text(&self) -> Option<UpstreamCursor> {
        let id = self.id.to_str().ok().filter(|id| id.len() <= ID_BYTES_MAX)?;
        let Mark(mark) = self.mark;
        Some(format!("{mark:0MARK_DIGITS$x}{id}").into())
    }

    /// The cursor that was written so.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (mark, id) = text.split_at_checked(MARK_DIGITS)?;
        Self::behind(id.as_bytes(), Mark(u64::from_str_radix(mark, 16).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_the_same_in_another_process() {
        let mark = Mark::of(b"stream_7-a", br#"{"jsonrpc":"2.0"}"#);
        let cursor = Cursor::behind(b"stream_7-a", mark).unwrap();
        let text = cursor.to_text().unwrap();
        assert_eq!(&*text, "81303beebdaede7estream_7-a");
        assert_eq!(Cursor::from_text(&text), Some(cursor));
        for text in ["", "0123", "0123456789abcdef", "0123456789abcdeg1", "0123456789abcdef\n"] {
            assert_eq!(Cursor::from_text(text), None, "{text:?}");
        }
        assert_eq!(Cursor::behind(b"", mark), None);
        let long = Cursor::behind(&[b'7'; ID_BYTES_MAX + 1], mark).unwrap();
        assert_eq!(long.to_text(), None, "a server does not fill the log with its ids");
    }
}
