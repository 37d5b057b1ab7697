//! Log before send, claim before call: what must be durable before anything is carried out.

use std::time::Duration;

use rejoin_core::effect::{Batch, DedupWrite, Eviction};
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
    /// It claimed a token that has an owner.
    TokenTaken {
        /// The claim.
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
                    let refused = batch.dedup.iter().position(|write| write.key == key);
                    let Some(index) = refused else { return Err(Uncommitted::Failed) };
                    if is_claim(&batch.dedup[index]) {
                        let call = batch.dedup[index].record.owner.call;
                        return Err(Uncommitted::TokenTaken { call, record });
                    }
                    // How a call ended is recorded even if its token's row has gone to another by
                    // now (it had expired): only the row is left alone.
                    tracing::info!(session = %self.tag, "a token has a newer owner");
                    batch.dedup.remove(index);
                }
                CommitError::OverQuota(_) if !batch.evictions.is_empty() => {
                    // A store counts what is added before what is given back: that goes first.
                    self.evict_first(std::mem::take(&mut batch.evictions)).await?;
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

/// True if a write makes its call the token's owner; otherwise the call says how it stands.
fn is_claim(write: &DedupWrite) -> bool {
    write.expected != Some(write.record.owner)
}
