//! Between the driver's two channels and the tasks that own the pipes.
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::child::{EndOnDrop, is_over};
use super::input::Queue;
use super::output::Incoming;
use crate::throttle::Throttle;
use crate::upstream::outlet::{DriverGone, Outlet};
use crate::upstream::{CallId, Channel, CloseReason, Command, Event, NotSentReason};

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
        let mut throttle = Throttle::new(Instant::now());
        loop {
            let command = tokio::select! {
                biased;
                () = is_over(&mut over) => break,
                () = events.closed() => break,
                command = commands.recv() => command,
            };
            match command {
                None | Some(Command::End | Command::Leave) => break,
                Some(Command::Call { call, message }) => {
                    if let Err(reason) = queue.push_call(call, message) {
                        refuse(&notices, call, reason).await;
                    }
                }
                // Standard input has no headers.
                Some(Command::Headers(_)) => {}
                Some(Command::Cancel { message, .. } | Command::Send { message }) => {
                    if let Err(reason) = queue.push_other(message)
                        && let Some(unlogged) = throttle.admit(Instant::now())
                    {
                        let (server, what) = (&*name, "a notification or response was dropped");
                        tracing::warn!(server, unlogged, "{what}: {reason}");
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

fn event(incoming: Incoming) -> Event {
    let channel = incoming.call.map_or(Channel::Unknown, Channel::Call);
    Event::Message { channel, message: incoming.message, cursor: None }
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

impl Delivery {
    /// Runs until everything is delivered, with the close reason last, or the driver is gone.
    pub(super) async fn run(mut self) {
        // The driver needs to be told nothing once it is gone; the intake sees that too.
        let _ = self.deliver().await;
    }

    async fn deliver(&mut self) -> Result<(), DriverGone> {
        for message in std::mem::take(&mut self.early) {
            self.outlet.send(event(message)).await?;
        }
        let (mut notices_open, mut batches_open) = (true, true);
        while notices_open || batches_open {
            tokio::select! {
                notice = self.notices.recv(), if notices_open => match notice {
                    Some(notice) => self.outlet.send(notice).await?,
                    None => notices_open = false,
                },
                batch = self.batches.recv(), if batches_open => match batch {
                    Some(batch) => self.batch(batch).await?,
                    None => batches_open = false,
                },
                () = self.outlet.closed() => return Err(DriverGone),
            }
        }
        let lost = |_| CloseReason::Lost { what: "its supervision stopped".to_owned() };
        let reason = (&mut self.reason).await.unwrap_or_else(lost);
        self.outlet.send(Event::Closed { reason }).await
    }

    async fn batch(&mut self, batch: Vec<Incoming>) -> Result<(), DriverGone> {
        // A call's notice was queued before its first byte left, so it is here before its answer.
        while let Ok(notice) = self.notices.try_recv() {
            self.outlet.send(notice).await?;
        }
        for message in batch {
            self.outlet.send(event(message)).await?;
        }
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
}
