//! What the writer can be asked to do, and what it does it with.

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::contract::PrincipalKey;
use crate::error::{Failure, OverQuota};
use crate::sqlite::Durability;
use crate::sqlite::books::{Amounts, Books, Entries};
use crate::sqlite::tail::Change;

/// One operation: all of it or nothing, in a transaction that it shares with others.
pub(super) trait Operation: Send + 'static {
    /// What it tells; a refusal is an output, too.
    type Output: Send + 'static;

    /// True if it must survive a power cut under `--durability calls`.
    fn is_durable(&self) -> bool {
        false
    }

    /// True if it must under `--durability events`, too.
    fn is_progress(&self) -> bool {
        false
    }

    /// Does it. If it refuses, it must not have written anything.
    ///
    /// # Errors
    /// As SQLite says; what it has written is undone.
    fn run(self, transaction: &mut Transaction<'_>) -> rusqlite::Result<Self::Output>;
}

/// The storage failed.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    pub(super) failure: Failure,
    /// True if the operation may have happened all the same.
    pub(super) is_ambiguous: bool,
}

/// The transaction that an operation is part of.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    /// Number of the transaction, over all lives of the database.
    pub(super) tick: i64,
    books: &'a Books,
    earlier: &'a Entries,
    own: Effects,
}

/// What operations change besides the tables.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) entries: Vec<(PrincipalKey, Amounts)>,
    pub(super) changes: Vec<Change>,
    pub(super) has_written: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        tick: i64,
        books: &'a Books,
        earlier: &'a Entries,
    ) -> Self {
        Self { connection, tick, books, earlier, own: Effects::default() }
    }

    /// Whether `bytes` more of a principal fit.
    pub(super) fn check_room(&self, principal: &PrincipalKey, bytes: u64) -> Result<(), OverQuota> {
        self.books.check_room(self.earlier, principal, bytes)
    }

    /// Counts what a principal uses more, or less.
    pub(super) fn enter(&mut self, principal: PrincipalKey, amounts: Amounts) {
        self.own.has_written = true;
        self.own.entries.push((principal, amounts));
    }

    /// Tells readers, once it is committed.
    pub(super) fn change(&mut self, change: Change) {
        self.own.has_written = true;
        self.own.changes.push(change);
    }

    /// Says that something was written.
    pub(super) fn wrote(&mut self) {
        self.own.has_written = true;
    }

    /// What was changed.
    pub(super) fn into_effects(self) -> Effects {
        self.own
    }
}

/// An operation that waits for the writer, and whoever waits for it.
pub(super) trait Job: Send {
    /// True if it must be synced before it counts.
    fn needs_sync(&self, durability: Durability) -> bool;

    /// Does it, once.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> rusqlite::Result<()>;

    /// Overrides what came of it.
    fn fail(&mut self, broken: Broken);

    /// Tells whoever waits.
    fn answer(self: Box<Self>);
}

/// The answer to an operation.
pub(super) type Answer<O> = Result<<O as Operation>::Output, Broken>;

/// The only kind of [`Job`].
pub(super) struct Posted<O: Operation> {
    operation: Option<O>,
    answer: Option<Answer<O>>,
    reply: oneshot::Sender<Answer<O>>,
    _room: OwnedSemaphorePermit,
}

impl<O: Operation> Posted<O> {
    pub(super) fn new(
        operation: O,
        reply: oneshot::Sender<Answer<O>>,
        room: OwnedSemaphorePermit,
    ) -> Self {
        Self { operation: Some(operation), answer: None, reply, _room: room }
    }
}

impl<O: Operation> Job for Posted<O> {
    fn needs_sync(&self, durability: Durability) -> bool {
        let Some(operation) = &self.operation else { return false };
        match durability {
            Durability::Calls => operation.is_durable(),
            Durability::Events => operation.is_durable() || operation.is_progress(),
            Durability::Memory => false,
        }
    }

    fn run(&mut self, transaction: &mut Transaction<'_>) -> rusqlite::Result<()> {
        if let Some(operation) = self.operation.take() {
            self.answer = Some(Ok(operation.run(transaction)?));
        }
        Ok(())
    }

    fn fail(&mut self, broken: Broken) {
        self.answer = Some(Err(broken));
    }

    fn answer(self: Box<Self>) {
        if let Some(answer) = self.answer {
            // Whoever waited may have gone; what was done stays done.
            let _gone = self.reply.send(answer);
        }
    }
}
