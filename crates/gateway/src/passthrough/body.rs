//! The body of an answer that is passed through.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::announced::Listener;
use super::seats::Seat;
use super::tally::{PassedEnd, Tally};
use super::{BoxError, UpstreamBody};

type Stopping = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The gateway stopped in the middle of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Rejoin stopped in the middle of an answer that it passed through")]
struct Stopped;

/// Gives each frame of the server's answer on as it comes. If the server breaks off, so does this:
/// the client's connection then ends without the last chunk, or before the declared length.
/// Dropped, it closes the connection to the server.
pub struct PassedBody {
    /// `None` once it is over.
    body: Option<UpstreamBody>,
    /// Why the server broke off, to be told once all before it was flushed.
    broken: Option<BoxError>,
    stopping: Stopping,
    is_stream: bool,
    listener: Option<Listener>,
    _seat: Seat,
    tally: Tally,
}

impl PassedBody {
    pub(super) fn new(
        body: UpstreamBody,
        stopping: Stopping,
        is_stream: bool,
        listener: Option<Listener>,
        seat: Seat,
        tally: Tally,
    ) -> Self {
        Self { body: Some(body), broken: None, stopping, is_stream, listener, _seat: seat, tally }
    }
}

impl fmt::Debug for PassedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassedBody").finish_non_exhaustive()
    }
}

impl Body for PassedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if this.stopping.as_mut().poll(cx).is_ready() {
            this.body = None;
            this.tally.ends(PassedEnd::Stopped);
            // A stream that we end ends with the last chunk; half a document must not look whole.
            return Poll::Ready((!this.is_stream).then(|| Err(Stopped.into())));
        }
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(listener), Some(data)) = (&mut this.listener, frame.data_ref()) {
                    listener.hear(data);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::info!(%error, "an answer that was passed through broke off");
                (this.body, this.broken) = (None, Some(error));
                this.tally.ends(PassedEnd::ServerFailed);
                // An error ends the connection at once, with what is still in its buffer; while
                // this is pending, that is flushed.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(None) => {
                this.body = None;
                this.tally.ends(PassedEnd::Answered);
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.broken.is_none() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for PassedBody {
    /// A body whose length is known is not asked for more than that.
    fn drop(&mut self) {
        if self.body.as_ref().is_some_and(Body::is_end_stream) {
            self.tally.ends(PassedEnd::Answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::task::Waker;

    use http_body_util::BodyExt as _;
    use http_body_util::combinators::UnsyncBoxBody;
    use rejoin_core::limits::Limits;

    use super::super::seats::Seats;
    use super::*;
    use crate::metrics::Metrics;

    /// One piece, and the break is there already.
    struct Breaking(Option<Bytes>);

    impl Body for Breaking {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let broken = || Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
            Poll::Ready(Some(self.0.take().map_or_else(broken, |piece| Ok(Frame::data(piece)))))
        }
    }

    #[test]
    fn a_break_is_told_after_a_pause_in_which_all_before_it_is_flushed() {
        let seat = Seats::new(&Limits::default()).take([0; 32], true);
        let body: UnsyncBoxBody<_, _> = Breaking(Some(Bytes::from_static(b"x"))).boxed_unsync();
        let stopping = Box::pin(std::future::pending());
        let seat = seat.unwrap_or_else(|error| panic!("{error}"));
        let mut body =
            PassedBody::new(body, stopping, true, None, seat, Tally::start(&Metrics::new()));
        let mut poll = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll(), Poll::Ready(Some(Ok(_)))));
        assert!(poll().is_pending());
        assert!(matches!(poll(), Poll::Ready(Some(Err(_)))));
        assert!(matches!(poll(), Poll::Ready(None)));
    }
}
