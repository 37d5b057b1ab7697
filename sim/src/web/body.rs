//! The streams of that server, and the bodies that carry them.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::{mpsc, watch};

/// Events that wait to be read.
const QUEUE_MAX: usize = 8;

/// All events of a stream. Clones are the same.
#[derive(Clone)]
pub struct Log {
    number: u64,
    events: Arc<Mutex<Vec<String>>>,
    /// How many there are, and whether that is all.
    end: Arc<watch::Sender<(usize, bool)>>,
}

impl Log {
    pub fn new(number: u64) -> Self {
        let end = Arc::new(watch::Sender::new((0, false)));
        Self { number, events: Arc::default(), end }
    }

    pub fn add(&self, message: String, is_last: bool) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(message);
        self.end.send_replace((events.len(), is_last));
    }

    /// The events after the first `after`, as they stand on the wire.
    fn after(&self, after: usize) -> String {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.number;
        let numbered = events.iter().enumerate().skip(after);
        numbered.map(|(at, text)| format!("id: {number}-{}\ndata: {text}\n\n", at + 1)).collect()
    }
}

/// A body of that server.
pub enum Said {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<io::Result<Bytes>>),
}

impl Said {
    pub fn whole(bytes: Bytes) -> Self {
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }

    /// A stream from a cursor on, until it ends, is cut, or nobody reads it.
    pub fn follow(log: Log, after: usize, mut cuts: watch::Receiver<u64>) -> Self {
        let (out, reading) = mpsc::channel(QUEUE_MAX);
        cuts.mark_unchanged();
        tokio::spawn(async move {
            let telling = tell(&log, after, &out);
            tokio::select! {
                biased;
                _ = cuts.changed() => {
                    // Whoever reads it learns that there is no more.
                    let _told = out.send(Err(io::ErrorKind::ConnectionReset.into())).await.is_ok();
                }
                _ = telling => {}
            }
        });
        Self::Stream(reading)
    }
}

/// `None`: nobody reads it.
async fn tell(log: &Log, after: usize, out: &mpsc::Sender<io::Result<Bytes>>) -> Option<()> {
    let mut end = log.end.subscribe();
    if after == 0 {
        let prime = format!("id: {}-0\ndata: \n\n", log.number);
        out.send(Ok(prime.into())).await.ok()?;
    }
    let mut at = after;
    loop {
        let (count, is_whole) = *end.borrow_and_update();
        if count > at {
            out.send(Ok(log.after(at).into())).await.ok()?;
            at = count;
        }
        if is_whole {
            return Some(());
        }
        end.changed().await.ok()?;
    }
}

impl Body for Said {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match &mut *self {
            Self::Whole(bytes) => bytes.take().map(Ok),
            Self::Stream(reading) => ready!(reading.poll_recv(context)),
        };
        Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
    }
}
