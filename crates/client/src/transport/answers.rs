//! What comes from exchanges and waits to be looked at, bounded by number and bytes: whoever has
//! more waits, and so reads no more from its connection.
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::limits::ClientLimits;
use crate::machine::{Answer, ExchangeId};

/// Where the answers go.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    sender: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
    bytes_max: u32,
}

/// Where they come out, in the order in which they went in.
#[derive(Debug)]
pub(crate) struct Answered(mpsc::Receiver<Waiting>);

/// An answer with the room that it takes.
type Waiting = (ExchangeId, Answer, OwnedSemaphorePermit);

/// A way for answers.
pub(crate) fn channel(limits: &ClientLimits) -> (Answers, Answered) {
    let (sender, receiver) = mpsc::channel(limits.answers_queue_max.max(1));
    let bytes_max = u32::try_from(limits.answers_queue_bytes_max.max(1)).unwrap_or(u32::MAX);
    let bytes_max = bytes_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
    let room = Arc::new(Semaphore::new(bytes_max as usize));
    (Answers { sender, room, bytes_max }, Answered(receiver))
}

impl Answers {
    /// Hands an answer over. Waits while there is no room for it; one that is larger than all the
    /// room there is has it for itself.
    pub(super) async fn tell(&self, id: ExchangeId, answer: Answer) {
        let bytes = u32::try_from(bytes(&answer)).unwrap_or(u32::MAX).min(self.bytes_max);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(bytes).await else { return };
        // A driver that has ended needs no answers.
        let _ended = self.sender.send((id, answer, room)).await.is_err();
    }
}

impl Answered {
    /// The next answer. `None`: there is nobody left who could have one.
    pub(crate) async fn recv(&mut self) -> Option<(ExchangeId, Answer)> {
        self.0.recv().await.map(|(id, answer, _room)| (id, answer))
    }
}

/// Bytes that an answer holds.
pub(crate) fn bytes(answer: &Answer) -> usize {
    match answer {
        Answer::Event(event) => {
            let comments: usize = event.comments.iter().map(|comment| comment.len()).sum();
            event.data.len() + comments
        }
        Answer::Body(body) => body.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[tokio::test]
    async fn few_large_answers_fill_the_way_and_each_that_is_taken_makes_room() {
        let limits = ClientLimits { answers_queue_bytes_max: 100, ..ClientLimits::default() };
        let (answers, mut answered) = channel(&limits);
        let body = |bytes| Answer::Body(Bytes::from(vec![b' '; bytes]));
        let fits = async |answer| {
            tokio::select! {
                biased;
                () = answers.tell(ExchangeId(1), answer) => true,
                () = std::future::ready(()) => false,
            }
        };
        assert!(fits(body(60)).await);
        assert!(!fits(body(60)).await);
        assert!(fits(body(40)).await);
        assert!(fits(Answer::Ended).await, "what has no bytes waits for none");
        assert!(!fits(body(1)).await);
        assert!(answered.recv().await.is_some());
        assert!(fits(body(60)).await);
        for _ in 0..3 {
            assert!(answered.recv().await.is_some());
        }
        // Larger than everything: it has the way for itself.
        assert!(fits(body(1_000)).await);
        assert!(!fits(body(1)).await);
    }
}
