//! What the socket under an HTTP/1.1 connection can tell about delivery (design sections 3, 6).
//!
//! A write proves nothing: megabytes fit into kernel buffers for a client that reads nothing. So
//! [`Tap`] stands between hyper and the TCP socket and counts what passes, and [`Wire`] answers
//! three questions about each body frame: has our kernel taken it, has the peer's kernel
//! acknowledged it, and how did the connection end. hyper's own connection future answers none
//! of them: a reset after the end of a body makes it return `Ok`.
//!
//! hyper flushes the inner socket only when its own write buffer is empty, and buffers a frame in
//! the same call that took it from the body. So at a flush, every frame handed over so far has
//! been written, and the bytes written so far are exactly the bytes through the newest frame.

mod hangup;
mod preface;
mod progress;
mod socket;
mod tcp;
mod tcp_info;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

pub use self::preface::Protocol;
use self::progress::Shared;
pub use self::socket::{Linger, Tap};
pub use self::transport::{Transport, TransportOptions};

/// The pause between two looks at the acknowledged bytes is this share of the wait so far.
const ACK_POLL_SHARE: u32 = 10;
/// How often a connection is looked at before it counts as stalled.
const STALL_LOOKS: u32 = 10;
/// The shortest such pause.
const ACK_POLL_SHORTEST: Duration = Duration::from_millis(1);
/// The longest such pause.
const ACK_POLL_LONGEST: Duration = Duration::from_millis(20);

/// A position in the order of the body frames handed to one TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// How a TCP connection ended, as far as this side saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireEnd {
    /// The peer ended its side in order. No proof that it read anything (design section 3).
    Fin,
    /// The peer reset the connection: bytes were unread in its kernel, or it was killed.
    Reset,
    /// The kernel gave up: unacknowledged bytes, keep-alive probes or the route timed out.
    TimedOut,
    /// This side closed, and nothing was heard from the peer until the socket was gone.
    ClosedByUs,
}

/// The connection was reset, timed out or was closed before the frame got as far as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection ended before the frame was delivered; the stream can be resumed")]
pub struct WireGone;

/// Why [`Wire::acknowledged_or_stalled`] gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    /// As [`WireGone`].
    #[error("the connection ended before the frame was delivered; the stream can be resumed")]
    Gone,
    /// No byte was newly written or newly acknowledged for the whole stall time.
    #[error("the client stopped taking bytes; the stream can be resumed on a new connection")]
    Stalled,
}

/// The observer's handle to one TCP connection. Clones are cheap and do not keep the socket
/// open; a handle that outlives its connection answers from what was last known.
#[derive(Clone)]
pub struct Wire(Arc<Shared>);

impl Wire {
    /// Marks the frame a response body is about to return from `poll_frame`.
    ///
    /// Must be called inside that `poll_frame`. When the body's `is_end_stream` is true right
    /// after its last frame, hyper writes frame and terminating chunk in one write, and the mark
    /// of that frame covers both. The first mark of a response covers its head.
    pub fn hand(&self) -> Mark {
        Mark(self.0.hand())
    }

    /// Waits until this side's kernel has taken every byte up to the marked frame.
    pub async fn flushed(&self, mark: Mark) -> Result<(), WireGone> {
        let mut events = self.0.subscribe();
        let settled = events
            .wait_for(|progress| {
                let view = progress.view(mark.0);
                view.flushed_bytes.is_some() || view.is_over()
            })
            .await
            .map_err(|_closed| WireGone)?;
        settled.view(mark.0).flushed_bytes.map(drop).ok_or(WireGone)
    }

    /// Waits until the peer's kernel has acknowledged every byte up to the marked frame
    /// (`tcpi_bytes_acked`), and no reset was seen before. With a proxy between, the peer is the
    /// proxy. Still succeeds after the peer's FIN, and after the connection's orderly end.
    pub async fn acknowledged(&self, mark: Mark) -> Result<(), WireGone> {
        self.settle(mark, None).await.map_err(|_gone| WireGone)
    }

    /// As [`Self::acknowledged`], but gives up when the connection makes no byte progress,
    /// neither newly written nor newly acknowledged, for `stall`.
    pub async fn acknowledged_or_stalled(
        &self,
        mark: Mark,
        stall: Duration,
    ) -> Result<(), AckError> {
        self.settle(mark, Some(stall)).await
    }

    /// Waits until the connection makes no byte progress, neither newly written nor newly
    /// acknowledged, for `longest`.
    pub async fn stalled(&self, longest: Duration) {
        let mut clock = StallClock::new(longest);
        while !clock.has_stalled((self.0.written_bytes(), self.0.acked_bytes())) {
            sleep((longest / STALL_LOOKS).max(ACK_POLL_SHORTEST)).await;
        }
    }

    /// Bytes the peer's kernel has acknowledged so far; after the connection's end the last
    /// count. `None` while the socket is being closed or the kernel does not say.
    pub fn acked_bytes(&self) -> Option<u64> {
        self.0.acked_bytes()
    }

    /// Waits for the first end seen: the peer's FIN or reset, a time-out, or the close of the
    /// socket by this side. Called after both a FIN and a reset were seen, it names the reset.
    pub async fn ended(&self) -> WireEnd {
        let mut events = self.0.subscribe();
        let seen = events.wait_for(|progress| progress.end().is_some()).await;
        seen.ok().and_then(|progress| progress.end()).unwrap_or(WireEnd::ClosedByUs)
    }

