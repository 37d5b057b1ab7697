//! A store that fails when a test says so.

use std::collections::HashMap;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::effect::{Batch, Event};
use rejoin_core::id::{Seq, StreamId};
use rejoin_core::token::{DedupKey, DedupRecord};
use tokio::sync::Semaphore;

use crate::contract::{
    Expired, Fence, Loaded, Opened, PrincipalKey, PrincipalUsage, SessionKey, Store, Usage, Version,
};
use crate::error::{
    CommitError, CreateError, ExpireError, Failure, LoadError, ReadError, RemoveError, TokenError,
    UsageError,
};
use crate::page::Page;
use crate::watch::StreamWatch;

/// An operation that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the operations")]
pub enum Operation {
    Create,
    Load,
    Commit,
    Read,
    Seqs,
    ReadPart,
    ReadOne,
    Watch,
    Token,
    Remove,
    Expire,
    Usage,
}

/// What happens to an operation.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is not done, and fails.
    Fail(io::ErrorKind),
    /// It is not done; a commit fails as ambiguous, others fail.
    LoseRequest,
    /// It is done; a commit fails as ambiguous, others fail.
    LoseAnswer,
    /// It is done after this time.
    Delay(Duration),
    /// It is done once it got a permit, which it uses up.
    Hold(Arc<Semaphore>),
}

/// Wraps a store and injects faults. Without any, it does what the store does.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    plans: Mutex<Plans>,
    ahead_ms: AtomicU64,
}

#[derive(Default)]
struct Plans {
    counts: HashMap<Operation, u64>,
    faults: Vec<Plan>,
}

struct Plan {
    operation: Operation,
    first: u64,
    last: u64,
    fault: Fault,
}

impl FaultStore {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, plans: Mutex::default(), ahead_ms: AtomicU64::new(0) }
    }

    /// What is loaded from now on is dated so much later, in milliseconds: as it looks to a process
    /// before whose start the system's time was put back.
    pub fn put_clock_back(&self, ms: u64) {
        self.ahead_ms.store(ms, Ordering::Relaxed);
    }

    /// Injects `fault` into the calls of `operation` in `calls`, counted from now: `1..=1` is the
    /// next one, `3..` the third from now and all after it. The first plan that matches wins.
    pub fn inject(&self, operation: Operation, calls: impl RangeBounds<u64>, fault: Fault) {
        let mut plans = self.lock();
        let made = plans.counts.get(&operation).copied().unwrap_or_default();
        let first = match calls.start_bound() {
            Bound::Included(&first) => first,
            Bound::Excluded(&before) => before + 1,
            Bound::Unbounded => 0,
        };
        let last = match calls.end_bound() {
            Bound::Included(&last) => last,
            Bound::Excluded(&after) => after.saturating_sub(1),
            Bound::Unbounded => u64::MAX,
        };
        let (first, last) = (made + first, made.saturating_add(last));
        plans.faults.push(Plan { operation, first, last, fault });
    }

    /// Ends all faults; calls that wait already go on waiting.
    pub fn clear(&self) {
        self.lock().faults.clear();
    }

    /// How often an operation was called, failed calls included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.lock().counts.get(&operation).copied().unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, operation: Operation) -> Option<Fault> {
        let mut plans = self.lock();
        let count = plans.counts.entry(operation).or_default();
        *count += 1;
        let call = *count;
        let matching =
            |plan: &&Plan| plan.operation == operation && (plan.first..=plan.last).contains(&call);
        plans.faults.iter().find(matching).map(|plan| plan.fault.clone())
    }

    /// Waits if it must, then says how the call fails, if it does.
    async fn pass(&self, operation: Operation) -> Option<Failing> {
        let failing = |kind: io::ErrorKind| Failure::new("do it", "end the fault", kind.into());
        match self.next(operation)? {
            Fault::Fail(kind) => Some(Failing::NotDone(failing(kind))),
            Fault::LoseRequest => Some(Failing::Lost(failing(io::ErrorKind::ConnectionReset))),
            Fault::LoseAnswer => Some(Failing::Done(failing(io::ErrorKind::ConnectionReset))),
            Fault::Delay(time) => {
                tokio::time::sleep(time).await;
                None
            }
            Fault::Hold(gate) => {
                // A closed gate holds nobody.
                if let Ok(permit) = gate.acquire().await {
                    permit.forget();
                }
                None
            }
        }
    }
}

