//! Bounds how often a server or a stranger can make the gateway log.
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines logged at once.
const BURST_LINES: u32 = 100;
/// Time after which one more line may be logged.
const REFILL: Duration = Duration::from_millis(50);

/// A token bucket that counts what it refused.
#[derive(Debug)]
pub(crate) struct Throttle {
    free: u32,
    refilled: Instant,
    refused: u64,
}

impl Throttle {
    /// A full bucket.
    pub(crate) fn new(now: Instant) -> Self {
        Self { free: BURST_LINES, refilled: now, refused: 0 }
    }

    /// Whether a line may be logged; if so, how many were refused since the last one that was.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.refilled);
        let earned = passed.as_millis() / REFILL.as_millis();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(BURST_LINES);
            self.free = self.free.saturating_add(earned).min(BURST_LINES);
            self.refilled = now;
        }
        if self.free == 0 {
            self.refused += 1;
            return None;
        }
        self.free -= 1;
        Some(std::mem::take(&mut self.refused))
    }
}

/// One bucket for all who may log the same.
#[derive(Debug)]
pub(crate) struct SharedThrottle(Mutex<Throttle>);

impl Default for SharedThrottle {
    fn default() -> Self {
        Self(Mutex::new(Throttle::new(Instant::now())))
    }
}

impl SharedThrottle {
    /// See [`Throttle::admit`].
    pub(crate) fn admit(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_cut_and_counted_and_time_lets_more_pass() {
        let start = Instant::now();
        let mut throttle = Throttle::new(start);
        let logged = (0..1_000).filter(|_| throttle.admit(start).is_some()).count();
        assert_eq!(logged, BURST_LINES as usize);
        assert_eq!(throttle.admit(start + REFILL), Some(900));
        assert_eq!(throttle.admit(start + REFILL), None);
        let later = start + REFILL * 1_000_000;
        assert_eq!((0..1_000).filter(|_| throttle.admit(later).is_some()).count(), 100);
    }
}
