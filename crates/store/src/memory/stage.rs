//! Charging a batch, and bringing its payloads where they will stay.

use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::Batch;

use crate::charge::{
    EVENT_OVERHEAD_BYTES, ROW_OVERHEAD_BYTES, batch_bytes, is_always_admitted, response, size,
};
use crate::error::{CommitError, Failure, OverQuota};
use crate::memory::MemoryStore;
use crate::memory::books::{Account, Charge};
use crate::memory::spill::Extent;
use crate::memory::stored::{Stored, on_blocking_thread};

/// Payloads of a batch, charged and in their place.
pub(super) struct Staged {
    pub(super) events: Vec<Arc<Stored>>,
    pub(super) rows: Vec<Arc<Stored>>,
}

impl MemoryStore {
    /// Charges a batch and brings its payloads where they will stay. Whatever happens then, all
    /// of it is given back by dropping it.
    pub(super) async fn stage(
        &self,
        account: &Account,
        batch: &Batch,
    ) -> Result<Staged, CommitError> {
        let rows: Vec<Bytes> = batch.dedup.iter().map(|write| response(&write.record)).collect();
        let charge = self.charge(account, batch)?;
        let mut payloads: Vec<Bytes> =
            batch.events.iter().map(|event| event.payload.clone()).collect();
        payloads.extend(rows);
        let mut events = self.place(payloads, batch.events.len(), charge).await?;
        let rows = events.split_off(batch.events.len());
        Ok(Staged { events, rows })
    }

    fn charge(&self, account: &Account, batch: &Batch) -> Result<Charge, OverQuota> {
        let bytes = batch_bytes(batch);
        if is_always_admitted(batch) {
            return Ok(self.books.charge_always(account, bytes));
        }
        self.books.charge(account, bytes)
    }

    /// Puts payloads in memory if all fit there, else in the file; the first `events` of them are
    /// events'.
    async fn place(
        &self,
        payloads: Vec<Bytes>,
        events: usize,
        mut charge: Charge,
    ) -> Result<Vec<Arc<Stored>>, CommitError> {
        let mut share = move |index: usize, bytes: u64| {
            let is_event = index < events;
            charge.split(bytes + if is_event { EVENT_OVERHEAD_BYTES } else { ROW_OVERHEAD_BYTES })
        };
        let bytes = payloads.iter().map(size).sum();
        if let Ok(mut memory) = self.books.memory.try_lease(bytes, self.books.memory_bytes_max) {
            let keep = |(index, payload): (usize, &Bytes)| {
                let bytes = size(payload);
                let stored = Stored::in_memory(payload, memory.split(bytes), share(index, bytes));
                Arc::new(stored)
            };
            return Ok(payloads.iter().enumerate().map(keep).collect());
        }
        let spill = Arc::clone(&self.spill);
        let extents =
            on_blocking_thread(move || spill.write(&payloads)).await.map_err(|error| {
                let remedy =
                    "make room on the disk of the temporary folder, or set TMPDIR to another";
                CommitError::Io(Failure::new("write to its spill file", remedy, error))
            })?;
        let keep = |(index, extent): (usize, Extent)| {
            let charge = share(index, extent.bytes());
            Arc::new(Stored::in_file(extent, charge))
        };
        Ok(extents.into_iter().enumerate().map(keep).collect())
    }
}
