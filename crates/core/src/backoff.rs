//! Waits between attempts: doubling, bounded, and not the same for all that wait.

/// The waits of one series of attempts.
#[derive(Clone, Debug)]
pub struct Backoff {
    base_ms: u64,
    max_ms: u64,
    attempts: u32,
}

impl Backoff {
    /// Waits that begin at `base_ms` and do not exceed `max_ms`.
    pub fn new(base_ms: u64, max_ms: u64) -> Self {
        Self { base_ms, max_ms, attempts: 0 }
    }

    /// The attempts since the last [`Self::reset`].
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Progress was made: waits begin anew.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    /// The next wait in milliseconds: between a half and the whole of the doubled base, as `random`
    /// says, so that all who lost their server together do not come back together.
    pub fn next_ms(&mut self, random: u64) -> u64 {
        let doublings = self.attempts.min(16);
        self.attempts = self.attempts.saturating_add(1);
        let whole_ms = self.base_ms.saturating_mul(1 << doublings).min(self.max_ms);
        whole_ms - random % (whole_ms / 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_bound_and_begin_anew() {
        let mut backoff = Backoff::new(100, 1_000);
        for (random, whole_ms) in (0..).zip([100, 200, 400, 800, 1_000, 1_000]) {
            let wait_ms = backoff.next_ms(random * 7_919);
            assert!((whole_ms / 2..=whole_ms).contains(&wait_ms), "{wait_ms} of {whole_ms}");
        }
        assert_eq!(backoff.attempts(), 6);
        backoff.reset();
        assert!(backoff.next_ms(u64::MAX) <= 100);
    }
}
