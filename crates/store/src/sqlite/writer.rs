//! The one thread that writes.
//!
//! ```text
//! commit, commit, create ──> queue ──> begin; each in a savepoint; commit + one sync ──> answers
//!                              │                                                  │
//!             what comes meanwhile waits, and is the next group          tails, then watches
//! ```
//!
//! So a group is as large as the disk is slow, and nobody waits for a timer.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, ffi};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::sqlite::Durability;
use crate::sqlite::act::{Act, Answer, Broken, Effects, Frame, Ground, Job, Posted};
use crate::sqlite::books::{Books, Entries};
use crate::sqlite::failure::{failure, is_ambiguous, writer_is_gone};
use crate::sqlite::life;
use crate::sqlite::open::Place;
use crate::sqlite::tail::{Change, Tails};
use crate::sqlite::upkeep;

/// Operations that wait; beyond, whoever asks waits to be let in.
const QUEUE_JOBS_MAX: usize = 1_024;
/// Bytes of batches that wait or are being written.
const QUEUE_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// Operations in one transaction.
const GROUP_JOBS_MAX: usize = 512;
/// The log before the database is copied into it when it has this many pages (8 MiB) ...
const CHECKPOINT_PAGES: i32 = 2_048;
/// ... and readers are waited for when it has this many, lest it never starts anew.
const CHECKPOINT_WAITING_PAGES: i32 = 16_384;
/// While there is no pause, a piece of upkeep is done this often.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(100);

const WRITE: &str = "write to its database";

