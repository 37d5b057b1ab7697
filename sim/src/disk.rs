//! The log that outlives the gateway: a memory store behind a disk that is slow, fails commits, and
//! at a kill has applied what was not yet acknowledged, or not.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::effect::{Batch, Event};
use rejoin_core::id::{Seq, StreamId};
use rejoin_core::ledger::Phase;
use rejoin_core::token::{DedupKey, DedupRecord};
use rejoin_store::{
    CommitError, CreateError, ExpireError, Expired, Failure, Fence, LoadError, Loaded,
    MemoryLimits, MemoryStore, OpenError, Opened, Page, PrincipalKey, PrincipalUsage, ReadError,
    RemoveError, SessionKey, Store, StreamWatch, TokenError, Usage, UsageError, Version,
};
use tokio::time::sleep;

use crate::history::{History, Mark, What};
use crate::net::marks;
use crate::random::Random;

/// The epoch of the first ledger. Each that is lost is followed by another.
const EPOCH: u64 = 7;

/// How the disk behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// A commit takes so long, in milliseconds.
    pub commit_ms: (u64, u64),
    /// Of 100 commits, so many fail: half of them were applied.
    pub failing_percent: u64,
}

/// What every life of the gateway has in common.
#[derive(Clone)]
pub struct Disk {
    shared: Arc<Shared>,
}

struct Shared {
    limits: MemoryLimits,
    history: History,
    state: Mutex<State>,
}

struct State {
    store: Arc<MemoryStore>,
    epoch: u64,
    pace: Pace,
    random: Random,
    life: u32,
    next: u64,
    /// Commits on their way.
    pending: BTreeMap<u64, (SessionKey, Fence, Version, Batch)>,
}

impl Disk {
    /// # Errors
    /// If the memory store cannot be made.
    pub fn new(limits: MemoryLimits, history: History, random: Random) -> Result<Self, OpenError> {
        let store = Arc::new(MemoryStore::new(limits)?);
        let (pace, pending) = (Pace::default(), BTreeMap::new());
        let state = State { store, epoch: EPOCH, pace, random, life: 0, next: 0, pending };
        Ok(Self { shared: Arc::new(Shared { limits, history, state: Mutex::new(state) }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_pace(&self, pace: Pace) {
        let before = std::mem::replace(&mut self.state().pace, pace);
        if before != pace {
            let disturbed = pace != Pace::default();
            self.shared.history.record(What::Disk { disturbed });
        }
    }

    /// Nothing of what was written is there any more. No gateway runs on it now.
    ///
    /// # Errors
    /// If the memory store cannot be made.
    pub fn lose(&self) -> Result<(), OpenError> {
        let store = Arc::new(MemoryStore::new(self.shared.limits)?);
        let mut state = self.state();
        (state.store, state.epoch) = (store, state.epoch + 1);
        self.shared.history.record(What::LedgerLost);
        Ok(())
    }

    /// The gateway's process ends, and each commit on its way was applied, or not.
    pub fn kill(&self) {
        let mut applied = Vec::new();
        let store = {
            let mut state = self.state();
            state.life += 1;
            for commit in std::mem::take(&mut state.pending).into_values() {
                if state.random.percent(50) {
                    applied.push(commit);
                }
            }
            Arc::clone(&state.store)
        };
        for (session, fence, version, batch) in applied {
            let kept = kept(session, &batch);
            // One that does not fit any more was not applied.
            if at_once(store.commit(session, fence, version, batch)).is_ok() {
                self.note(kept);
            }
        }
    }

    fn note(&self, kept: Vec<What>) {
        kept.into_iter().for_each(|what| self.shared.history.record(what));
    }

    /// The store as the process of this life sees it.
    pub fn open(&self) -> Arc<dyn Store> {
        let (life, store, epoch) = {
            let state = self.state();
            (state.life, Arc::clone(&state.store), state.epoch)
        };
        Arc::new(Mounted { disk: self.clone(), life, store, epoch })
    }
}

/// What a commit has on the disk for good, of what must be there before anything leaves.
fn kept(store_key: SessionKey, batch: &Batch) -> Vec<What> {
    if !batch.durable {
        return Vec::new();
    }
    let claimed = batch.calls.iter().filter(|call| call.phase == Phase::Claimed);
    let claimed = claimed.map(|call| What::Claimed { store_key, call: call.id.0 });
    let texts = batch.events.iter().map(|event| String::from_utf8_lossy(&event.payload));
    let marks = texts.flat_map(|text| marks(&text)).map(|(mark, _)| mark);
    let answers = marks.filter_map(|mark| match mark {
        Mark::Answer(exec) => Some(What::Kept { exec }),
        _ => None,
    });
    claimed.chain(answers).collect()
}

/// Runs a future of the store to its end, while nothing else runs: the memory store does some of
/// its work on other threads, and these must not decide the order of things.
fn at_once<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park_timeout(Duration::from_millis(100)),
        }
    }
}

/// The disk in one life of the gateway: after it, nothing is answered any more.
struct Mounted {
    disk: Disk,
    life: u32,
    store: Arc<MemoryStore>,
    epoch: u64,
}

enum Fate {
    Done,
    Lost,
    /// It was done, and nobody is told.
    Ambiguous,
}

impl Mounted {
    /// Stays pending once this life is over.
    async fn alive(&self) {
        if self.disk.state().life != self.life {
            std::future::pending().await
        }
    }

