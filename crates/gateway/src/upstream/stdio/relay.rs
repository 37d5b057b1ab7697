//! Between the driver's two channels and the tasks that own the pipes.
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::child::{EndOnDrop, is_over};
use super::input::Queue;
use super::output::Incoming;
use crate::upstream::{CallId, CloseReason, Command, Event, NotSentReason};

/// The task that takes the driver's commands. It never waits for the child.
pub(super) struct Intake {
    pub(super) name: Arc<str>,
    pub(super) commands: mpsc::Receiver<Command>,
    /// Only to see the driver go.
    pub(super) events: mpsc::Sender<Event>,
    pub(super) notices: mpsc::Sender<Event>,
    pub(super) queue: Queue,
    pub(super) over: watch::Receiver<bool>,
    pub(super) end: EndOnDrop,
}

impl Intake {
    /// Runs until the driver ends the session or is gone, or the session is over. Then it asks
    /// for the child's end and closes the queue, which closes the child's standard input.
    pub(super) async fn run(self) {
        let Self { name, mut commands, events, notices, queue, mut over, end } = self;
        loop {
            let command = tokio::select! {
                biased;
                () = is_over(&mut over) => break,
                () = events.closed() => break,
                command = commands.recv() => command,
            };
            match command {
                None | Some(Command::End) => break,
                Some(Command::Call { call, message }) => {
                    if let Err(reason) = queue.push_call(call, &message) {
                        refuse(&notices, call, reason).await;
                    }
                }
                Some(Command::Cancel { message, .. } | Command::Send { message }) => {
                    if let Err(reason) = queue.push_other(&message) {
                        let server = &*name;
                        tracing::warn!(server, "a notification or response was dropped: {reason}");
                    }
                }
            }
        }
        // In this order, so that the exit that follows is known to be a wanted one.
        drop(end);
        drop(queue);
        commands.close();
        while let Some(command) = commands.recv().await {
            if let Command::Call { call, .. } = command {
                refuse(&notices, call, NotSentReason::Closed).await;
            }
        }
    }
}

async fn refuse(notices: &mpsc::Sender<Event>, call: CallId, reason: NotSentReason) {
    // The driver is gone if this fails.
    let _ = notices.send(Event::NotSent { call, reason }).await;
}

/// The task that gives the driver its events.
pub(super) struct Delivery {
    pub(super) outlet: Outlet,
    /// What became of calls; from the intake and the writer.
    pub(super) notices: mpsc::Receiver<Event>,
    /// What the child said before it answered `initialize`.
    pub(super) early: Vec<Incoming>,
    pub(super) batches: mpsc::Receiver<Vec<Incoming>>,
    pub(super) reason: oneshot::Receiver<CloseReason>,
}

/// The driver dropped its receiver.
struct DriverGone;

impl Delivery {
    /// Runs until everything is delivered, with the close reason last, or the driver is gone.
    pub(super) async fn run(mut self) {
        // The driver needs to be told nothing once it is gone; the intake sees that too.
        let _ = self.deliver().await;
    }

    async fn deliver(&mut self) -> Result<(), DriverGone> {
        for message in std::mem::take(&mut self.early) {
            self.outlet.message(message).await?;
        }
        let (mut notices_open, mut batches_open) = (true, true);
        while notices_open || batches_open {
            tokio::select! {
                notice = self.notices.recv(), if notices_open => match notice {
                    Some(notice) => self.outlet.send(notice, 0).await?,
                    None => notices_open = false,
                },
                batch = self.batches.recv(), if batches_open => match batch {
                    Some(batch) => self.batch(batch).await?,
                    None => batches_open = false,
                },
                () = self.outlet.events.closed() => return Err(DriverGone),
            }
        }
        let lost = |_| CloseReason::Lost { what: "its supervision stopped".to_owned() };
        let reason = (&mut self.reason).await.unwrap_or_else(lost);
        self.outlet.send(Event::Closed { reason }, 0).await
    }

    async fn batch(&mut self, batch: Vec<Incoming>) -> Result<(), DriverGone> {
        // A call's notice was queued before its first byte left, so it is here before its answer.
        while let Ok(notice) = self.notices.try_recv() {
            self.outlet.send(notice, 0).await?;
        }
        for message in batch {
            self.outlet.message(message).await?;
        }
        Ok(())
    }
}

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

    async fn message(&mut self, incoming: Incoming) -> Result<(), DriverGone> {
        let Incoming { call, message } = incoming;
        let size_bytes = message.len();
        self.send(Event::Message { call, message }, size_bytes).await
    }

    async fn send(&mut self, event: Event, size_bytes: usize) -> Result<(), DriverGone> {
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
    use bytes::Bytes;

    #[tokio::test]
    async fn an_answer_never_overtakes_the_notice_of_its_call() {
        let call = CallId(1);
        // Which of two ready channels is looked at first is random.
        for _ in 0..64 {
            let (events, mut received) = mpsc::channel(4);
            let (notices, noticed) = mpsc::channel(4);
            let (batches, batched) = mpsc::channel(1);
            let (reason, reasoned) = oneshot::channel();
            let message = Bytes::from_static(b"{}");
            let answer = Incoming { call: Some(call), message };
            assert!(notices.send(Event::Sent { call }).await.is_ok());
            assert!(batches.send(vec![answer]).await.is_ok());
            assert!(reason.send(CloseReason::Ended).is_ok());
            drop((notices, batches));
            let delivery = Delivery {
                outlet: Outlet::new(events, 1_000),
                notices: noticed,
                early: Vec::new(),
                batches: batched,
                reason: reasoned,
            };
            delivery.run().await;
            assert_eq!(received.recv().await, Some(Event::Sent { call }));
            assert!(matches!(received.recv().await, Some(Event::Message { .. })));
            assert!(matches!(received.recv().await, Some(Event::Closed { .. })));
            assert_eq!(received.recv().await, None);
        }
    }

    #[tokio::test]
    async fn unread_messages_are_bounded_in_bytes() {
        let (sender, mut events) = mpsc::channel(100);
        let mut outlet = Outlet::new(sender, 1_000);
        let message = |size| Incoming { call: None, message: Bytes::from(vec![b'x'; size]) };
        let task = tokio::spawn(async move {
            for size in [5_000, 400, 400, 400, 200] {
                let _ = outlet.message(message(size)).await;
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