/// What writer and readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) books: RwLock<Books>,
    pub(super) tails: Mutex<Tails>,
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
        connection: Connection,
        place: Arc<Place>,
        shared: Arc<Shared>,
        durability: Durability,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_JOBS_MAX);
        let tick = *shared.published.borrow();
        let desk = Desk {
            connection,
            place,
            shared,
            durability,
            tick,
            is_synchronous: None,
            is_ailing: false,
            log_pages: Arc::default(),
            has_upkeep: true,
            has_shrunk: false,
            upkeep_at: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("rejoin-store".to_owned());
        let thread = thread.spawn(move || desk.run(jobs))?;
        let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX as usize));
        Ok(Self { queue: Some(queue), room, thread: Some(thread) })
    }

    /// Has an operation done that holds `weight_bytes` in memory. It is done or not, whole, if
    /// nobody waits for it any more.
    pub(super) async fn run<A: Act>(&self, act: A, weight_bytes: u64) -> Answer<A> {
        let gone = |_| Broken { failure: writer_is_gone(), is_ambiguous: false };
        let weight = u32::try_from(weight_bytes).unwrap_or(u32::MAX).clamp(1, QUEUE_BYTES_MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(weight).await.map_err(|_| gone(()))?;
        let (reply, answer) = oneshot::channel();
        let Some(queue) = &self.queue else { return Err(gone(())) };
        let job = Box::new(Posted::new(act, reply, room));
        queue.send(job).await.map_err(|_| gone(()))?;
        let lost = |_| Broken { failure: writer_is_gone(), is_ambiguous: true };
        answer.await.unwrap_or_else(|error| Err(lost(error)))
    }
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

/// What the thread works with.
struct Desk {
    connection: Connection,
    place: Arc<Place>,
    shared: Arc<Shared>,
    durability: Durability,
    tick: i64,
    /// Whether commits are synced, as last set; `None`: not set yet.
    is_synchronous: Option<bool>,
    /// True once the disk failed, until all that was committed is known to be on it.
    is_ailing: bool,
    /// Pages in the log before the database, as of the last commit.
    log_pages: Arc<AtomicI32>,
    has_upkeep: bool,
    /// True from the first piece of the file that was given up until the last.
    has_shrunk: bool,
    upkeep_at: Instant,
}

impl Desk {
    fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        if let Err(error) = self.count_log_pages() {
            self.give_up(error, false);
        }
        loop {
            let next = if self.has_upkeep { queue.try_recv() } else { wait(&mut queue) };
            match next {
                Ok(job) => {
                    let mut jobs = vec![job];
                    while jobs.len() < GROUP_JOBS_MAX
                        && let Ok(job) = queue.try_recv()
                    {
                        jobs.push(job);
                    }
                    self.work_off(jobs);
                    if self.upkeep_at.elapsed() >= UPKEEP_INTERVAL {
                        self.upkeep();
                    }
                }
                Err(TryRecvError::Empty) => self.upkeep(),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        self.close();
    }

    /// Does a group of operations, and tells whoever waits for them.
    fn work_off(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        let is_synced = jobs.iter().any(|job| job.needs_sync(self.durability));
        if let Err(broken) = self.transact(&mut jobs, is_synced) {
            for job in &mut jobs {
                job.fail(broken.clone());
            }
        }
        for job in jobs {
            job.answer();
        }
        self.checkpoint_if_due();
    }

    fn transact(&mut self, jobs: &mut [Box<dyn Job>], is_synced: bool) -> Result<(), Broken> {
        self.prepare(is_synced).map_err(|error| self.give_up(error, false))?;
        self.tick += 1;
        let frame = Frame { durability: self.durability, tick: self.tick, is_synced };
        let mut sum = Sum::default();
        let written = self.run_all(jobs, frame, &mut sum);
        written.map_err(|error| self.give_up(error, false))?;
        if !sum.has_written {
            return self.execute("rollback").map_err(|error| self.give_up(error, false));
        }
        self.execute("commit").map_err(|error| self.give_up(error, true))?;
        let synced = if sum.must_sync && !is_synced { self.sync() } else { Ok(()) };
        // It is in the file, whether or not it survives a power cut.
        self.publish(sum);
        synced
    }

    /// Sees to it that a transaction can begin, and begins it.
    fn prepare(&mut self, is_synced: bool) -> rusqlite::Result<()> {
        self.heal()?;
        if self.is_synchronous != Some(is_synced) {
            let level = if is_synced { "full" } else { "normal" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.is_synchronous = Some(is_synced);
        }
        self.execute("begin immediate")
    }

    fn run_all(
        &self,
        jobs: &mut [Box<dyn Job>],
        frame: Frame,
        sum: &mut Sum,
    ) -> rusqlite::Result<()> {
        let books = self.shared.books();
        for job in jobs {
            self.execute("savepoint job")?;
            let mut ground = Ground::new(&self.connection, frame, &books, &sum.entries);
            match job.run(&mut ground) {
                Ok(()) => sum.add(ground.into_effects()),
                // Nothing is left that the others could be part of.
                Err(error) if self.connection.is_autocommit() => return Err(error),
                Err(error) => {
                    self.execute("rollback to job")?;
                    let is_ambiguous = false;
                    job.fail(Broken { failure: failure(WRITE, error), is_ambiguous });
                }
            }
            self.execute("release job")?;
        }
        books.write(&self.connection, &sum.entries)
    }

    /// Shows readers what was committed.
    fn publish(&mut self, sum: Sum) {
        self.shared.enter(sum.entries);
        let mut tails = lock(&self.shared.tails);
        for change in sum.changes {
            tails.apply(change);
        }
        drop(tails);
        self.shared.published.send_replace(self.tick);
        self.has_upkeep = true;
    }

    /// Undoes what was begun.
    fn give_up(&mut self, error: rusqlite::Error, was_committing: bool) -> Broken {
        let is_io = is_ambiguous(&error);
        self.is_ailing |= is_io;
        if !self.connection.is_autocommit() && self.execute("rollback").is_err() {
            self.is_ailing = true;
        }
        Broken { failure: failure(WRITE, error), is_ambiguous: was_committing && is_io }
    }

    /// Syncs what was committed without.
    fn sync(&mut self) -> Result<(), Broken> {
        self.place.sync_log().map_err(|error| {
            self.is_ailing = true;
            let remedy = "check the disk of the data directory";
            let failure = crate::error::Failure::new("sync its database", remedy, error);
            Broken { failure, is_ambiguous: true }
        })
    }

    /// After an error of the disk: what was committed before and not synced may have been dropped,
    /// and a later sync would not tell. So all of it is copied into the database, which is synced,
    /// and the log before it starts anew.
    fn heal(&mut self) -> rusqlite::Result<()> {
        if !self.is_ailing {
            return Ok(());
        }
        if self.checkpoint("truncate").is_err() {
            self.connection = self.place.connect_writer()?;
            self.count_log_pages()?;
            self.is_synchronous = None;
            self.checkpoint("truncate")?;
        }
        self.is_ailing = false;
        Ok(())
    }

    /// Copies the log before the database into it.
    ///
    /// # Errors
    /// If that fails, or (but for `passive`) readers did not let it finish.
    fn checkpoint(&self, mode: &str) -> rusqlite::Result<()> {
        let query = format!("pragma wal_checkpoint({mode})");
        let busy: bool = self.connection.query_row(&query, [], |row| row.get(0))?;
        if busy && mode != "passive" {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None));
        }
        Ok(())
    }

    /// Keeps `log_pages`, in place of checkpoints inside of commits.
    fn count_log_pages(&mut self) -> rusqlite::Result<()> {
        let count = Arc::clone(&self.log_pages);
        self.connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            count.store(pages, Ordering::Relaxed);
            Ok(())
        }))
    }

    fn checkpoint_if_due(&mut self) {
        let pages = self.log_pages.load(Ordering::Relaxed);
        if pages < CHECKPOINT_PAGES {
            return;
        }
        let mode = if pages < CHECKPOINT_WAITING_PAGES { "passive" } else { "restart" };
        match self.checkpoint(mode) {
            Ok(()) => self.log_pages.store(0, Ordering::Relaxed),
            // Nothing is lost by it, and it comes again. If the disk failed, commits must know.
            Err(error) => {
                self.is_ailing |= error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy)
            }
        }
    }

    /// Deletes a part of what is no longer readable, or gives a part of the file back.
    fn upkeep(&mut self) {
        self.upkeep_at = Instant::now();
        let done = self.prepare(false).and_then(|()| {
            let mut entries = Entries::default();
            let step = upkeep::collect(&self.connection, &mut entries)?;
            self.shared.books().write(&self.connection, &entries)?;
            self.execute(if step { "commit" } else { "rollback" })?;
            self.shared.enter(entries);
            if step {
                return Ok(true);
            }
            let is_smaller = upkeep::shrink(&self.connection)?;
            if self.has_shrunk && !is_smaller {
                // Only now does the file system get anything back.
                self.checkpoint("passive")?;
            }
            self.has_shrunk = is_smaller;
            Ok(is_smaller)
        });
        self.has_upkeep = done.unwrap_or_else(|error| {
            self.give_up(error, true);
            false
        });
        self.checkpoint_if_due();
    }

    /// Leaves the file whole and alone, and notes that nothing can have been lost.
    fn close(mut self) {
        let closed = self
            .prepare(true)
            .and_then(|()| life::note_clean_end(&self.connection))
            .and_then(|()| self.execute("commit"))
            .and_then(|()| self.checkpoint("truncate"));
        if let Err(error) = closed {
            // The next start looks at what is there.
            self.give_up(error, true);
        }
    }

    fn execute(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(statement)?.execute([])?;
        Ok(())
    }
}

/// The next job, or that there will be none.
fn wait(queue: &mut mpsc::Receiver<Box<dyn Job>>) -> Result<Box<dyn Job>, TryRecvError> {
    queue.blocking_recv().ok_or(TryRecvError::Disconnected)
}

/// What the operations of a transaction changed.
#[derive(Default)]
struct Sum {
    entries: Entries,
    changes: Vec<Change>,
    has_written: bool,
    must_sync: bool,
}

impl Sum {
    fn add(&mut self, effects: Effects) {
        for (principal, amounts) in effects.entries {
            self.entries.add(principal, amounts);
        }
        self.changes.extend(effects.changes);
        self.has_written |= effects.has_written;
        self.must_sync |= effects.must_sync;
    }
}
