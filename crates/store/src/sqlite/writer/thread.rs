//! The thread: one transaction after the other, and upkeep between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::disk::{Checkpoint, Disk, WRITE};
use super::{Shared, lock};
use crate::sqlite::books::Entries;
use crate::sqlite::failure::failure;
use crate::sqlite::operation::{Broken, Effects, Job, Transaction};
use crate::sqlite::tail::Change;
use crate::sqlite::{Durability, life, upkeep};

/// Operations in one transaction.
const GROUP_JOBS_MAX: usize = 512;
/// While there is no pause, a piece of upkeep is done this often.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(100);

/// What the thread works with.
pub(super) struct WriterThread {
    disk: Disk,
    shared: Arc<Shared>,
    durability: Durability,
    /// Number of the last transaction.
    tick: i64,
    has_upkeep: bool,
    /// True from the first piece of the file that was given up until the last.
    has_shrunk: bool,
    upkeep_at: Instant,
}

impl WriterThread {
    pub(super) fn new(disk: Disk, shared: Arc<Shared>, durability: Durability) -> Self {
        let (tick, upkeep_at) = (*shared.published.borrow(), Instant::now());
        let (has_upkeep, has_shrunk) = (true, false);
        Self { disk, shared, durability, tick, has_upkeep, has_shrunk, upkeep_at }
    }

    /// Works until nobody is left who could ask for anything.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        let _end = End(Arc::clone(&self.shared));
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
        self.disk.checkpoint_if_due();
    }

    fn transact(&mut self, jobs: &mut [Box<dyn Job>], is_synced: bool) -> Result<(), Broken> {
        let begun = self.disk.begin(is_synced);
        begun.map_err(|error| self.disk.give_up(error, false))?;
        self.tick += 1;
        self.shared.begun.store(self.tick, Ordering::Release);
        let mut sum = Sum::default();
        let written = self.run_all(jobs, &mut sum);
        written.map_err(|error| self.disk.give_up(error, false))?;
        let end = if sum.has_written { "commit" } else { "rollback" };
        self.disk.execute(end).map_err(|error| self.disk.give_up(error, true))?;
        self.publish(sum);
        Ok(())
    }

    fn run_all(&mut self, jobs: &mut [Box<dyn Job>], sum: &mut Sum) -> rusqlite::Result<()> {
        let books = self.shared.books();
        for job in jobs {
            self.disk.execute("savepoint job")?;
            let connection = &self.disk.connection;
            let mut transaction = Transaction::new(connection, self.tick, &books, &sum.entries);
            match job.run(&mut transaction) {
                Ok(()) => sum.add(transaction.into_effects()),
                // Nothing is left that the others could be part of.
                Err(error) if connection.is_autocommit() => return Err(error),
                Err(error) => {
                    self.disk.execute("rollback to job")?;
                    self.disk.note(&error);
                    let is_ambiguous = false;
                    job.fail(Broken { failure: failure(WRITE, error), is_ambiguous });
                }
            }
            self.disk.execute("release job")?;
        }
        books.write(&self.disk.connection, &sum.entries)
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

    /// Deletes a part of what is no longer readable, or gives a part of the file back.
    fn upkeep(&mut self) {
        self.upkeep_at = Instant::now();
        let done = match self.collect() {
            Ok(false) => self.shrink(),
            other => other,
        };
        self.has_upkeep = done.unwrap_or_else(|error| {
            self.disk.give_up(error, true);
            false
        });
        self.disk.checkpoint_if_due();
    }

    /// Deletes a part of the garbage; false if there is none.
    fn collect(&mut self) -> rusqlite::Result<bool> {
        self.disk.begin(false)?;
        let mut entries = Entries::default();
        let is_some = upkeep::collect(&self.disk.connection, &mut entries)?;
        self.shared.books().write(&self.disk.connection, &entries)?;
        self.disk.execute(if is_some { "commit" } else { "rollback" })?;
        self.shared.enter(entries);
        Ok(is_some)
    }

    /// Gives a part of the file back; false if it has none to spare.
    fn shrink(&mut self) -> rusqlite::Result<bool> {
        let is_smaller = upkeep::shrink(&self.disk.connection)?;
        if self.has_shrunk && !is_smaller {
            // Only now does the file system get anything.
            self.disk.checkpoint(Checkpoint::Passive)?;
        }
        self.has_shrunk = is_smaller;
        Ok(is_smaller)
    }

    /// Leaves the file whole and alone, and notes that nothing can have been lost.
    fn close(mut self) {
        let closed = self
            .disk
            .begin(true)
            .and_then(|()| life::note_clean_end(&self.disk.connection))
            .and_then(|()| self.disk.execute("commit"))
            .and_then(|()| self.disk.checkpoint(Checkpoint::Truncating));
        if let Err(error) = closed {
            // The next start looks at what is there.
            self.disk.give_up(error, true);
        }
    }
}

/// The next job, or that there will be none.
fn wait(queue: &mut mpsc::Receiver<Box<dyn Job>>) -> Result<Box<dyn Job>, TryRecvError> {
    queue.blocking_recv().ok_or(TryRecvError::Disconnected)
}

/// Lets those go who wait for a transaction to be shown, however the thread ends.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.published.send_replace(i64::MAX);
    }
}

/// What the operations of a transaction changed.
#[derive(Default)]
struct Sum {
    entries: Entries,
    changes: Vec<Change>,
    has_written: bool,
}

impl Sum {
    fn add(&mut self, effects: Effects) {
        for (principal, amounts) in effects.entries {
            self.entries.add(principal, amounts);
        }
        self.changes.extend(effects.changes);
        self.has_written |= effects.has_written;
    }
}
