//! Waits between attempts: doubling, bounded, and not the same for all that wait.
use std::time::Duration;

/// The waits of one series of attempts.
#[derive(Debug)]
pub(super) struct Backoff {
    base_ms: u64,
    max_ms: u64,
    attempts: u32,
}

impl Backoff {
    /// Waits that begin at `base_ms` and do not exceed `max_ms`.
    pub(super) fn new(base_ms: u64, max_ms: u64) -> Self {
        Self { base_ms, max_ms, attempts: 0 }
    }

    /// The attempts since the last [`Self::reset`].
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Progress was made: waits begin anew.
    pub(super) fn reset(&mut self) {
        self.attempts = 0;
    }

    /// The next wait: between a half and the whole of the doubled base, so that sessions that lost
    /// their server together do not come back together.
    pub(super) fn next(&mut self) -> Duration {
        let doublings = self.attempts.min(16);
        self.attempts = self.attempts.saturating_add(1);
        let whole_ms = self.base_ms.saturating_mul(1 << doublings).min(self.max_ms);
        let mut random = [0_u8; 8];
        // Without randomness the waits are equal, and still waits.
        let _ = getrandom::fill(&mut random);
        let jitter_ms = u64::from_le_bytes(random) % (whole_ms / 2 + 1);
        Duration::from_millis(whole_ms - jitter_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_bound_and_begin_anew() {
        let mut backoff = Backoff::new(100, 1_000);
        for whole_ms in [100, 200, 400, 800, 1_000, 1_000] {
            let wait = backoff.next();
            let range = Duration::from_millis(whole_ms / 2)..=Duration::from_millis(whole_ms);
            assert!(range.contains(&wait), "{wait:?} is not in {range:?}");
        }
        assert_eq!(backoff.attempts(), 6);
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(100));
    }
}