    async fn ask<T>(&self, asked: impl Future<Output = T>) -> T {
        self.alive().await;
        at_once(asked)
    }

    fn store(&self) -> &MemoryStore {
        &self.store
    }
}

fn broken() -> Failure {
    Failure::new("write the log", "wait", io::ErrorKind::Other.into())
}

#[async_trait]
impl Store for Mounted {
    fn epoch(&self) -> Option<u64> {
        Some(self.epoch)
    }

    async fn sessions(
        &self,
        after: Option<SessionKey>,
        rows_max: usize,
    ) -> Result<Vec<SessionKey>, LoadError> {
        self.ask(self.store().sessions(after, rows_max)).await
    }

    async fn create(
        &self,
        session: SessionKey,
        principal: PrincipalKey,
    ) -> Result<Opened, CreateError> {
        self.ask(self.store().create(session, principal)).await
    }

    async fn load(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError> {
        self.ask(self.store().load(session)).await
    }

    async fn commit(
        &self,
        session: SessionKey,
        fence: Fence,
        expected: Version,
        batch: Batch,
    ) -> Result<Version, CommitError> {
        self.alive().await;
        let (number, delay_ms, fate) = {
            let mut state = self.disk.state();
            let (low, high) = state.pace.commit_ms;
            let percent = state.pace.failing_percent;
            let fate = match (state.random.percent(percent), state.random.percent(50)) {
                (false, _) => Fate::Done,
                (true, false) => Fate::Lost,
                (true, true) => Fate::Ambiguous,
            };
            let delay_ms = state.random.between(low, high);
            state.next += 1;
            let number = state.next;
            if delay_ms > 0 {
                state.pending.insert(number, (session, fence, expected, batch.clone()));
            }
            (number, delay_ms, fate)
        };
        if delay_ms > 0 {
            sleep(Duration::from_millis(delay_ms)).await;
            self.alive().await;
            self.disk.state().pending.remove(&number);
        }
        let kept = kept(session, &batch);
        let commit = self.store().commit(session, fence, expected, batch);
        if let Fate::Done = fate {
            let version = at_once(commit)?;
            self.disk.note(kept);
            return Ok(version);
        }
        self.disk.shared.history.record(What::StoreFailed { store_key: session });
        match fate {
            Fate::Lost => Err(CommitError::Io(broken())),
            _ => {
                at_once(commit)?;
                self.disk.note(kept);
                Err(CommitError::Ambiguous(broken()))
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
        self.ask(self.store().read(session, stream, after, bytes_max)).await
    }

    async fn read_part(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
        offset: usize,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        self.ask(self.store().read_part(session, stream, seq, offset, bytes_max)).await
    }

    async fn read_one(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
    ) -> Result<Option<Event>, ReadError> {
        self.ask(self.store().read_one(session, stream, seq)).await
    }

    async fn watch(&self, session: SessionKey, stream: StreamId) -> Result<StreamWatch, ReadError> {
        self.ask(self.store().watch(session, stream)).await
    }

    async fn token(&self, key: DedupKey) -> Result<Option<DedupRecord>, TokenError> {
        self.ask(self.store().token(key)).await
    }

    async fn remove(&self, session: SessionKey, fence: Fence) -> Result<(), RemoveError> {
        self.ask(self.store().remove(session, fence)).await
    }

    async fn expire(&self, now_ms: u64, rows_max: usize) -> Result<Expired, ExpireError> {
        self.ask(self.store().expire(now_ms, rows_max)).await
    }

    async fn usage(&self) -> Result<Usage, UsageError> {
        self.ask(self.store().usage()).await
    }

    async fn principal_usage(&self, principal: PrincipalKey) -> Result<PrincipalUsage, UsageError> {
        self.ask(self.store().principal_usage(principal)).await
    }
}
