//! The body of an answer that carries a stream: it reads the log by cursor and is woken when the
//! log grows (design section 4, "Sockets read the log by cursor").
//!
//! Nothing is pushed into it. What it holds at any moment is one frame, of about one page of the
//! log, so a slow reader costs no memory, and a replay comes before live events by construction.
//! An event larger than a page leaves in several frames, each read when the one before was taken;
//! it counts as sent with its last one.

mod frame;
mod reader;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::exchange::{BodyEnd, Reporter};
use crate::upstream::Challenge;
use frame::Encoded;
pub(crate) use reader::{Reader, Source};

type Reading = Pin<Box<dyn Future<Output = (Box<Reader>, Encoded)> + Send>>;

/// The event stream of one exchange (`text/event-stream`).
///
/// Every end that is not the connection's own leaves with the last chunk, and the final event in
/// one write with it: `is_end_stream` is true right after its frame (design section 6). Dropped
/// before its end, it tells the session that its stream lost the connection.
pub struct StreamBody {
    state: State,
    reporter: Reporter,
    /// Closed as soon as the server's answer is no challenge. `None`: it cannot be one.
    head: Option<oneshot::Receiver<Challenge>>,
}

enum State {
    Idle(Box<Reader>),
    Reading(Reading),
    Ended,
}

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamBody").finish_non_exhaustive()
    }
}

impl StreamBody {
    pub(crate) fn new(
        reader: Reader,
        reporter: Reporter,
        head: Option<oneshot::Receiver<Challenge>>,
    ) -> Self {
        Self { state: State::Idle(Box::new(reader)), reporter, head }
    }

    /// What the server asks the client for instead of an answer, if it says so within `longest`.
    /// The body is then the one message that says so, and no stream. Before the first frame.
    pub(crate) async fn challenge(&mut self, longest: Duration) -> Option<Challenge> {
        let challenge = timeout(longest, self.head.take()?).await.ok()?.ok()?;
        if let State::Idle(reader) = &mut self.state {
            reader.read_bare();
        }
        Some(challenge)
    }
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let mut reading = match std::mem::replace(&mut this.state, State::Ended) {
            State::Idle(reader) => Box::pin(reader.next()),
            State::Reading(reading) => reading,
            State::Ended => return Poll::Ready(None),
        };
        let polled = reading.as_mut().poll(cx);
        if polled.is_pending() {
            this.state = State::Reading(reading);
        }
        let (reader, encoded) = ready!(polled);
        let Encoded { bytes, sent, milestones, end } = encoded;
        if end.is_none() {
            this.state = State::Idle(reader);
        }
        if bytes.is_empty() {
            this.reporter.end(end.unwrap_or(BodyEnd::Lost));
            this.state = State::Ended;
            return Poll::Ready(None);
        }
        this.reporter.hand(sent, milestones, end);
        Poll::Ready(Some(Ok(http_body::Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended)
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        self.reporter.end(BodyEnd::Lost);
    }
}
