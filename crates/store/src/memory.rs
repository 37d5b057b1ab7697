//! The store of one process.
//!
//! Locks are taken in this order, and never held across an await: shard, session, tokens, then the
//! books and the free space of the file.

mod books;
mod log;
mod space;
mod spill;
mod stage;
mod stored;
mod tokens;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::effect::{Batch, Event};
use rejoin_core::id::{Seq, StreamId};
use rejoin_core::limits::Limits;
use rejoin_core::token::{DedupKey, DedupRecord};

use crate::contract::{
    Expired, Fence, Loaded, Opened, PrincipalKey, PrincipalUsage, Quota, SessionKey, Store, Usage,
    Version,
};
use crate::error::{
    CommitError, CreateError, ExpireError, Failure, LoadError, ReadError, RemoveError, TokenError,
    UsageError,
};
use crate::page::Page;
use crate::watch::StreamWatch;
use books::{Account, Books, Lease};
use log::SessionLog;
use spill::SpillFile;
use stored::{fetch, on_blocking_thread};
use tokens::{Taken, Tokens};

/// Maps of sessions, so that threads rarely meet in one.
const SHARDS: usize = 16;

/// What a memory store may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Payload bytes kept in memory; the rest is spilled to a file.
    pub memory_log_bytes_max: u64,
    /// Bytes in memory and file.
    pub quota: Quota,
}

impl From<&Limits> for MemoryLimits {
    fn from(limits: &Limits) -> Self {
        Self { memory_log_bytes_max: limits.memory_log_bytes_max, quota: limits.into() }
    }
}

/// Why a memory store could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no place for the spill file.
    #[error(
        "cannot create the spill file in {}: {source}; set TMPDIR to a folder on a disk that can \
         be written",
        .folder.display()
    )]
    Spill {
        /// Where it was tried.
        folder: std::path::PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// The store of one process: all in memory, and payloads beyond a limit in an unlinked file.
///
/// Nothing survives the process. The index of the log (some 100 bytes an event) is always in memory
/// and bounded by the quotas, which count it; payloads in memory never exceed
/// [`MemoryLimits::memory_log_bytes_max`]. Once they reach it new ones go to the file, whose space
/// is used again as events are evicted.
#[derive(Debug)]
pub struct MemoryStore {
    shards: [Mutex<HashMap<SessionKey, Arc<Cell>>>; SHARDS],
    tokens: Mutex<Tokens>,
    books: Books,
    spill: Arc<SpillFile>,
}

/// A session and what it is counted in.
#[derive(Debug)]
struct Cell {
    principal: PrincipalKey,
    account: Arc<Account>,
    log: Mutex<SessionLog>,
    _counted: [Lease; 2],
}

/// Why a batch was refused, before the row in its way was read.
enum Refusal {
    Taken(Box<Taken>),
    Other(CommitError),
}

/// Locks a mutex. What it guards is whole even if a thread panicked: nothing here panics halfway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStore {
    /// An empty store that spills to a new unlinked file in the temporary folder (`TMPDIR`).
    ///
    /// # Errors
    /// If that file cannot be made.
    pub fn new(limits: MemoryLimits) -> Result<Self, OpenError> {
        let folder = std::env::temp_dir();
        match tempfile::tempfile_in(&folder) {
            Ok(file) => Ok(Self::spilling_to(file, limits)),
            Err(source) => Err(OpenError::Spill { folder, source }),
        }
    }

    /// An empty store that spills to `file`, which must be empty and nobody else's.
    pub fn spilling_to(file: File, limits: MemoryLimits) -> Self {
        let books = Books::new(limits.quota, limits.memory_log_bytes_max);
        let spill = Arc::new(SpillFile::new(file, Arc::clone(&books.spilled)));
        Self { shards: Default::default(), tokens: Mutex::default(), books, spill }
    }

    fn shard(&self, session: &SessionKey) -> &Mutex<HashMap<SessionKey, Arc<Cell>>> {
        &self.shards[usize::from(session[0]) % SHARDS]
    }

    fn cell(&self, session: &SessionKey) -> Option<Arc<Cell>> {
        lock(self.shard(session)).get(session).map(Arc::clone)
    }

    /// Checks a batch and keeps the locks, so that it can be applied.
    fn checked<'a>(
        &'a self,
        cell: &'a Cell,
        fence: Fence,
        expected: Version,
        batch: &Batch,
    ) -> Result<(MutexGuard<'a, SessionLog>, MutexGuard<'a, Tokens>), Refusal> {
        let log = lock(&cell.log);
        log.check(fence, expected, batch).map_err(Refusal::Other)?;
        let tokens = lock(&self.tokens);
        tokens.check(&batch.dedup).map_err(Refusal::Taken)?;
        Ok((log, tokens))
    }
}

