//! Log before send, claim before call: what must be durable before anything is carried out.

use std::time::Duration;

use rejoin_core::effect::{Batch, Event, Eviction};
use rejoin_core::id::CallId;
use rejoin_core::token::DedupRecord;
use rejoin_store::CommitError;
use tokio::time::sleep;

use super::Driver;

/// Tries of a commit that certainly did nothing, before the session ends.
const TRIES_MAX: u32 = 6;
/// Pause after the first try; doubled after each. Together about 3 s.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// A batch was not committed.
pub(super) enum Uncommitted {
    /// A row that it writes has another owner.
    TokenTaken {
        /// The call that writes it.
        call: CallId,
        /// The row that was there first.
        record: Box<DedupRecord>,
    },
    /// The store cannot, or nobody knows.
    Failed,
}

impl Driver {
    pub(super) async fn commit(&mut self, mut batch: Batch) -> Result<(), Uncommitted> {
        if batch.is_empty() {
            return Ok(());
        }
        let session = self.session.start().session;
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        loop {
            let commit = self.store.commit(session, self.fence, self.version, batch.clone());
            let error = match commit.await {
                Ok(version) => {
                    self.version = version;
                    return Ok(());
                }
                Err(error) => error,
            };
            match error {
                CommitError::TokenTaken { key, record } => {
                    let refused = batch.dedup.iter().find(|write| write.key == key);
                    let Some(write) = refused else { return Err(Uncommitted::Failed) };
                    tracing::debug!(session = %self.tag, "the row of a call has another owner");
                    return Err(Uncommitted::TokenTaken { call: write.record.owner.call, record });
                }
                CommitError::OverQuota(_) if has_old(&batch) => {
                    // A store counts what is added before what is given back: that goes first.
                    self.evict_first(take_old(&mut batch)).await?;
                }
                CommitError::Io(_) | CommitError::OverQuota(_) if tries < TRIES_MAX => {
                    tracing::warn!(session = %self.tag, %error, "a commit is tried again");
                    tries += 1;
                    sleep(pause).await;
                    pause *= 2;
                }
                error => {
                    tracing::error!(session = %self.tag, %error, "a commit failed");
                    return Err(Uncommitted::Failed);
                }
            }
        }
    }
}

impl Driver {
    async fn evict_first(&mut self, evictions: Vec<Eviction>) -> Result<(), Uncommitted> {
        let session = self.session.start().session;
        let batch = Batch { evictions, ..Batch::default() };
        match self.store.commit(session, self.fence, self.version, batch).await {
            Ok(version) => self.version = version,
            Err(error) => {
                tracing::error!(session = %self.tag, %error, "an eviction failed");
                return Err(Uncommitted::Failed);
            }
        }
        Ok(())
    }
}

/// True if an eviction is of what was there before, not of what its batch adds.
fn is_of_old(eviction: &Eviction, batch: &Batch) -> bool {
    let covers = |event: &Event| eviction.stream == event.stream && event.seq <= eviction.through;
    !batch.events.iter().any(covers)
}

fn has_old(batch: &Batch) -> bool {
    batch.evictions.iter().any(|eviction| is_of_old(eviction, batch))
}

/// Takes the evictions that can be committed before the rest of their batch.
fn take_old(batch: &mut Batch) -> Vec<Eviction> {
    let evictions = std::mem::take(&mut batch.evictions);
    let (old, own) = evictions.into_iter().partition(|eviction| is_of_old(eviction, batch));
    batch.evictions = own;
    old
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rejoin_core::effect::EventKind;
    use rejoin_core::id::{Seq, StreamId};

    use super::*;

    #[test]
    fn an_eviction_of_an_event_of_its_own_batch_is_not_committed_before_it() {
        let stream = StreamId(1);
        let event = Event {
            stream,
            seq: Seq(5),
            previous: Seq(4),
            kind: EventKind::Notification,
            last: false,
            payload: Bytes::new(),
        };
        let eviction = |through| Eviction { stream, through: Seq(through), responses_too: false };
        let evictions = vec![eviction(4), eviction(5)];
        let mut batch = Batch { events: vec![event], evictions, ..Batch::default() };
        assert!(has_old(&batch));
        assert_eq!(take_old(&mut batch), [eviction(4)]);
        assert_eq!(batch.evictions, [eviction(5)]);
        assert!(!has_old(&batch), "it is committed with its event, and not tried for ever");
    }
}
