//! How many exchanges may be passed through at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::id::Digest32;
use rejoin_core::limits::Limits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Why an exchange has no seat. Nothing of it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SeatError {
    /// All are taken.
    #[error(
        "all {exchanges_max} exchanges that are passed through are in use: \
         wait until one ends, or raise `--limit passed_exchanges_max=`"
    )]
    Full {
        /// The cap.
        exchanges_max: usize,
    },
    /// One principal has all it may have.
    #[error(
        "all {exchanges_max} exchanges that are passed through for one principal are in use: \
         wait until one ends, or raise `--limit principal_passed_exchanges_max=`"
    )]
    PrincipalFull {
        /// The cap.
        exchanges_max: usize,
    },
}

/// The seats. Clones are the same seats.
#[derive(Clone)]
pub(super) struct Seats {
    exchanges_max: usize,
    principal_exchanges_max: usize,
    free: Arc<Semaphore>,
    taken: Arc<Taken>,
}

/// Who has seats.
struct Taken {
    by_principal: Mutex<HashMap<Digest32, usize>>,
    /// Exchanges that may be calls.
    calls: watch::Sender<usize>,
}

impl Taken {
    fn by_principal(&self) -> MutexGuard<'_, HashMap<Digest32, usize>> {
        self.by_principal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one exchange, free again when it is dropped.
pub(super) struct Seat {
    _permit: OwnedSemaphorePermit,
    taken: Arc<Taken>,
    principal: Digest32,
    is_call: bool,
}

impl Seats {
    pub(super) fn new(limits: &Limits) -> Self {
        let exchanges_max = limits.passed_exchanges_max;
        let (calls, _) = watch::channel(0);
        Self {
            exchanges_max,
            principal_exchanges_max: limits.principal_passed_exchanges_max,
            free: Arc::new(Semaphore::new(exchanges_max.min(Semaphore::MAX_PERMITS))),
            taken: Arc::new(Taken { by_principal: Mutex::default(), calls }),
        }
    }

    /// A seat for an exchange of this principal.
    ///
    /// # Errors
    /// If a cap is reached.
    pub(super) fn take(&self, principal: Digest32, is_call: bool) -> Result<Seat, SeatError> {
        let free = Arc::clone(&self.free).try_acquire_owned();
        let exchanges_max = self.exchanges_max;
        let permit = free.map_err(|_| SeatError::Full { exchanges_max })?;
        let mut taken = self.taken.by_principal();
        let own = taken.get(&principal).copied().unwrap_or_default();
        let exchanges_max = self.principal_exchanges_max;
        if own >= exchanges_max {
            return Err(SeatError::PrincipalFull { exchanges_max });
        }
        taken.insert(principal, own + 1);
        drop(taken);
        if is_call {
            self.taken.calls.send_modify(|calls| *calls += 1);
        }
        Ok(Seat { _permit: permit, taken: Arc::clone(&self.taken), principal, is_call })
    }

    /// Waits until no seat is taken by what may be a call.
    pub(super) async fn idle(&self) {
        // The sender lives as long as these seats.
        let _idle = self.taken.calls.subscribe().wait_for(|calls| *calls == 0).await.is_ok();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.taken.by_principal();
        if let Some(own) = taken.get_mut(&self.principal) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.remove(&self.principal);
            }
        }
        drop(taken);
        if self.is_call {
            self.taken.calls.send_modify(|calls| *calls = calls.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(all: usize, own: usize) -> Seats {
        let mut limits = Limits::default();
        (limits.passed_exchanges_max, limits.principal_passed_exchanges_max) = (all, own);
        Seats::new(&limits)
    }

    #[test]
    fn a_principal_takes_no_seat_beyond_its_own_and_leaves_none_behind() {
        let seats = seats(3, 2);
        let (one, other) = ([1; 32], [2; 32]);
        let first = seats.take(one, true).unwrap_or_else(|error| panic!("{error}"));
        let _second = seats.take(one, true).unwrap_or_else(|error| panic!("{error}"));
        let full = SeatError::PrincipalFull { exchanges_max: 2 };
        assert_eq!(seats.take(one, true).err(), Some(full));
        let third = seats.take(other, false).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(seats.take(other, true).err(), Some(SeatError::Full { exchanges_max: 3 }));
        drop(first);
        assert!(seats.take(one, true).is_ok());
        drop(third);
        assert!(!seats.taken.by_principal().contains_key(&other), "no trace is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_calls_and_for_nothing_else() {
        use std::time::Duration;
        use tokio::time::timeout;

        let seats = seats(3, 3);
        let _stream = seats.take([1; 32], false).unwrap_or_else(|error| panic!("{error}"));
        assert!(timeout(Duration::from_secs(1), seats.idle()).await.is_ok());
        let call = seats.take([1; 32], true).unwrap_or_else(|error| panic!("{error}"));
        assert!(timeout(Duration::from_secs(1), seats.idle()).await.is_err());
        drop(call);
        assert!(timeout(Duration::from_secs(1), seats.idle()).await.is_ok());
    }
}
