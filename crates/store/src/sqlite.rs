//! The store in one file, for one process, that survives it.
//!
//! ```text
//! commit ──> Writer: one thread, one transaction for all that waits ──> rejoin.db
//!                             │ then                                       │
//!                             v                                            │ what is older
//! read, watch <──────────── Tails: the newest events, ready          <── Readers
//! ```
//!
//! The data directory holds the database (SQLite, with its log before it), and a lock that one
//! process has. `open` says what a start looks at, `schema` what the tables mean, `life` what a
//! power cut does.

mod books;
mod chains;
mod commit;
mod failure;
mod life;
mod open;
mod operation;
mod readers;
mod reads;
mod row;
mod schema;
mod sessions;
mod tail;
mod tokens;
mod upkeep;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, RwLock};

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::effect::{Batch, Event};
use rejoin_core::id::{Seq, StreamId};
use rejoin_core::limits::Limits;
use rejoin_core::token::{DedupKey, DedupRecord};
use tokio::sync::watch;

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

use books::Books;
use commit::Commit;
use open::DataDirectory;
pub use open::OpenError;
use operation::Broken;
use readers::Readers;
use reads::Seen;
use tail::Tails;
use writer::{Disk, Shared, Writer, lock};

/// Tokens that are expired in one transaction, so that no commit waits for long.
const EXPIRED_ROWS_MAX: usize = 256;

/// What survives a power cut (design section 7). A killed process loses nothing in any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Claims, results and ends of streams, before they count. Progress may be lost; its numbers
    /// are not used again, since they were reserved by the session's own row, which may not.
    #[default]
    Calls,
    /// Everything, before it counts.
    Events,
    /// Nothing that counts: after a power cut no session goes on. The file stays sound.
    Memory,
}

/// What a store in a file may use, and what it promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// What survives a power cut.
    pub durability: Durability,
    /// Bytes in the file, as the quotas count them.
    pub quota: Quota,
    /// Bytes of events (payload and overhead) kept ready in memory, of all streams.
    pub tail_bytes_max: u64,
    /// The same, of one stream.
    pub stream_tail_bytes_max: u64,
}

/// A stream has at most this part of what is kept ready in memory.
const STREAM_TAIL_DIVISOR: u64 = 8;

impl SqliteOptions {
    /// What the limits say.
    pub fn new(durability: Durability, limits: &Limits) -> Self {
        let tail_bytes_max = limits.memory_log_bytes_max;
        let stream_tail_bytes_max = tail_bytes_max / STREAM_TAIL_DIVISOR;
        Self { durability, quota: limits.into(), tail_bytes_max, stream_tail_bytes_max }
    }
}

/// The store in one file, for one process. Dropping it waits until all that was begun is done, and
/// leaves the file whole; so does killing the process, and the next start finds all that was
/// committed.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Arc<Readers>,
    shared: Arc<Shared>,
    epoch: u64,
}

impl SqliteStore {
    /// A session as it stands, and nobody is fenced: the fence is its present owner's.
    ///
    /// # Errors
    /// If the storage below fails.
    pub async fn look(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError> {
        let read = move |connection: &_| reads::load(connection, &session, None);
        let Some((loaded, tick)) = self.readers.read(read).await? else { return Ok(None) };
        self.shared.published_up_to(tick).await?;
        Ok(Some(loaded))
    }

    /// Opens the store in a directory, which is made if it is not there. Blocks: what the last
    /// process left is looked at for damage, for 2 s at most.
    ///
    /// # Errors
    /// If the directory or the database in it cannot be used; nothing is changed then.
    pub fn open(directory: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let data_directory = Arc::new(DataDirectory::lock(directory)?);
        let mut connection = data_directory.open()?;
        let explain = |error| data_directory.explain(error);
        let read = |connection: &_| Books::read(connection, options.quota);
        let begun = life::begin(&mut connection, options.durability, read);
        let (life, books) = begun.map_err(explain)?;
        data_directory.keep(&connection).map_err(explain)?;
        let shared = Arc::new(Shared {
            books: RwLock::new(books),
            tails: Mutex::new(Tails::new(options.tail_bytes_max, options.stream_tail_bytes_max)),
            begun: AtomicI64::new(life.tick),
            published: watch::Sender::new(life.tick),
        });
        let disk = Disk::new(connection, Arc::clone(&data_directory)).map_err(explain)?;
        let started = Writer::start(disk, Arc::clone(&shared), options.durability);
        let path = directory.to_owned();
        let writer = started.map_err(|source| OpenError::Io { path, source })?;
        let readers = Arc::new(Readers::new(data_directory));
        Ok(Self { writer, readers, shared, epoch: life.epoch })
    }

    /// Reads something of a session in the file.
    async fn read_file<T: Send + 'static>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<Seen<T>> + Send + 'static,
    ) -> Result<T, ReadError> {
        let seen = self.readers.read(work).await?;
        let (read, tick) = seen.ok_or(ReadError::UnknownSession)?;
        self.shared.published_up_to(tick).await?;
        Ok(read)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // Before the writer's connection, which as the last one takes the log with it.
        self.readers.close();
    }
}

