//! Events that are known again when a resumed stream brings them twice.
use std::collections::{HashSet, VecDeque};

use sha2::{Digest as _, Sha256};

/// What an event is known again by: not by its id alone, which some servers use for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(pub u64);

impl Mark {
    /// The mark of an event, the same in every process.
    pub fn of(id: &[u8], data: &[u8]) -> Self {
        let hash = Sha256::new().chain_update(id).chain_update([0]).chain_update(data).finalize();
        let (first, _) = hash.split_at(size_of::<u64>());
        Self(first.iter().fold(0, |mark, byte| mark << 8 | u64::from(*byte)))
    }
}

/// The newest events, of bounded number.
#[derive(Debug)]
pub struct Seen {
    marks: HashSet<Mark>,
    order: VecDeque<Mark>,
    events_max: usize,
}

impl Seen {
    /// Remembers at most `events_max` events.
    pub fn new(events_max: usize) -> Self {
        Self { marks: HashSet::new(), order: VecDeque::new(), events_max }
    }

    /// Notes an event. `false`: it was noted before.
    pub fn note(&mut self, mark: Mark) -> bool {
        if !self.marks.insert(mark) {
            return false;
        }
        self.order.push_back(mark);
        if self.order.len() > self.events_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.marks.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_known_by_id_and_text_and_the_oldest_is_forgotten() {
        let mut seen = Seen::new(2);
        let mut note = |id: &str, data: &str| seen.note(Mark::of(id.as_bytes(), data.as_bytes()));
        assert!(note("1", "a") && note("1", "b") && !note("1", "a") && !note("1", "b"));
        assert!(note("2", "a") && note("1", "a"), "1a gave way to 2a");
        assert_eq!(seen.marks.len(), 2);
    }
}
