//! The body of a POST, whole or not at all.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;
use rejoin_core::limits::Limits;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::headers::content_length;
use crate::room::{ByteRoom, NoRoom};

/// Why a body did not arrive. What came of it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is too long.
    #[error(
        "the body may have at most {bytes_max} bytes: send a smaller message, or raise \
         `--limit body_bytes_max=`"
    )]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// It took too long.
    #[error(
        "the body did not arrive within {limit_ms} ms: send the request again, or raise \
         `--limit request_body_max_ms=`"
    )]
    TooSlow {
        /// The limit.
        limit_ms: u64,
    },
    /// It ended before its declared length.
    #[error("the body ended before its end: send the request again")]
    Cut,
    /// All bodies together are too long.
    #[error(
        "too many large request bodies are in memory: send the request again later, or raise \
         `--limit request_bodies_bytes_max=`"
    )]
    NoRoom,
}

impl From<NoRoom> for BodyError {
    fn from(NoRoom: NoRoom) -> Self {
        Self::NoRoom
    }
}

/// Gives its room back when the last message that shares its bytes is dropped.
struct Counted {
    body: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Reads the whole body, at most `body_bytes_max`, within `request_body_max_ms`. A large one is
/// counted in `room` until nobody has its bytes any more.
///
/// # Errors
/// See [`BodyError`].
pub(crate) async fn whole<B: Body<Data = Bytes>>(
    body: B,
    headers: &HeaderMap,
    limits: &Limits,
    room: &ByteRoom,
) -> Result<Bytes, BodyError> {
    let bytes_max = limits.body_bytes_max;
    if content_length(headers).is_some_and(|length| length > bytes_max as u64) {
        return Err(BodyError::TooLarge { bytes_max });
    }
    let limit_ms = limits.request_body_max_ms;
    timeout(Duration::from_millis(limit_ms), collect(body, bytes_max, room))
        .await
        .unwrap_or(Err(BodyError::TooSlow { limit_ms }))
}

async fn collect<B: Body<Data = Bytes>>(
    body: B,
    bytes_max: usize,
    room: &ByteRoom,
) -> Result<Bytes, BodyError> {
    let mut body = pin!(body);
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut taken = room.take(0)?;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(BodyError::Cut) };
        let Ok(data) = frame.into_data() else { continue };
        let length = first.len().max(whole.len()) + data.len();
        if length > bytes_max {
            return Err(BodyError::TooLarge { bytes_max });
        }
        room.grow(&mut taken, length)?;
        if first.is_empty() {
            first = data;
            continue;
        }
        if whole.is_empty() {
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&data);
    }
    let body = if whole.is_empty() { first } else { whole.freeze() };
    Ok(if taken.num_permits() == 0 {
        body
    } else {
        Bytes::from_owner(Counted { body, _room: taken })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http::HeaderValue;
    use http_body::Frame;
    use http_body_util::{Empty, Full};

    use super::*;

    /// A body of these frames; afterwards it ends, or stays silent.
    struct Frames(VecDeque<Result<Bytes, io::Error>>, bool);

    impl Body for Frames {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            match self.0.pop_front() {
                Some(next) => Poll::Ready(Some(next.map(Frame::data))),
                None if self.1 => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    fn frames(parts: &[&'static str], ends: bool) -> Frames {
        let parts = parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes())));
        Frames(parts.collect(), ends)
    }

    fn limits(body_bytes_max: usize) -> Limits {
        let mut limits = Limits::default();
        limits.body_bytes_max = body_bytes_max;
        limits
    }

    async fn whole<B: Body<Data = Bytes>>(
        body: B,
        headers: &HeaderMap,
        limits: &Limits,
    ) -> Result<Bytes, BodyError> {
        super::whole(body, headers, limits, &ByteRoom::new(limits)).await
    }

    #[tokio::test]
    async fn bodies_have_room_together_until_the_last_of_their_bytes_is_dropped() {
        let mut limits = limits(100);
        (limits.connection_buffer_bytes_max, limits.request_bodies_bytes_max) = (4, 10);
        let (room, none) = (ByteRoom::new(&limits), HeaderMap::new());
        let read = async |parts: &[&'static str]| {
            super::whole(frames(parts, true), &none, &limits, &room).await
        };
        let first = read(&["0123", "45678"]).await.unwrap();
        assert_eq!((&first[..], room.free_bytes()), (&b"012345678"[..], 5));
        assert_eq!(read(&["0123456789"]).await, Err(BodyError::NoRoom));
        assert_eq!(read(&["0123", "456789"]).await, Err(BodyError::NoRoom));
        assert_eq!(room.free_bytes(), 5, "what was refused gave its room back");
        assert!(read(&["0123"]).await.is_ok(), "a small one needs no room");
        let part = first.slice(3..4);
        drop(first);
        assert_eq!(room.free_bytes(), 5);
        drop(part);
        assert_eq!(room.free_bytes(), 10);
    }

    #[tokio::test]
    async fn a_body_is_put_together_up_to_its_limit() {
        let none = HeaderMap::new();
        let read = whole(frames(&["ab", "", "cd", "e"], true), &none, &limits(5)).await;
        assert_eq!(read, Ok(Bytes::from_static(b"abcde")));
        let too_large = Err(BodyError::TooLarge { bytes_max: 4 });
        assert_eq!(whole(frames(&["ab", "cde"], true), &none, &limits(4)).await, too_large);
        let empty = whole(Empty::<Bytes>::new(), &none, &limits(4)).await;
        assert_eq!(empty, Ok(Bytes::new()));
    }

    #[tokio::test]
    async fn a_declared_length_beyond_the_limit_is_refused_before_a_byte_is_read() {
        let mut declared = HeaderMap::new();
        declared.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("5"));
        let unread = Frames(VecDeque::new(), false);
        let read = whole(unread, &declared, &limits(4)).await;
        assert_eq!(read, Err(BodyError::TooLarge { bytes_max: 4 }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_is_given_up_at_its_limit() {
        let limits = limits(100);
        let read = whole(frames(&["{"], false), &HeaderMap::new(), &limits).await;
        assert_eq!(read, Err(BodyError::TooSlow { limit_ms: limits.request_body_max_ms }));
    }

    #[tokio::test]
    async fn a_body_that_breaks_is_no_body() {
        let mut broken = frames(&["{}"], true);
        broken.0.push_back(Err(io::ErrorKind::UnexpectedEof.into()));
        let read = whole(broken, &HeaderMap::new(), &limits(100)).await;
        assert_eq!(read, Err(BodyError::Cut));
    }

    #[tokio::test]
    async fn one_frame_is_not_copied() -> Result<(), Infallible> {
        let bytes = Bytes::from_static(b"{}");
        let read = whole(Full::new(bytes.clone()), &HeaderMap::new(), &limits(100)).await;
        assert_eq!(read.map(|read| read.as_ptr()), Ok(bytes.as_ptr()));
        Ok(())
    }
}
