//! The one thread that writes.
//!
//! ```text
//! commit, commit, create ──> queue ──> begin; each in a savepoint; commit + one sync ──> answers
//!                              │                                                  │
//!             what comes meanwhile waits, and is the next group          tails, then watches
//! ```
//!
//! So a group is as large as the disk is slow, and nobody waits for a timer.

mod disk;
mod thread;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use rusqlite::types::FromSqlError;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::error::Failure;
use crate::sqlite::Durability;
use crate::sqlite::books::{Books, Entries};
use crate::sqlite::failure::writer_is_gone;
use crate::sqlite::operation::{Answer, Broken, Job, Operation, Posted};
use crate::sqlite::readers::unreadable;
use crate::sqlite::tail::Tails;
pub(super) use disk::Disk;
use thread::WriterThread;

/// Operations that wait; beyond, whoever asks waits to be let in.
const QUEUE_JOBS_MAX: usize = 1_024;
/// Bytes of batches that wait or are being written.
const QUEUE_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// What writer and readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) books: RwLock<Books>,
    pub(super) tails: Mutex<Tails>,
    /// Number of the last transaction that was begun.
    pub(super) begun: AtomicI64,
    /// Number of the last transaction that the tails have.
    pub(super) published: watch::Sender<i64>,
}

/// Locks a mutex. What it guards is whole even if a thread panicked: nothing here panics halfway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The books, to look at.
    pub(super) fn books(&self) -> RwLockReadGuard<'_, Books> {
        self.books.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the tails have a commit that was seen in the file: nobody who looks there next
    /// may find less.
    ///
    /// # Errors
    /// If no such commit can have been seen: the number is damaged, and waiting for it would not
    /// end.
    pub(super) async fn published_up_to(&self, tick: i64) -> Result<(), Failure> {
        if *self.published.borrow() >= tick {
            return Ok(());
        }
        if tick > self.begun.load(Ordering::Acquire) {
            return Err(unreadable(FromSqlError::OutOfRange(tick).into()));
        }
        let mut newest = self.published.subscribe();
        // It never closes while there is a store.
        let _closed = newest.wait_for(|newest| *newest >= tick).await;
        Ok(())
    }

    fn enter(&self, entries: Entries) {
        self.books.write().unwrap_or_else(PoisonError::into_inner).apply(entries);
    }
}

/// Passes operations on to the thread. Dropping it waits until all that it was given is done.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Box<dyn Job>>>,
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has none left.
    pub(super) fn start(
        disk: Disk,
        shared: Arc<Shared>,
        durability: Durability,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_JOBS_MAX);
        let writer = WriterThread::new(disk, shared, durability);
        let thread = std::thread::Builder::new().name("rejoin-store".to_owned());
        let thread = thread.spawn(move || writer.run(jobs))?;
        let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX as usize));
        Ok(Self { queue: Some(queue), room, thread: Some(thread) })
    }

    /// Has an operation done that holds `weight_bytes` in memory. It is done or not, whole, if
    /// nobody waits for it any more.
    pub(super) async fn run<O: Operation>(&self, operation: O, weight_bytes: u64) -> Answer<O> {
        let weight = u32::try_from(weight_bytes).unwrap_or(u32::MAX).clamp(1, QUEUE_BYTES_MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(weight).await;
        let (Ok(room), Some(queue)) = (room, &self.queue) else { return Err(is_gone(false)) };
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Posted::new(operation, reply, room));
        if queue.send(job).await.is_err() {
            return Err(is_gone(false));
        }
        answer.await.unwrap_or_else(|_| Err(is_gone(true)))
    }
}

/// The thread has ended, which it does before the end only if it panics.
fn is_gone(is_ambiguous: bool) -> Broken {
    Broken { failure: writer_is_gone(), is_ambiguous }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // It has told whoever waited, if it panicked.
            let _ended = thread.join();
        }
    }
}
