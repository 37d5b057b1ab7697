//! Waits between attempts, with the randomness that keeps those apart who wait together.
use std::time::Duration;

use rejoin_core::backoff;

/// The waits of one series of attempts.
#[derive(Debug)]
pub(super) struct Backoff(backoff::Backoff);

impl Backoff {
    /// Waits that begin at `base_ms` and do not exceed `max_ms`.
    pub(super) fn new(base_ms: u64, max_ms: u64) -> Self {
        Self(backoff::Backoff::new(base_ms, max_ms))
    }

    /// The attempts since the last [`Self::reset`].
    pub(super) fn attempts(&self) -> u32 {
        self.0.attempts()
    }

    /// Progress was made: waits begin anew.
    pub(super) fn reset(&mut self) {
        self.0.reset();
    }

    /// The next wait.
    pub(super) fn next(&mut self) -> Duration {
        let mut random = [0_u8; 8];
        // Without randomness the waits are equal, and still waits.
        let _ = getrandom::fill(&mut random);
        Duration::from_millis(self.0.next_ms(u64::from_le_bytes(random)))
    }
}