    /// Number of requests started on this connection.
    pub fn exchange(&self) -> u64 {
        self.0.exchange()
    }

    /// Counts one request as started and returns its number, from 1. Called by the listener.
    pub fn start_exchange(&self) -> u64 {
        self.0.start_exchange()
    }

    /// How many reads have brought bytes so far.
    pub fn reads(&self) -> u64 {
        self.0.reads()
    }

    /// Waits until a request later than number `after` has started on this connection, and returns
    /// how many reads had brought bytes by then. Stays pending when the connection ends without
    /// one: select it against [`Self::ended`].
    pub async fn next_exchange(&self, after: u64) -> u64 {
        let mut events = self.0.subscribe();
        let started = events.wait_for(|progress| progress.exchange() > after).await;
        match started.map(|progress| progress.reads_at_exchange()) {
            Ok(reads) => reads,
            Err(_closed) => std::future::pending().await,
        }
    }

    /// Has the listener cut the connection, whatever of it was not taken yet.
    pub fn cut(&self) {
        self.0.cut();
    }

    /// Waits until somebody asked for the connection to be cut. Called by the listener.
    pub async fn to_be_cut(&self) {
        let mut cut = self.0.cuts();
        if cut.wait_for(|is_asked| *is_asked).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Says that somebody still has to tell what becomes of an exchange, while the guard lives.
    pub fn observe(&self) -> Observation {
        self.0.add_observer();
        Observation(Arc::clone(&self.0))
    }

    /// Waits until what became of all observed exchanges was told, at most for `longest`: a next
    /// request must not be judged before the evidence that it brings about the one before it.
    pub async fn told(&self, longest: Duration) {
        let mut observers = self.0.observers();
        // Not told in time is judged as it stands.
        let _in_time = timeout(longest, observers.wait_for(|count| *count == 0)).await.is_ok();
    }

    async fn settle(&self, mark: Mark, stall: Option<Duration>) -> Result<(), AckError> {
        let mut events = self.0.subscribe();
        let mut stall = stall.map(StallClock::new);
        let started = Instant::now();
        loop {
            // The view is older than the count, so a close seen here has its last count there.
            let view = events.borrow_and_update().view(mark.0);
            let acked_bytes = self.0.acked_bytes();
            if view.is_broken() {
                return Err(AckError::Gone);
            }
            if let (Some(target), Some(acked)) = (view.flushed_bytes, acked_bytes)
                && acked >= target
            {
                return Ok(());
            }
            if view.is_over() {
                return Err(AckError::Gone);
            }
            let counts = (self.0.written_bytes(), acked_bytes);
            if stall.as_mut().is_some_and(|clock| clock.has_stalled(counts)) {
                return Err(AckError::Stalled);
            }
            // The kernel tells nobody of an acknowledgement, so that alone has to be polled.
            let changed = events.wait_for(|progress| progress.view(mark.0) != view);
            let unflushed = view.flushed_bytes.is_none();
            if unflushed && stall.is_none() {
                changed.await.map_err(|_closed| AckError::Gone)?;
            } else if unflushed {
                // Time-out and event are both answered by looking again.
                let _either = timeout(ACK_POLL_LONGEST, changed).await.is_ok();
            } else {
                // A kernel delays an acknowledgement for 40 ms: then looks are still frequent.
                let pause = started.elapsed() / ACK_POLL_SHARE;
                let pause = pause.clamp(ACK_POLL_SHORTEST, ACK_POLL_LONGEST);
                let _either = timeout(pause, changed).await.is_ok();
            }
        }
    }
}

/// The TCP connection under an HTTP/2 request, which others share.
///
/// It tells nothing of delivery: between a body and the socket stands the peer's window, and what
/// was handed over before a flush may still wait for that (design section 6).
#[derive(Clone)]
pub struct SharedWire {
    wire: Wire,
    exchange: u64,
}

impl SharedWire {
    /// For the next request. Called by the listener.
    pub fn start_exchange(wire: &Wire) -> Self {
        Self { wire: wire.clone(), exchange: wire.start_exchange() }
    }

    /// The request's number on its connection, from 1.
    pub fn exchange(&self) -> u64 {
        self.exchange
    }

    /// The connection, whose end can be seen.
    pub(crate) fn connection(&self) -> &Wire {
        &self.wire
    }
}

/// Somebody who still has to tell what becomes of an exchange; see [`Wire::observe`].
pub struct Observation(Arc<Shared>);

impl Drop for Observation {
    fn drop(&mut self) {
        self.0.remove_observer();
    }
}

/// Bytes written and bytes acknowledged.
type Counts = (u64, Option<u64>);

struct StallClock {
    longest: Duration,
    moved_at: Instant,
    counts: Option<Counts>,
}

impl StallClock {
    fn new(longest: Duration) -> Self {
        Self { longest, moved_at: Instant::now(), counts: None }
    }

    fn has_stalled(&mut self, counts: Counts) -> bool {
        if self.counts != Some(counts) {
            self.counts = Some(counts);
            self.moved_at = Instant::now();
        }
        self.moved_at.elapsed() >= self.longest
    }
}
