//! What a batch is charged to the quotas, the same in every store.

use bytes::Bytes;
use rejoin_core::effect::{Batch, Event};
use rejoin_core::token::{DedupRecord, Outcome};

use crate::contract::END_BYTES_MAX;

/// What an event is charged besides its payload.
pub(crate) const EVENT_OVERHEAD_BYTES: u64 = 128;
/// What a token is charged besides its response.
pub(crate) const ROW_OVERHEAD_BYTES: u64 = 256;

/// Everything that a batch adds.
pub(crate) fn batch_bytes(batch: &Batch) -> u64 {
    let events = batch.events.iter().map(|event| EVENT_OVERHEAD_BYTES + size(&event.payload));
    let rows = batch.dedup.iter().map(|write| ROW_OVERHEAD_BYTES + size(&response(&write.record)));
    events.chain(rows).sum()
}

/// True if no quota refuses the batch (see [`Store::commit`](crate::Store::commit)).
pub(crate) fn is_always_admitted(batch: &Batch) -> bool {
    let is_end = |event: &Event| event.last && event.payload.len() <= END_BYTES_MAX;
    batch.events.iter().all(is_end)
        && batch
            .dedup
            .iter()
            .all(|write| write.expected.is_some() && response(&write.record).len() <= END_BYTES_MAX)
}

/// The response of a record; empty if it has none.
pub(crate) fn response(record: &DedupRecord) -> Bytes {
    match &record.outcome {
        Outcome::Finished { response, .. } => response.clone(),
        _ => Bytes::new(),
    }
}

/// Length of a payload.
pub(crate) fn size(payload: &Bytes) -> u64 {
    payload.len() as u64
}
