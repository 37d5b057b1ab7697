//! Payloads that do not fit in memory: an unlinked file, read and written by position.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::memory::books::{Counter, Lease};
use crate::memory::lock;
use crate::memory::space::Space;

/// The file is cut when this many bytes after its used part are free.
const SLACK_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The file and what is free in it. It is never synced: it dies with the process.
#[derive(Debug)]
pub(super) struct SpillFile {
    file: File,
    space: Mutex<Space>,
    spilled: Arc<Counter>,
}

/// A payload in the file. Its place is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Extent {
    file: Arc<SpillFile>,
    offset: u64,
    bytes: u64,
    _spilled: Lease,
}

impl SpillFile {
    /// Uses an empty file that nobody else knows.
    pub(super) fn new(file: File, spilled: Arc<Counter>) -> Self {
        Self { file, space: Mutex::default(), spilled }
    }

    /// Writes payloads; all of them, or none takes place. Blocks.
    pub(super) fn write(self: &Arc<Self>, payloads: &[Bytes]) -> io::Result<Vec<Extent>> {
        self.trim()?;
        payloads.iter().map(|payload| self.write_one(payload)).collect()
    }

    fn write_one(self: &Arc<Self>, payload: &Bytes) -> io::Result<Extent> {
        let bytes = payload.len() as u64;
        let offset = lock(&self.space).allocate(bytes);
        // Made before the write, so that a failed one gives the place back.
        let extent =
            Extent { file: Arc::clone(self), offset, bytes, _spilled: self.spilled.lease(bytes) };
        self.file.write_all_at(payload, offset)?;
        Ok(extent)
    }

    /// Gives the unused end of the file back to the file system. Blocks.
    pub(super) fn trim(&self) -> io::Result<()> {
        let mut space = lock(&self.space);
        if space.slack() > SLACK_BYTES_MAX {
            // Under the lock: nobody may be given a place after the end meanwhile.
            self.file.set_len(space.end())?;
            space.trimmed();
        }
        Ok(())
    }

    /// Bytes of the file.
    #[cfg(test)]
    pub(super) fn file_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

impl Extent {
    /// How long the payload is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads a part of the payload, which must lie inside. Blocks.
    pub(super) fn read(&self, part: Range<usize>) -> io::Result<Bytes> {
        let mut bytes = vec![0; part.len()];
        self.file.file.read_exact_at(&mut bytes, self.offset + part.start as u64)?;
        Ok(bytes.into())
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        lock(&self.file.space).release(self.offset, self.bytes);
    }
}
