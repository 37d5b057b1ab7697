//! One stream of the bare server: a buffer of events, read by any connection from any position.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use rejoin_core::sse::write_event;
use serde_json::Value;

/// Most events kept; the tool server sends far fewer in the demo.
const EVENTS_MAX: usize = 100_000;

/// The events of one POST.
pub(super) struct Stream {
    number: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    messages: Vec<Bytes>,
    ended: bool,
    readers: Vec<Waker>,
}

impl Stream {
    pub(super) fn new(number: usize) -> Self {
        Self { number, state: Mutex::default() }
    }

    /// Adds a message; the last one ends the stream.
    pub(super) fn push(&self, message: &str, last: bool) {
        let mut state = self.lock();
        if state.messages.len() < EVENTS_MAX {
            state.messages.push(Bytes::copy_from_slice(message.as_bytes()));
        }
        state.ended |= last;
        state.readers.drain(..).for_each(Waker::wake);
    }

    /// The messages beyond this many.
    pub(super) fn messages_after(&self, seen: usize) -> Vec<Value> {
        let state = self.lock();
        let rest = state.messages.iter().skip(seen);
        rest.filter_map(|message| serde_json::from_slice(message).ok()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of a response that reads a stream.
pub(super) struct StreamBody {
    stream: Arc<Stream>,
    seen: usize,
}

impl StreamBody {
    /// Reads what follows the first `seen` events, then what is added.
    pub(super) fn new(stream: Arc<Stream>, seen: usize) -> Self {
        Self { stream, seen }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = Arc::clone(&self.stream);
        let mut state = stream.lock();
        let Some(message) = state.messages.get(self.seen) else {
            if state.ended {
                return Poll::Ready(None);
            }
            // Polled twice without a message in between, a reader waits once.
            if !state.readers.iter().any(|reader| reader.will_wake(context.waker())) {
                state.readers.push(context.waker().clone());
            }
            return Poll::Pending;
        };
        self.seen += 1;
        let mut event = BytesMut::new();
        write_event(&mut event, Some(&format!("{}-{}", stream.number, self.seen)), message);
        Poll::Ready(Some(Ok(Frame::data(event.freeze()))))
    }
}