/// The same, with every moment that it tells of later by so much.
fn dated_later(mut loaded: Loaded, ms: u64) -> Loaded {
    let later = |at_ms: Option<u64>| at_ms.map(|at_ms| at_ms + ms);
    for call in &mut loaded.calls {
        call.claimed_ms += ms;
        call.heard_ms += ms;
        (call.ended_ms, call.lost_ms) = (later(call.ended_ms), later(call.lost_ms));
    }
    for stream in &mut loaded.streams {
        stream.opened_ms += ms;
        stream.ended_ms = later(stream.ended_ms);
        stream.settled_ms = later(stream.settled_ms);
        stream.detached_since_ms = later(stream.detached_since_ms);
    }
    loaded
}

enum Failing {
    NotDone(Failure),
    Lost(Failure),
    Done(Failure),
}

/// Passes a call on, unless it is to fail.
macro_rules! pass {
    ($store:ident, $operation:ident, $error:ident, $call:expr) => {
        match $store.pass(Operation::$operation).await {
            None => $call.await,
            Some(Failing::NotDone(failure) | Failing::Lost(failure)) => Err($error::Io(failure)),
            Some(Failing::Done(failure)) => {
                $call.await?;
                Err($error::Io(failure))
            }
        }
    };
}

#[async_trait]
impl Store for FaultStore {
    fn epoch(&self) -> Option<u64> {
        self.inner.epoch()
    }

    async fn create(
        &self,
        session: SessionKey,
        principal: PrincipalKey,
    ) -> Result<Opened, CreateError> {
        pass!(self, Create, CreateError, self.inner.create(session, principal))
    }

    async fn sessions(
        &self,
        after: Option<SessionKey>,
        rows_max: usize,
    ) -> Result<Vec<SessionKey>, LoadError> {
        pass!(self, Load, LoadError, self.inner.sessions(after, rows_max))
    }

    async fn load(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError> {
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        let load = async {
            let loaded = self.inner.load(session).await?;
            Ok(loaded.map(|loaded| dated_later(loaded, ahead_ms)))
        };
        pass!(self, Load, LoadError, load)
    }

    async fn commit(
        &self,
        session: SessionKey,
        fence: Fence,
        expected: Version,
        batch: Batch,
    ) -> Result<Version, CommitError> {
        match self.pass(Operation::Commit).await {
            None => self.inner.commit(session, fence, expected, batch).await,
            Some(Failing::NotDone(failure)) => Err(CommitError::Io(failure)),
            Some(Failing::Lost(failure)) => Err(CommitError::Ambiguous(failure)),
            Some(Failing::Done(failure)) => {
                self.inner.commit(session, fence, expected, batch).await?;
                Err(CommitError::Ambiguous(failure))
            }
        }
    }

    async fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        pass!(self, Read, ReadError, self.inner.read(session, stream, after, bytes_max))
    }

    async fn seqs(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
    ) -> Result<Vec<Seq>, ReadError> {
        pass!(self, Seqs, ReadError, self.inner.seqs(session, stream, after))
    }

    async fn read_part(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
        offset: usize,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        let read = self.inner.read_part(session, stream, seq, offset, bytes_max);
        pass!(self, ReadPart, ReadError, read)
    }

    async fn read_one(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
    ) -> Result<Option<Event>, ReadError> {
        pass!(self, ReadOne, ReadError, self.inner.read_one(session, stream, seq))
    }

    async fn watch(&self, session: SessionKey, stream: StreamId) -> Result<StreamWatch, ReadError> {
        pass!(self, Watch, ReadError, self.inner.watch(session, stream))
    }

    async fn token(&self, key: DedupKey) -> Result<Option<DedupRecord>, TokenError> {
        pass!(self, Token, TokenError, self.inner.token(key))
    }

    async fn remove(&self, session: SessionKey, fence: Fence) -> Result<(), RemoveError> {
        pass!(self, Remove, RemoveError, self.inner.remove(session, fence))
    }

    async fn expire(&self, now_ms: u64, rows_max: usize) -> Result<Expired, ExpireError> {
        pass!(self, Expire, ExpireError, self.inner.expire(now_ms, rows_max))
    }

    async fn usage(&self) -> Result<Usage, UsageError> {
        pass!(self, Usage, UsageError, self.inner.usage())
    }

    async fn principal_usage(&self, principal: PrincipalKey) -> Result<PrincipalUsage, UsageError> {
        pass!(self, Usage, UsageError, self.inner.principal_usage(principal))
    }
}

#[cfg(test)]
mod tests;
