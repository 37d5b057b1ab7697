//! A connection that does not take the end of its stream is cut.
//!
//! Every stream we end ends with the last chunk (design section 6), but nothing can be handed to a
//! client that takes nothing. Its frame, its socket and its tasks would stay as long as it likes.
//! One that takes it slowly has more time, but not for ever.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::{BodyEnd, Handed, Handover, Orders};
use crate::driver::Mail;
use crate::tap::Wire;

/// What the wait for the end of one exchange needs to see.
pub(super) struct Grace {
    pub(super) orders: watch::Receiver<Orders>,
    pub(super) handed: watch::Receiver<Handed>,
    pub(super) inbox: mpsc::Sender<Mail>,
    pub(super) wire: Wire,
    /// Longest time without progress.
    pub(super) still: Duration,
    /// Longest time in all.
    pub(super) longest: Duration,
}

impl Grace {
    /// Ends once the whole body was taken by this side's kernel, or the connection is gone or cut.
    pub(super) async fn run(self) {
        let mut taken = pin!(taken(self.handed.clone(), &self.wire));
        tokio::select! {
            () = &mut taken => return,
            () = told(self.orders, self.handed, &self.inbox) => {}
        }
        let has_stalled = timeout(self.longest, self.wire.stalled(self.still));
        tokio::select! {
            () = taken => {}
            _either = has_stalled => self.wire.cut(),
        }
    }
}

async fn taken(mut handed: watch::Receiver<Handed>, wire: &Wire) {
    let ended = handed.wait_for(|handed| handed.end.is_some()).await.map(|handed| *handed);
    if let Ok(Handed { newest: Some(Handover { mark: Some(mark), .. }), .. }) = ended {
        // A connection that is gone has nothing left to take.
        let _taken = wire.flushed(mark).await.is_ok();
    }
}

/// Waits until the body was told to end, ended early by itself, or its session is over.
async fn told(
    mut orders: watch::Receiver<Orders>,
    mut handed: watch::Receiver<Handed>,
    inbox: &mpsc::Sender<Mail>,
) {
    let is_early = |end| matches!(end, BodyEnd::Told | BodyEnd::Lost);
    tokio::select! {
        Ok(_) = orders.wait_for(|orders| orders.end.is_some()) => {}
        Ok(_) = handed.wait_for(|handed| handed.end.is_some_and(is_early)) => {}
        () = inbox.closed() => {}
    }
}
