//! A payload, wherever it is.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Failure;
use crate::memory::books::{Charge, Lease};
use crate::memory::spill::Extent;

/// A payload and the bytes that are charged for it.
#[derive(Debug)]
pub(super) struct Stored {
    place: Place,
    charge: Charge,
}

#[derive(Debug)]
enum Place {
    Memory { payload: Bytes, _memory: Lease },
    File(Extent),
    Nowhere,
}

impl Stored {
    /// A copy of `payload`, lest a few bytes keep the large buffer alive they were cut from.
    pub(super) fn in_memory(payload: &Bytes, memory: Lease, charge: Charge) -> Self {
        let payload = Bytes::copy_from_slice(payload);
        Self { place: Place::Memory { payload, _memory: memory }, charge }
    }

    /// What was written to the spill file.
    pub(super) fn in_file(extent: Extent, charge: Charge) -> Self {
        Self { place: Place::File(extent), charge }
    }

    /// The same without its payload, charged `bytes`.
    pub(super) fn emptied(&self, bytes: u64) -> Self {
        Self { place: Place::Nowhere, charge: self.charge.another(bytes) }
    }

    /// Length of the payload.
    pub(super) fn payload_bytes(&self) -> usize {
        match &self.place {
            Place::Memory { payload, .. } => payload.len(),
            Place::File(extent) => extent.bytes() as usize,
            Place::Nowhere => 0,
        }
    }

    /// `None`: it must be read from the file.
    fn in_reach(&self, part: Part) -> Option<Bytes> {
        match &self.place {
            Place::Memory { payload, .. } => Some(payload.slice(part.of(payload.len()))),
            Place::File(_) => None,
            Place::Nowhere => Some(Bytes::new()),
        }
    }

    fn read(&self, part: Part) -> io::Result<Bytes> {
        match &self.place {
            Place::Memory { payload, .. } => Ok(payload.slice(part.of(payload.len()))),
            Place::File(extent) => extent.read(part.of(extent.bytes() as usize)),
            Place::Nowhere => Ok(Bytes::new()),
        }
    }
}

/// What is wanted of a payload.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    bytes_max: usize,
}

impl Part {
    /// The bytes of it that a payload of this length has.
    fn of(self, payload_bytes: usize) -> Range<usize> {
        let start = self.offset.min(payload_bytes);
        start..start + self.bytes_max.min(payload_bytes - start)
    }
}

/// Of each payload of `all`, in order, at most `bytes_max` bytes from `offset` on; the thread is
/// not blocked.
pub(super) async fn fetch(
    all: Vec<Arc<Stored>>,
    offset: usize,
    bytes_max: usize,
) -> Result<Vec<Bytes>, Failure> {
    let part = Part { offset, bytes_max };
    if let Some(payloads) = all.iter().map(|one| one.in_reach(part)).collect() {
        return Ok(payloads);
    }
    let read = move || all.iter().map(|one| one.read(part)).collect::<io::Result<_>>();
    on_blocking_thread(read).await.map_err(|error| {
        Failure::new("read its spill file", "check the disk of the temporary folder", error)
    })
}

/// Runs `work`, which may block.
pub(super) async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    // It ends without an answer only when the runtime shuts down.
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
