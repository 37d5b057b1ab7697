//! The adapter's end of the event channel.
use std::collections::VecDeque;

use rejoin_core::limits::Limits;
use tokio::sync::{Semaphore, mpsc};

use super::Event;

/// Events that may wait for the driver, at least one and no more than a channel can count.
pub(super) fn events_max(limits: &Limits) -> usize {
    limits.upstream.events_max.clamp(1, Semaphore::MAX_PERMITS / 4)
}

/// The driver dropped its receiver.
#[derive(Debug)]
pub(super) struct DriverGone;

/// The event channel, bounded in bytes as well.
pub(super) struct Outlet {
    events: mpsc::Sender<Event>,
    /// Sizes of the events the driver has not received, oldest first.
    unread: VecDeque<usize>,
    unread_bytes: usize,
    unread_bytes_max: usize,
}

impl Outlet {
    /// An outlet that holds `unread_bytes_max` bytes of messages, or one message of any size.
    pub(super) fn new(events: mpsc::Sender<Event>, unread_bytes_max: usize) -> Self {
        Self { events, unread: VecDeque::new(), unread_bytes: 0, unread_bytes_max }
    }

    /// Waits until the driver is gone.
    pub(super) async fn closed(&self) {
        self.events.closed().await;
    }

    /// Sends an event when there is room for it. Cancel-safe: then it was not sent.
    pub(super) async fn send(&mut self, event: Event) -> Result<(), DriverGone> {
        let size_bytes = match &event {
            Event::Message { message, .. } => message.len(),
            _ => 0,
        };
        loop {
            let free = self.events.capacity();
            while self.unread.len() > self.events.max_capacity() - free {
                self.unread_bytes -= self.unread.pop_front().unwrap_or(0);
            }
            if self.unread_bytes == 0 || self.unread_bytes + size_bytes <= self.unread_bytes_max {
                break;
            }
            // One more free place than now: the driver has received something.
            drop(self.events.reserve_many(free + 1).await.map_err(|_| DriverGone)?);
        }
        self.events.send(event).await.map_err(|_| DriverGone)?;
        self.unread.push_back(size_bytes);
        self.unread_bytes += size_bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Channel;

    #[tokio::test]
    async fn unread_messages_are_bounded_in_bytes() {
        let (sender, mut events) = mpsc::channel(100);
        let mut outlet = Outlet::new(sender, 1_000);
        let message = |size| {
            let (channel, message) = (Channel::Unknown, vec![b'x'; size].into());
            Event::Message { channel, message, cursor: None }
        };
        let task = tokio::spawn(async move {
            for size in [5_000, 400, 400, 400, 200] {
                let _ = outlet.send(message(size)).await;
            }
        });
        let mut sizes = Vec::new();
        for unread in [1, 2, 3, 2, 1] {
            // The sender runs until it must wait: one runtime thread, and nothing else to do.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            assert_eq!(events.len(), unread, "after {sizes:?}");
            if let Some(Event::Message { message, .. }) = events.recv().await {
                sizes.push(message.len());
            }
        }
        assert_eq!(sizes, [5_000, 400, 400, 400, 200]);
        assert!(task.await.is_ok());
    }
}
