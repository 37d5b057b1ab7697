//! The body of a POST, whole or not at all.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;
use rejoin_core::limits::Limits;
use tokio::time::timeout;

use crate::headers::content_length;

/// Why a body did not arrive. What came of it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is too long.
    #[error("the body may have {bytes_max} bytes: send a smaller message")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// It took too long.
    #[error("the body did not arrive within {limit_ms} ms: send the request again")]
    TooSlow {
        /// The limit.
        limit_ms: u64,
    },
    /// It ended before its declared length.
    #[error("the body ended before its end: send the request again")]
    Cut,
}

/// Reads the whole body, at most `body_bytes_max`, within `request_body_max_ms`.
///
/// # Errors
/// See [`BodyError`].
pub(super) async fn whole<B: Body<Data = Bytes>>(
    body: B,
    headers: &HeaderMap,
    limits: &Limits,
) -> Result<Bytes, BodyError> {
    let bytes_max = limits.body_bytes_max;
    if content_length(headers).is_some_and(|length| length > bytes_max as u64) {
        return Err(BodyError::TooLarge { bytes_max });
    }
    let limit_ms = limits.request_body_max_ms;
    timeout(Duration::from_millis(limit_ms), collect(body, bytes_max))
        .await
        .unwrap_or(Err(BodyError::TooSlow { limit_ms }))
}

async fn collect<B: Body<Data = Bytes>>(body: B, bytes_max: usize) -> Result<Bytes, BodyError> {
    let mut body = pin!(body);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(BodyError::Cut) };
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > bytes_max {
            return Err(BodyError::TooLarge { bytes_max });
        }
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
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