impl From<Broken> for CommitError {
    fn from(broken: Broken) -> Self {
        let Broken { failure, is_ambiguous } = broken;
        if is_ambiguous { Self::Ambiguous(failure) } else { Self::Io(failure) }
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        broken.failure
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn create(
        &self,
        session: SessionKey,
        principal: PrincipalKey,
    ) -> Result<Opened, CreateError> {
        let created = self.writer.run(sessions::Create { session, principal }, 0).await;
        created.map_err(Failure::from)?
    }

    /// Another one than before if claims may have been lost (design section 5, "Token"). Below
    /// 2^52.
    fn epoch(&self) -> Option<u64> {
        Some(self.epoch)
    }

    async fn sessions(
        &self,
        after: Option<SessionKey>,
        rows_max: usize,
    ) -> Result<Vec<SessionKey>, LoadError> {
        let read = move |connection: &_| reads::sessions(connection, after, rows_max);
        Ok(self.readers.read(read).await?)
    }

    async fn load(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError> {
        let loaded = self.load_all(vec![session]).await?;
        loaded.into_iter().next().unwrap_or(Ok(None))
    }

    async fn load_all(
        &self,
        sessions: Vec<SessionKey>,
    ) -> Result<Vec<Result<Option<Loaded>, LoadError>>, LoadError> {
        let taken = self.writer.run(sessions::TakeOver { sessions: sessions.clone() }, 0).await;
        let fences = taken.map_err(Failure::from)?;
        let read = move |connection: &_| {
            let taken = sessions.iter().zip(fences);
            let load = |(session, fence): (_, Option<_>)| match fence {
                Some(_) => reads::load(connection, session, fence),
                None => Ok(None),
            };
            Ok(taken.map(load).collect::<Vec<_>>())
        };
        let mut all = Vec::new();
        for seen in self.readers.read_each(read).await? {
            all.push(match seen {
                Ok(Some((loaded, tick))) => match self.shared.published_up_to(tick).await {
                    Ok(()) => Ok(Some(loaded)),
                    Err(damaged) => Err(damaged.into()),
                },
                Ok(None) => Ok(None),
                // Its row is damaged; the others are not.
                Err(error) => Err(readers::unreadable(error).into()),
            });
        }
        Ok(all)
    }

    async fn commit(
        &self,
        session: SessionKey,
        fence: Fence,
        expected: Version,
        batch: Batch,
    ) -> Result<Version, CommitError> {
        let commit = Commit::new(session, fence, expected, batch).map_err(|error| {
            let remedy = "report this as a fault of Rejoin";
            CommitError::Io(Failure::new("encode a row of its ledger", remedy, error))
        })?;
        let weight_bytes = commit.weight_bytes();
        self.writer.run(commit, weight_bytes).await?
    }

    async fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        let ready = lock(&self.shared.tails).page(&session, stream, after, bytes_max);
        if let Some(page) = ready {
            return page;
        }
        let read =
            move |connection: &_| reads::page(connection, &session, stream, after, bytes_max);
        self.read_file(read).await?
    }

    async fn seqs(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
    ) -> Result<Vec<Seq>, ReadError> {
        self.read_file(move |connection| reads::seqs(connection, &session, stream, after)).await
    }

    async fn read_part(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
        offset: usize,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        let ready = lock(&self.shared.tails).event(&session, stream, seq);
        if let Some(event) = ready {
            return Ok(event.map(|event| {
                let offset = offset.min(event.payload.len());
                event.payload.slice(offset..offset + bytes_max.min(event.payload.len() - offset))
            }));
        }
        let read =
            move |connection: &_| reads::part(connection, &session, stream, seq, offset, bytes_max);
        self.read_file(read).await
    }

    async fn read_one(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
    ) -> Result<Option<Event>, ReadError> {
        let ready = lock(&self.shared.tails).event(&session, stream, seq);
        if let Some(event) = ready {
            return Ok(event);
        }
        self.read_file(move |connection| reads::event(connection, &session, stream, seq)).await
    }

    async fn watch(&self, session: SessionKey, stream: StreamId) -> Result<StreamWatch, ReadError> {
        let (watch, is_known) = lock(&self.shared.tails).watch(session, stream);
        if is_known {
            return Ok(watch);
        }
        let read = move |connection: &_| reads::last(connection, &session, stream);
        match self.read_file(read).await {
            Ok(last) => {
                lock(&self.shared.tails).learn(&session, stream, last);
                Ok(watch)
            }
            Err(error) => {
                drop(watch);
                lock(&self.shared.tails).forget_watch(&session, stream);
                Err(error)
            }
        }
    }

    async fn token(&self, key: DedupKey) -> Result<Option<DedupRecord>, TokenError> {
        let found = self.readers.read(move |connection| tokens::find(connection, &key)).await?;
        let Some((record, tick)) = found else { return Ok(None) };
        self.shared.published_up_to(tick).await?;
        Ok(Some(record))
    }

    async fn remove(&self, session: SessionKey, fence: Fence) -> Result<(), RemoveError> {
        let removed = self.writer.run(sessions::Remove { session, fence }, 0).await;
        removed.map_err(Failure::from)?
    }

    async fn expire(&self, now_ms: u64, rows_max: usize) -> Result<Expired, ExpireError> {
        lock(&self.shared.tails).sweep();
        let (mut sum, mut left) = (Expired::default(), rows_max);
        loop {
            let rows_max = left.min(EXPIRED_ROWS_MAX);
            let part = self.writer.run(tokens::Expire { now_ms, rows_max }, 0).await;
            let part = part.map_err(Failure::from)?;
            sum.tombstones += part.tombstones;
            sum.forgotten += part.forgotten;
            sum.more = part.more;
            left -= rows_max;
            if left == 0 || !part.more {
                return Ok(sum);
            }
        }
    }

    async fn usage(&self) -> Result<Usage, UsageError> {
        let memory_bytes = lock(&self.shared.tails).payload_bytes();
        let books = self.shared.books();
        Ok(Usage {
            bytes: books.bytes(),
            memory_bytes,
            spilled_bytes: 0,
            sessions: books.sessions(),
            tokens: books.tokens(),
        })
    }

    async fn principal_usage(&self, principal: PrincipalKey) -> Result<PrincipalUsage, UsageError> {
        Ok(self.shared.books().usage_of(&principal))
    }
}
