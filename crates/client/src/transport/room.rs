//! Room for what of answers has come and is not whole yet, shared by all exchanges of a client.
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::sleep;

use crate::limits::ClientLimits;

/// What each exchange has beside the shared room: small events wait for none.
const OWN_BYTES: usize = 64 * 1024;

/// The shared room.
#[derive(Debug)]
pub(super) struct Room {
    shared: Semaphore,
    /// Who has this reads on without room: else all could wait for each other.
    beyond: Semaphore,
    wait_max: Duration,
}

/// What one exchange has of it.
pub(super) struct Part<'a> {
    room: &'a Room,
    held: Option<SemaphorePermit<'a>>,
    beyond: Option<SemaphorePermit<'a>>,
}

impl Room {
    pub(super) fn new(limits: &ClientLimits) -> Self {
        Self {
            shared: Semaphore::new(limits.half_read_bytes_max.min(Semaphore::MAX_PERMITS)),
            beyond: Semaphore::new(1),
            wait_max: Duration::from_millis(limits.half_read_wait_max_ms),
        }
    }

    /// A part of it, nothing at first.
    pub(super) fn part(&self) -> Part<'_> {
        Part { room: self, held: None, beyond: None }
    }
}

impl Part<'_> {
    /// Makes the part fit so many bytes that are half read. False: there was no room in time.
    pub(super) async fn fit(&mut self, bytes: usize) -> bool {
        let wanted = bytes.saturating_sub(OWN_BYTES);
        let held = self.held.as_ref().map_or(0, SemaphorePermit::num_permits);
        if wanted <= held {
            self.beyond = None;
            let spare = self.held.as_mut().and_then(|held_now| held_now.split(held - wanted));
            drop(spare);
            return true;
        }
        if self.beyond.is_some() {
            return true;
        }
        let more = u32::try_from(wanted - held).unwrap_or(u32::MAX);
        let room = self.room;
        tokio::select! {
            biased;
            Ok(permit) = room.shared.acquire_many(more) => match &mut self.held {
                Some(held) => held.merge(permit),
                None => self.held = Some(permit),
            },
            Ok(permit) = room.beyond.acquire() => self.beyond = Some(permit),
            () = sleep(room.wait_max) => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(bytes: usize) -> Room {
        let limits = ClientLimits {
            half_read_bytes_max: bytes,
            half_read_wait_max_ms: 50,
            ..ClientLimits::default()
        };
        Room::new(&limits)
    }

    #[tokio::test]
    async fn many_that_are_half_read_have_a_bound_together_and_one_is_always_read_on() {
        let room = room(100);
        let (mut first, mut second, mut third) = (room.part(), room.part(), room.part());
        assert!(first.fit(OWN_BYTES + 60).await);
        assert!(second.fit(OWN_BYTES + 60).await, "it goes beyond");
        assert!(second.fit(OWN_BYTES + 1_000).await, "as far as it likes");
        assert!(!third.fit(OWN_BYTES + 60).await, "it is one too many");
        assert!(third.fit(OWN_BYTES).await, "small events need no room");
        // What is whole makes room.
        assert!(first.fit(10).await);
        assert!(third.fit(OWN_BYTES + 60).await);
        assert!(!first.fit(OWN_BYTES + 60).await);
        drop(second);
        assert!(first.fit(OWN_BYTES + 60).await);
        assert_eq!(room.shared.available_permits(), 40);
        drop((first, third));
        assert_eq!((room.shared.available_permits(), room.beyond.available_permits()), (100, 1));
    }
}
