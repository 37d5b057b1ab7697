//! The one clock of a process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since the Unix epoch that never go back: the system's time is read once, when the
/// process starts, and a monotone clock counts on from there.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_ms: u64,
}

impl Clock {
    /// Starts the clock. A process makes one and copies it.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_ms: millis(since_epoch) }
    }

    /// The same clock, put forward if it shows less than `at_ms`: the system's time may have been
    /// put back since that was written down.
    pub fn not_before(self, at_ms: u64) -> Self {
        let behind_ms = at_ms.saturating_sub(self.now_ms());
        Self { started_ms: self.started_ms.saturating_add(behind_ms), ..self }
    }

    /// Now, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        self.started_ms.saturating_add(millis(self.started.elapsed()))
    }

    /// When this clock shows `at_ms`; `None` if that is beyond all time.
    pub(super) fn instant(&self, at_ms: u64) -> Option<Instant> {
        let after_start = Duration::from_millis(at_ms.saturating_sub(self.started_ms));
        self.started.checked_add(after_start)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_put_back_goes_on_from_what_was_written_down() {
        let clock = Clock::start();
        let later_ms = clock.now_ms() + 3_600_000;
        let forward = clock.not_before(later_ms);
        assert_eq!(forward.now_ms(), later_ms);
        let due = Duration::from_millis(5);
        assert_eq!(forward.instant(later_ms + 5), Some(Instant::now() + due));
        tokio::time::advance(due).await;
        assert_eq!(forward.now_ms(), later_ms + 5);
        assert_eq!(clock.not_before(7).now_ms(), clock.now_ms(), "it was not put back");
    }
}
