//! The connection that writes, and how far what it wrote is on the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::{Connection, ErrorCode, ffi};

use crate::sqlite::failure::{failure, is_ambiguous};
use crate::sqlite::open::DataDirectory;
use crate::sqlite::operation::Broken;

/// The log before the database is copied into it when it has this many pages (8 MiB) ...
const CHECKPOINT_PAGES: i32 = 2_048;
/// ... and each time that it has grown by this many more, readers are waited for, lest it never
/// starts anew.
const WAIT_PAGES: i32 = 16_384;

/// What a failure says that was not done.
pub(super) const WRITE: &str = "write to its database";

/// Copying the log into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checkpoint {
    /// What others still read stays in the log.
    Passive,
    /// They are waited for, and the log starts anew.
    Truncating,
}

/// The connection, and what is known of the disk below it.
pub(in crate::sqlite) struct Disk {
    pub(super) connection: Connection,
    directory: Arc<DataDirectory>,
    /// Whether commits are synced, as last set; `None`: not set yet.
    is_synchronous: Option<bool>,
    /// True once the disk failed, until all that was committed is known to be on it.
    is_ailing: bool,
    /// Pages in the log before the database, as of the last commit.
    log_pages: Arc<AtomicI32>,
    /// With how many pages readers are waited for.
    wait_pages: i32,
}

impl Disk {
    pub(in crate::sqlite) fn new(
        connection: Connection,
        directory: Arc<DataDirectory>,
    ) -> rusqlite::Result<Self> {
        let mut disk = Self {
            connection,
            directory,
            is_synchronous: None,
            is_ailing: false,
            log_pages: Arc::default(),
            wait_pages: WAIT_PAGES,
        };
        disk.count_log_pages()?;
        Ok(disk)
    }

    /// Keeps `log_pages`; it stands in directory of checkpoints inside of commits.
    fn count_log_pages(&mut self) -> rusqlite::Result<()> {
        let count = Arc::clone(&self.log_pages);
        self.connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            count.store(pages, Ordering::Relaxed);
            Ok(())
        }))
    }

    /// Begins a transaction that is synced, or not, when it is committed.
    pub(super) fn begin(&mut self, is_synced: bool) -> rusqlite::Result<()> {
        self.heal()?;
        if self.is_synchronous != Some(is_synced) {
            let level = if is_synced { "full" } else { "normal" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.is_synchronous = Some(is_synced);
        }
        self.execute("begin immediate")
    }

    /// Runs one statement.
    pub(super) fn execute(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(statement)?.execute([])?;
        Ok(())
    }

    /// Undoes what was begun.
    pub(super) fn give_up(&mut self, error: rusqlite::Error, was_committing: bool) -> Broken {
        let is_io = self.note(&error);
        if !self.connection.is_autocommit() && self.execute("rollback").is_err() {
            self.is_ailing = true;
        }
        Broken { failure: failure(WRITE, error), is_ambiguous: was_committing && is_io }
    }

    /// Takes note of an error; true if it is the disk's.
    pub(super) fn note(&mut self, error: &rusqlite::Error) -> bool {
        let is_io = is_ambiguous(error);
        self.is_ailing |= is_io;
        is_io
    }

    /// After an error of the disk: what was committed before and not synced may have been dropped,
    /// and a later sync would not tell. So all of it is copied into the database, which is synced,
    /// and the log before it starts anew.
    fn heal(&mut self) -> rusqlite::Result<()> {
        if !self.is_ailing {
            return Ok(());
        }
        if self.checkpoint(Checkpoint::Truncating).is_err() {
            self.connection = self.directory.connect_writer()?;
            self.is_synchronous = None;
            self.count_log_pages()?;
            self.checkpoint(Checkpoint::Truncating)?;
        }
        self.is_ailing = false;
        Ok(())
    }

    /// Copies the log before the database into it.
    ///
    /// # Errors
    /// If that fails, or readers that were waited for took too long.
    pub(super) fn checkpoint(&self, kind: Checkpoint) -> rusqlite::Result<()> {
        let statement = match kind {
            Checkpoint::Passive => "pragma wal_checkpoint(passive)",
            Checkpoint::Truncating => "pragma wal_checkpoint(truncate)",
        };
        let is_busy: bool = self.connection.query_row(statement, [], |row| row.get(0))?;
        if is_busy && kind == Checkpoint::Truncating {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None));
        }
        Ok(())
    }

    /// Keeps the log before the database short.
    pub(super) fn checkpoint_if_due(&mut self) {
        let pages = self.log_pages.load(Ordering::Relaxed);
        if pages < CHECKPOINT_PAGES {
            self.wait_pages = WAIT_PAGES;
            return;
        }
        let kind =
            if pages < self.wait_pages { Checkpoint::Passive } else { Checkpoint::Truncating };
        match self.checkpoint(kind) {
            Ok(()) if kind == Checkpoint::Truncating => self.log_pages.store(0, Ordering::Relaxed),
            Ok(()) => {}
            // Somebody reads for long. Nobody else is to wait for that after each commit.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                self.wait_pages = pages.saturating_add(WAIT_PAGES);
            }
            // Nothing is lost by it; but the next commit must not build on such a disk.
            Err(_) => self.is_ailing = true,
        }
    }
}
