//! The body of a request, which knows whether the request may have left.
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    Left,
    Answered,
    Revoked,
}

impl Place {
    fn is_away(self) -> bool {
        matches!(self, Self::Left | Self::Answered)
    }
}

/// Whether the first byte of a request may have left.
///
/// The HTTP library asks for the body when it has put the head into its buffer and before it first
/// writes that to the connection, so whoever revokes a request before its body was asked for knows
/// that the request can never arrive whole.
#[derive(Debug)]
pub(in crate::upstream) struct Departure(watch::Sender<Place>);

impl Departure {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Place::Here)))
    }

    /// Of a request that an earlier process made.
    pub(super) fn answered_before() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Place::Answered)))
    }

    /// Stops the request for good. `false`: it may have left.
    pub(super) fn revoke(&self) -> bool {
        self.0.send_if_modified(|place| {
            let here = *place == Place::Here;
            if here {
                *place = Place::Revoked;
            }
            here
        });
        *self.0.borrow() == Place::Revoked
    }

    /// Waits until the request may have left; for ever, if it never does.
    pub(super) async fn left(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.0.subscribe().wait_for(|place| place.is_away()).await;
    }

    /// The response has begun.
    pub(super) fn answer(&self) {
        self.0.send_if_modified(|place| {
            let left = *place == Place::Left;
            if left {
                *place = Place::Answered;
            }
            left
        });
    }

    /// Waits until the response has begun.
    pub(super) async fn answered(&self) {
        let _ = self.0.subscribe().wait_for(|place| *place == Place::Answered).await;
    }

    /// Waits until the request may have left, or never will.
    pub(super) async fn gone(&self) {
        let _ = self.0.subscribe().wait_for(|place| *place != Place::Here).await;
    }

    /// It is about to leave. `false`: it was revoked and must not.
    pub(in crate::upstream) fn leave(&self) -> bool {
        self.0.send_if_modified(|place| {
            let here = *place == Place::Here;
            if here {
                *place = Place::Left;
            }
            here
        });
        self.0.borrow().is_away()
    }
}

/// The request was revoked before it left.
#[derive(Debug, thiserror::Error)]
#[error("the request was revoked")]
pub(super) struct Revoked;

/// The body of one request.
#[derive(Debug)]
pub(super) struct RequestBody {
    bytes: Bytes,
    departure: Arc<Departure>,
}

impl RequestBody {
    pub(super) fn new(bytes: Bytes, departure: Arc<Departure>) -> Self {
        Self { bytes, departure }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Revoked;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Revoked>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        if !self.departure.leave() {
            return Poll::Ready(Some(Err(Revoked)));
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn a_revoked_body_gives_no_byte_and_a_left_one_cannot_be_revoked() {
        let departure = Departure::new();
        assert!(departure.revoke() && departure.revoke());
        let body = RequestBody::new(Bytes::from_static(b"{}"), Arc::clone(&departure));
        assert!(body.collect().await.is_err());

        let departure = Departure::new();
        let body = RequestBody::new(Bytes::from_static(b"{}"), Arc::clone(&departure));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "{}");
        assert!(!departure.revoke());
        departure.left().await;
    }
}