impl Refusal {
    async fn resolve(self) -> CommitError {
        let Taken { key, row } = match self {
            Self::Taken(taken) => *taken,
            Self::Other(error) => return error,
        };
        match row.record().await {
            Ok(record) => CommitError::TokenTaken { key, record: Box::new(record) },
            Err(failure) => CommitError::Io(failure),
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(
        &self,
        session: SessionKey,
        principal: PrincipalKey,
    ) -> Result<Opened, CreateError> {
        let account = self.books.account(principal);
        let mut shard = lock(self.shard(&session));
        if shard.contains_key(&session) {
            return Err(CreateError::Exists);
        }
        self.books.check_room(&account)?;
        let log = SessionLog::new();
        let opened = Opened::new(log.fence(), log.version());
        let counted = [self.books.sessions.lease(1), account.sessions.lease(1)];
        let cell = Cell { principal, account, log: Mutex::new(log), _counted: counted };
        shard.insert(session, Arc::new(cell));
        Ok(opened)
    }

    async fn load(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError> {
        let Some(cell) = self.cell(&session) else { return Ok(None) };
        let loaded = lock(&cell.log).load(cell.principal);
        Ok(loaded)
    }

    async fn commit(
        &self,
        session: SessionKey,
        fence: Fence,
        expected: Version,
        batch: Batch,
    ) -> Result<Version, CommitError> {
        let cell = self.cell(&session).ok_or(CommitError::UnknownSession)?;
        // First without effect, so that nothing is charged and written for a batch in vain.
        let refusal = self.checked(&cell, fence, expected, &batch).err();
        if let Some(refusal) = refusal {
            return Err(refusal.resolve().await);
        }
        if batch.is_empty() {
            return Ok(expected);
        }
        let staged = self.stage(&cell.account, &batch).await?;
        let refusal = match self.checked(&cell, fence, expected, &batch) {
            Ok((mut log, mut tokens)) => {
                let mut batch = batch;
                tokens.apply(std::mem::take(&mut batch.dedup), staged.rows);
                return Ok(log.apply(batch, staged.events));
            }
            Err(refusal) => refusal,
        };
        Err(refusal.resolve().await)
    }

    async fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        let cell = self.cell(&session).ok_or(ReadError::UnknownSession)?;
        let (entries, shape) = lock(&cell.log).page(stream, after, bytes_max)?;
        let stored = entries.iter().map(|entry| Arc::clone(&entry.stored)).collect();
        let payloads = fetch(stored, 0, bytes_max).await?;
        let pairs = entries.iter().zip(payloads);
        Ok(Page::new(pairs.map(|(entry, payload)| entry.event(stream, payload)).collect(), shape))
    }

    async fn read_part(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
        offset: usize,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        let cell = self.cell(&session).ok_or(ReadError::UnknownSession)?;
        let entry = lock(&cell.log).entry(stream, seq)?;
        let Some(entry) = entry else { return Ok(None) };
        Ok(fetch(vec![entry.stored], offset, bytes_max).await?.pop())
    }

    async fn read_one(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
    ) -> Result<Option<Event>, ReadError> {
        let cell = self.cell(&session).ok_or(ReadError::UnknownSession)?;
        let entry = lock(&cell.log).entry(stream, seq)?;
        let Some(entry) = entry else { return Ok(None) };
        let payload = fetch(vec![Arc::clone(&entry.stored)], 0, usize::MAX).await?.pop();
        Ok(payload.map(|payload| entry.event(stream, payload)))
    }

    async fn watch(&self, session: SessionKey, stream: StreamId) -> Result<StreamWatch, ReadError> {
        let cell = self.cell(&session).ok_or(ReadError::UnknownSession)?;
        lock(&cell.log).watch(stream)
    }

    async fn token(&self, key: DedupKey) -> Result<Option<DedupRecord>, TokenError> {
        let row = lock(&self.tokens).get(&key);
        let Some(row) = row else { return Ok(None) };
        Ok(Some(row.record().await?))
    }

    async fn remove(&self, session: SessionKey, fence: Fence) -> Result<(), RemoveError> {
        let removed = {
            let mut shard = lock(self.shard(&session));
            let Some(cell) = shard.get(&session) else { return Ok(()) };
            let mut log = lock(&cell.log);
            if log.fence() != fence {
                return Err(RemoveError::Fenced);
            }
            let removed = log.remove();
            drop(log);
            (removed, shard.remove(&session))
        };
        // Giving back a long log takes a while; no lock is held for it.
        drop(removed);
        self.books.forget_unused();
        Ok(())
    }

    async fn expire(&self, now_ms: u64, rows_max: usize) -> Result<Expired, ExpireError> {
        let expired = lock(&self.tokens).expire(now_ms, rows_max);
        self.books.forget_unused();
        let spill = Arc::clone(&self.spill);
        on_blocking_thread(move || spill.trim()).await.map_err(|error| {
            Failure::new("shorten its spill file", "check the disk of the temporary folder", error)
        })?;
        Ok(expired)
    }

    async fn usage(&self) -> Result<Usage, UsageError> {
        Ok(Usage {
            bytes: self.books.total.used(),
            memory_bytes: self.books.memory.used(),
            spilled_bytes: self.books.spilled.used(),
            sessions: self.books.sessions.used(),
            tokens: lock(&self.tokens).len() as u64,
        })
    }

    async fn principal_usage(&self, principal: PrincipalKey) -> Result<PrincipalUsage, UsageError> {
        let Some(account) = self.books.find(&principal) else {
            return Ok(PrincipalUsage::default());
        };
        Ok(PrincipalUsage { bytes: account.bytes.used(), sessions: account.sessions.used() })
    }
}
