//! Times at which something was so.

use std::collections::BTreeMap;

/// Periods, each of which begins and ends for a key; those of different keys may overlap.
#[derive(Clone, Debug)]
pub struct Periods<K> {
    open: BTreeMap<K, u64>,
    /// Those that ended.
    past: Vec<(u64, u64)>,
}

impl<K> Default for Periods<K> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), past: Vec::new() }
    }
}

impl<K: Ord> Periods<K> {
    pub fn begin(&mut self, key: K, at_ms: u64) {
        self.open.entry(key).or_insert(at_ms);
    }

    pub fn end(&mut self, key: K, at_ms: u64) {
        self.past.extend(self.open.remove(&key).map(|began_ms| (began_ms, at_ms)));
    }

    pub fn set(&mut self, key: K, is_so: bool, at_ms: u64) {
        if is_so {
            self.begin(key, at_ms);
        } else {
            self.end(key, at_ms);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        let open = self.open.values().map(|began_ms| (*began_ms, u64::MAX));
        self.past.iter().copied().chain(open)
    }

    /// True if it was so at any time between these two.
    pub fn overlap(&self, from_ms: u64, to_ms: u64) -> bool {
        self.all().any(|(began_ms, ended_ms)| began_ms <= to_ms && ended_ms >= from_ms)
    }

    /// When it was so first, at `from_ms` or later.
    pub fn first_after(&self, from_ms: u64) -> Option<u64> {
        let later = self.all().filter(|(_, ended_ms)| *ended_ms > from_ms);
        later.map(|(began_ms, _)| began_ms.max(from_ms)).min()
    }
}
