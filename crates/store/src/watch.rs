//! Waking readers when a stream grows.

use rejoin_core::id::Seq;
use tokio::sync::watch;

/// Follows a stream's last event. A wake-up is only a hint: what counts is what
/// [`read`](crate::Store::read) returns.
#[derive(Clone, Debug)]
pub struct StreamWatch {
    last: watch::Receiver<Seq>,
}

/// The session was removed, or the store closed: the stream will not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream will not grow: its session was removed")]
pub struct WatchEnded;

impl StreamWatch {
    /// A watch on `last`, which its sender only ever raises.
    pub fn new(last: watch::Receiver<Seq>) -> Self {
        Self { last }
    }

    /// The stream's last event as far as is known ([`Seq::ORIGIN`]: none).
    pub fn last(&self) -> Seq {
        *self.last.borrow()
    }

    /// Waits until the stream's last event is after `after`, and returns it. Returns at once if it
    /// is already, so no wake-up can be lost. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If that can never happen.
    pub async fn passed(&mut self, after: Seq) -> Result<Seq, WatchEnded> {
        let last = self.last.wait_for(|last| *last > after).await;
        last.map(|last| *last).map_err(|_| WatchEnded)
    }
}
