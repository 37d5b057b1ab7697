//! Whether the log can be written, as far as is known.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rejoin_store::{CommitError, CreateError, SessionKey, Store};
use tokio::time::timeout;

use super::CountedStore;

/// The session that a trial writes and removes. No client has it: this is no id's hash.
const TRIAL: SessionKey = [0; 32];
/// How long a trial may take: whoever asks does not wait for a disk that hangs.
const TRIAL_MAX: Duration = Duration::from_secs(2);

/// What the newest write said.
#[derive(Debug, Default)]
pub(super) struct Health {
    is_failing: AtomicBool,
}

impl Health {
    /// Notes what became of a batch.
    pub(super) fn note_commit<T>(&self, committed: &Result<T, CommitError>) {
        match committed {
            Ok(_) => self.note(false),
            Err(CommitError::Io(_) | CommitError::Ambiguous(_)) => self.note(true),
            Err(_) => {}
        }
    }

    /// Notes what became of a new session.
    pub(super) fn note_create<T>(&self, created: &Result<T, CreateError>) {
        match created {
            Ok(_) => self.note(false),
            Err(CreateError::Io(_)) => self.note(true),
            Err(_) => {}
        }
    }

    fn note(&self, is_failing: bool) {
        let was_failing = self.is_failing.swap(is_failing, Ordering::Relaxed);
        match (was_failing, is_failing) {
            (false, true) => tracing::error!("the log cannot be written: nothing is admitted"),
            (true, false) => tracing::info!("the log can be written again"),
            _ => {}
        }
    }
}

impl CountedStore {
    /// True if the log can be written. Once a write failed, this tries another one: without
    /// clients, whom the answer may keep away, there is none.
    pub(crate) async fn is_writable(&self) -> bool {
        if !self.health.is_failing.load(Ordering::Relaxed) {
            return true;
        }
        timeout(TRIAL_MAX, self.try_to_write()).await.unwrap_or(false)
    }

    async fn try_to_write(&self) -> bool {
        let fence = match self.create(TRIAL, [0; 32]).await {
            Ok(opened) => Some(opened.fence),
            // An earlier trial was not removed.
            Err(CreateError::Exists) => {
                self.load(TRIAL).await.ok().flatten().map(|loaded| loaded.fence)
            }
            // A quota says nothing about the disk.
            Err(CreateError::OverQuota(_)) => return true,
            Err(_) => None,
        };
        let Some(fence) = fence else { return false };
        let is_removed = self.remove(TRIAL, fence).await.is_ok();
        self.health.note(!is_removed);
        is_removed
    }
}
