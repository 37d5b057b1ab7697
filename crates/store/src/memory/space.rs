//! Which parts of the spill file are free.

use std::collections::{BTreeMap, BTreeSet};

/// Free ranges of a file, none of which touches another or the end. Space is reused best fit, so
/// that the file grows no longer than what is alive in it does.
#[derive(Debug, Default)]
pub(super) struct Space {
    end: u64,
    highest: u64,
    by_offset: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
}

impl Space {
    /// Where the used part ends.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes after the end that the file may still have.
    pub(super) fn slack(&self) -> u64 {
        self.highest - self.end
    }

    /// The file was cut at the end.
    pub(super) fn trimmed(&mut self) {
        self.highest = self.end;
    }

    /// Takes `length` bytes; returns their offset.
    pub(super) fn allocate(&mut self, length: u64) -> u64 {
        let fitting = self.by_length.range((length, 0)..).next().copied();
        if let Some((free, offset)) = fitting {
            self.take(offset, free);
            if free > length {
                self.give(offset + length, free - length);
            }
            return offset;
        }
        let offset = self.end;
        self.end += length;
        self.highest = self.highest.max(self.end);
        offset
    }

    /// Gives a range back that was allocated.
    pub(super) fn release(&mut self, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let (mut start, mut stop) = (offset, offset + length);
        if let Some((&before, &free)) = self.by_offset.range(..offset).next_back()
            && before + free == offset
        {
            self.take(before, free);
            start = before;
        }
        if let Some(&free) = self.by_offset.get(&stop) {
            self.take(stop, free);
            stop += free;
        }
        if stop == self.end {
            self.end = start;
        } else {
            self.give(start, stop - start);
        }
    }

    fn give(&mut self, offset: u64, length: u64) {
        self.by_offset.insert(offset, length);
        self.by_length.insert((length, offset));
    }

    fn take(&mut self, offset: u64, length: u64) {
        self.by_offset.remove(&offset);
        self.by_length.remove(&(length, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_fitting_free_range_is_reused() {
        let mut space = Space::default();
        let offsets: Vec<u64> = [100, 10, 50, 10].map(|length| space.allocate(length)).into();
        assert_eq!(offsets, [0, 100, 110, 160]);
        space.release(0, 100);
        space.release(110, 50);
        assert_eq!(space.allocate(50), 110);
        assert_eq!(space.allocate(40), 0);
        assert_eq!(space.allocate(60), 40);
        assert_eq!(space.allocate(1), 170);
    }

    #[test]
    fn released_neighbours_join_and_the_end_moves_back() {
        let mut space = Space::default();
        for _ in 0..4 {
            space.allocate(10);
        }
        space.release(10, 10);
        space.release(30, 10);
        assert_eq!((space.end(), space.slack()), (30, 10));
        space.release(20, 10);
        assert_eq!(space.end(), 10);
        space.release(0, 10);
        assert_eq!((space.end(), space.slack()), (0, 40));
        space.trimmed();
        assert_eq!(space.slack(), 0);
        assert!(space.by_offset.is_empty() && space.by_length.is_empty());
    }

    #[test]
    fn random_use_never_overlaps_and_stays_within_twice_the_peak() {
        let (mut space, mut live) = (Space::default(), Vec::<(u64, u64)>::new());
        let (mut random, mut used, mut peak) = (1_u64, 0, 0);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let pick = (random >> 33) as usize;
            if live.len() > 200 || (pick.is_multiple_of(2) && !live.is_empty()) {
                let (offset, length) = live.swap_remove(pick % live.len());
                space.release(offset, length);
                used -= length;
            } else {
                let length = 1 + (random >> 40) % 5_000;
                let offset = space.allocate(length);
                let is_apart =
                    |&(from, size): &(u64, u64)| from + size <= offset || offset + length <= from;
                assert!(live.iter().all(is_apart), "{offset}+{length}");
                live.push((offset, length));
                used += length;
                peak = peak.max(used);
            }
        }
        assert!(space.highest <= 2 * peak, "{} for {peak}", space.highest);
        for (offset, length) in live {
            space.release(offset, length);
        }
        assert_eq!(space.end(), 0);
    }
}
