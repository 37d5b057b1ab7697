//! Connections that read, a few at a time, on threads that may block.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::error::Failure;
use crate::sqlite::failure::failure;
use crate::sqlite::open::DataDirectory;
use crate::sqlite::writer::lock;

/// Reads at once; beyond, they wait.
const READERS_MAX: usize = 4;

const READ: &str = "read its database";

/// What was read of several things, each of which can fail by itself.
type Each<T> = Vec<rusqlite::Result<T>>;

/// What a failed read says.
pub(super) fn unreadable(error: rusqlite::Error) -> Failure {
    failure(READ, error)
}

/// The connections that nobody uses now, and how many may be in use.
#[derive(Debug)]
pub(super) struct Readers {
    directory: Arc<DataDirectory>,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(directory: Arc<DataDirectory>) -> Self {
        let permits = Arc::new(Semaphore::new(READERS_MAX));
        Self { directory, idle: Mutex::default(), permits }
    }

    /// Reads in one transaction: what `work` sees is of one moment.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        self.read_whole(work, |_| true).await
    }

    /// As [`read`](Self::read), for several things, each of which can fail by itself.
    pub(super) async fn read_each<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> rusqlite::Result<Each<T>> + Send + 'static,
    ) -> Result<Each<T>, Failure> {
        self.read_whole(work, |each| each.iter().all(Result::is_ok)).await
    }

    async fn read_whole<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
        is_whole: fn(&T) -> bool,
    ) -> Result<T, Failure> {
        // Nobody closes it.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let readers = Arc::clone(self);
        let read = move || {
            let _permit = permit;
            readers.read_blocking(work, is_whole)
        };
        let read = tokio::task::spawn_blocking(read).await;
        // It ends without an answer only when the runtime shuts down.
        read.unwrap_or_else(|error| {
            let remedy = "start again";
            Err(Failure::new(READ, remedy, std::io::Error::other(error)))
        })
    }

    /// Closes the connections that nobody uses now.
    pub(super) fn close(&self) {
        lock(&self.idle).clear();
    }

    /// How many connections nobody uses now.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        lock(&self.idle).len()
    }

    fn read_blocking<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
        is_whole: fn(&T) -> bool,
    ) -> Result<T, Failure> {
        let idle = lock(&self.idle).pop();
        let read = || {
            let connection = match idle {
                Some(connection) => connection,
                None => self.directory.connect_reader()?,
            };
            let transaction = connection.unchecked_transaction()?;
            let read = work(&transaction)?;
            transaction.finish()?;
            Ok((connection, read))
        };
        // After an error the connection goes, too: the next one starts afresh.
        let (connection, read) = read().map_err(unreadable)?;
        if is_whole(&read) {
            lock(&self.idle).push(connection);
        }
        Ok(read)
    }
}
