//! Room for large byte strings, shared by all who hold some.

use std::sync::Arc;

use rejoin_core::limits::Limits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::gateway::Gateway;
use crate::passthrough::PassError;
use crate::post::{BodyError, PostError};

impl Gateway {
    /// Logs, now and then, that a request was refused for lack of room: only the operator can make
    /// more.
    pub(crate) fn log_no_room(&self, error: &PostError) {
        let (PostError::Body(BodyError::NoRoom) | PostError::Pass(PassError::Seat(_))) = error
        else {
            return;
        };
        if let Some(unlogged) = self.may_log_refusal() {
            tracing::warn!(%error, unlogged, "a request was refused");
        }
    }
}

/// Bytes that may be in memory in all (`request_bodies_bytes_max`). Clones share one room.
#[derive(Clone, Debug)]
pub(crate) struct ByteRoom {
    free_bytes: Arc<Semaphore>,
    /// What each holder has for itself: holders are counted elsewhere.
    own_bytes: usize,
}

/// There is no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl ByteRoom {
    /// The room that `limits` leave.
    pub(crate) fn new(limits: &Limits) -> Self {
        let free_bytes = limits.request_bodies_bytes_max.min(Semaphore::MAX_PERMITS);
        Self {
            free_bytes: Arc::new(Semaphore::new(free_bytes)),
            own_bytes: limits.connection_buffer_bytes_max,
        }
    }

    /// Room for a string of `length` bytes; it is free again when the permit is dropped.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn take(&self, length: usize) -> Result<OwnedSemaphorePermit, NoRoom> {
        let bytes = length.saturating_sub(self.own_bytes);
        let bytes = u32::try_from(bytes).map_err(|_| NoRoom)?;
        let free_bytes = Arc::clone(&self.free_bytes);
        free_bytes.try_acquire_many_owned(bytes).map_err(|_| NoRoom)
    }

    /// Makes what was taken enough for `length` bytes.
    ///
    /// # Errors
    /// If there is no room for the rest.
    pub(crate) fn grow(
        &self,
        taken: &mut OwnedSemaphorePermit,
        length: usize,
    ) -> Result<(), NoRoom> {
        let rest = self.take(length.saturating_sub(taken.num_permits()))?;
        taken.merge(rest);
        Ok(())
    }

    /// Bytes that are free.
    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> usize {
        self.free_bytes.available_permits()
    }
}
