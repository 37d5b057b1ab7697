//! The dedup tokens of all sessions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::DedupWrite;
use rejoin_core::token::{DedupKey, DedupRecord, Outcome};

use crate::charge::ROW_OVERHEAD_BYTES;
use crate::contract::Expired;
use crate::error::Failure;
use crate::memory::stored::{Stored, fetch};

/// All rows, and when each is due.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    rows: HashMap<DedupKey, Row>,
    due: BTreeSet<(u64, DedupKey)>,
}

/// A row whose response is stored apart, or (in a batch) not yet stored.
#[derive(Clone, Debug)]
pub(super) struct Row {
    record: DedupRecord,
    stored: Option<Arc<Stored>>,
}

/// A row is someone else's than a batch expected.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) key: DedupKey,
    pub(super) row: Row,
}

impl Row {
    /// The row with its response.
    pub(super) async fn record(mut self) -> Result<DedupRecord, Failure> {
        if let Outcome::Finished { response, .. } = &mut self.record.outcome
            && let Some(stored) = self.stored
            && let Some(payload) = fetch(vec![stored], 0, usize::MAX).await?.pop()
        {
            *response = payload;
        }
        Ok(self.record)
    }

    fn due_ms(&self) -> u64 {
        match self.record.outcome {
            Outcome::Finished { .. } => self.record.result_expires_ms.min(self.record.expires_ms),
            _ => self.record.expires_ms,
        }
    }
}

impl Tokens {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn get(&self, key: &DedupKey) -> Option<Row> {
        self.rows.get(key).cloned()
    }

    /// Whether all writes hold, one after the other.
    pub(super) fn check(&self, writes: &[DedupWrite]) -> Result<(), Box<Taken>> {
        let mut written: HashMap<DedupKey, Option<&DedupRecord>> = HashMap::new();
        for write in writes {
            let key = write.key;
            let row = match written.get(&key) {
                Some(record) => record.map(|record| Row { record: record.clone(), stored: None }),
                None => self.get(&key),
            };
            if let Some(row) = row
                && write.expected != Some(row.record.owner)
            {
                return Err(Box::new(Taken { key, row }));
            }
            let is_freed = write.record.outcome == Outcome::Freed;
            written.insert(key, (!is_freed).then_some(&write.record));
        }
        Ok(())
    }

    /// Writes rows that were checked under the same lock; `stored` has a response per row.
    pub(super) fn apply(&mut self, writes: Vec<DedupWrite>, stored: Vec<Arc<Stored>>) {
        for (write, stored) in writes.into_iter().zip(stored) {
            let mut record = write.record;
            match &mut record.outcome {
                Outcome::Freed => {
                    self.take(&write.key);
                    continue;
                }
                Outcome::Finished { response, .. } => *response = Bytes::new(),
                _ => {}
            }
            self.put(write.key, Row { record, stored: Some(stored) });
        }
    }

    fn take(&mut self, key: &DedupKey) -> Option<Row> {
        let row = self.rows.remove(key)?;
        self.due.remove(&(row.due_ms(), *key));
        Some(row)
    }

    fn put(&mut self, key: DedupKey, row: Row) {
        self.take(&key);
        self.due.insert((row.due_ms(), key));
        self.rows.insert(key, row);
    }

    /// Works off at most `rows_max` rows that are due.
    pub(super) fn expire(&mut self, now_ms: u64, rows_max: usize) -> Expired {
        let mut expired = Expired::default();
        for _ in 0..rows_max {
            let Some(key) = self.next_due(now_ms) else { return expired };
            let Some(mut row) = self.take(&key) else { return expired };
            if row.record.expires_ms <= now_ms {
                expired.forgotten += 1;
                continue;
            }
            row.record.outcome = Outcome::Tombstone;
            let emptied = |stored: Arc<Stored>| Arc::new(stored.emptied(ROW_OVERHEAD_BYTES));
            row.stored = row.stored.map(emptied);
            self.put(key, row);
            expired.tombstones += 1;
        }
        expired.more = self.next_due(now_ms).is_some();
        expired
    }

    fn next_due(&self, now_ms: u64) -> Option<DedupKey> {
        self.due.first().filter(|(due_ms, _)| *due_ms <= now_ms).map(|(_, key)| *key)
    }
}
