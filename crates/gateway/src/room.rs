//! Room for large byte strings, shared by all who hold some.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rejoin_core::limits::Limits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::gateway::Gateway;
use crate::handle::SessionTag;
use crate::passthrough::PassError;
use crate::post::{BodyError, PostError};
use crate::throttle::SharedThrottle;

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
    pub(crate) fn free_bytes(&self) -> usize {
        self.free_bytes.available_permits()
    }
}

/// Room for the messages on their way to one server, of all its sessions
/// (`upstream_queue_bytes_max`). Clones share one room.
#[derive(Clone, Debug)]
pub struct MessageRoom {
    room: ByteRoom,
    /// What is left for sessions that have little on their way.
    reserve_bytes: usize,
    little_bytes: usize,
    drops: Arc<SharedThrottle>,
}

impl MessageRoom {
    /// The room that `limits` leave.
    pub fn new(limits: &Limits) -> Self {
        // Whatever is taken can be sent, once nothing else is on its way.
        let bytes_min = limits.body_bytes_max.saturating_mul(2);
        let bytes = limits.upstream_queue_bytes_max.max(bytes_min).min(Semaphore::MAX_PERMITS);
        // Nothing is free: queues may hold any number of small messages.
        let room = ByteRoom { free_bytes: Arc::new(Semaphore::new(bytes)), own_bytes: 0 };
        let (reserve_bytes, little_bytes) = (bytes / 4, limits.connection_buffer_bytes_max);
        Self { room, reserve_bytes, little_bytes, drops: Arc::default() }
    }

    /// The share of one more session.
    pub(crate) fn share(&self) -> Share {
        Share { of: self.clone(), held_bytes: Arc::default() }
    }
}

/// What one session has of a room. Whatever others send, one with little on its way finds room.
#[derive(Debug)]
pub(crate) struct Share {
    of: MessageRoom,
    held_bytes: Arc<AtomicUsize>,
}

impl Share {
    /// The same message, which has room until its last clone and slice is dropped.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn hold(&self, message: Bytes) -> Result<Bytes, NoRoom> {
        let MessageRoom { room, reserve_bytes, little_bytes, .. } = &self.of;
        let held = self.held_bytes.load(Ordering::Relaxed).saturating_add(message.len());
        let is_little = held <= *little_bytes;
        if !is_little && room.free_bytes() < message.len().saturating_add(*reserve_bytes) {
            return Err(NoRoom);
        }
        let permit = room.take(message.len())?;
        let held_bytes = Arc::clone(&self.held_bytes);
        held_bytes.fetch_add(message.len(), Ordering::Relaxed);
        Ok(Bytes::from_owner(Held { message, held_bytes, _permit: permit }))
    }

    /// Logs, now and then, that there was no room.
    pub(crate) fn log_drop(&self, server: &str, session: &SessionTag) {
        if let Some(unlogged) = self.of.drops.admit() {
            tracing::warn!(
                server,
                %session,
                unlogged,
                "a message was not sent: those on their way to the server take all \
                 upstream_queue_bytes_max; raise it, or see why the server does not read"
            );
        }
    }
}

/// The owner of a message's bytes.
struct Held {
    message: Bytes,
    held_bytes: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.held_bytes.fetch_sub(self.message.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room_of(queue_bytes: usize, body_bytes: usize) -> MessageRoom {
        let mut limits = Limits::default();
        (limits.upstream_queue_bytes_max, limits.body_bytes_max) = (queue_bytes, body_bytes);
        limits.connection_buffer_bytes_max = 50;
        MessageRoom::new(&limits)
    }

    fn room(bytes: usize) -> MessageRoom {
        room_of(bytes, 1)
    }

    fn bytes(size: usize) -> Bytes {
        Bytes::from(vec![b'x'; size])
    }

    #[test]
    fn small_messages_take_room_until_their_last_slice_is_dropped() {
        let share = room(1_000).share();
        let held: Vec<_> = (0..1_000).map_while(|_| share.hold(bytes(10)).ok()).collect();
        assert_eq!(held.len(), 75, "a quarter is left");
        let slice = held[0].slice(3..4);
        drop(held);
        assert_eq!((&slice[..], share.of.room.free_bytes()), (&b"x"[..], 990));
        drop(slice);
        assert_eq!(share.of.room.free_bytes(), 1_000);
        assert_eq!(share.held_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn sessions_that_send_little_find_room_beside_those_that_want_all() {
        let room = room(1_000);
        let greedy: Vec<_> = (0..5).map(|_| room.share()).collect();
        let mut held = Vec::new();
        for share in greedy.iter().chain(&greedy) {
            held.extend((0..1_000).map_while(|_| share.hold(bytes(10)).ok()));
        }
        assert!(room.room.free_bytes() <= 250);
        assert!(greedy[0].hold(bytes(1)).is_err() && room.share().hold(bytes(51)).is_err());
        assert!(room.share().hold(bytes(50)).is_ok());
    }

    #[test]
    fn every_body_that_is_taken_can_be_sent() {
        assert!(room_of(1, 100).share().hold(bytes(150)).is_ok());
        assert!(room(1_000).share().hold(bytes(1_001)).is_err());
    }
}
