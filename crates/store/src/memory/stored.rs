//! A payload, wherever it is.

use std::io;
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

    fn in_reach(&self) -> Option<Bytes> {
        match &self.place {
            Place::Memory { payload, .. } => Some(payload.clone()),
            Place::File(_) => None,
            Place::Nowhere => Some(Bytes::new()),
        }
    }

    fn read(&self) -> io::Result<Bytes> {
        match &self.place {
            Place::Memory { payload, .. } => Ok(payload.clone()),
            Place::File(extent) => extent.read(),
            Place::Nowhere => Ok(Bytes::new()),
        }
    }
}

/// The payloads of `all`, in order; the thread is not blocked.
pub(super) async fn fetch(all: Vec<Arc<Stored>>) -> Result<Vec<Bytes>, Failure> {
    if let Some(payloads) = all.iter().map(|one| one.in_reach()).collect() {
        return Ok(payloads);
    }
    let read = move || all.iter().map(|one| one.read()).collect::<io::Result<_>>();
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
