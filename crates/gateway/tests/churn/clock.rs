//! A store whose work takes no virtual time.

use std::sync::{Arc, Condvar, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::effect::{Batch, Event};
use rejoin_core::id::{Seq, StreamId};
use rejoin_core::token::{DedupKey, DedupRecord};
use rejoin_store::{
    CommitError, CreateError, ExpireError, Expired, Fence, LoadError, Loaded, Opened, Page,
    PrincipalKey, PrincipalUsage, ReadError, RemoveError, SessionKey, Store, StreamWatch,
    TokenError, Usage, UsageError, Version,
};

/// Hands everything on. While anything of it is being done, on whatever thread, the paused clock of
/// the runtime stands.
pub(crate) struct Clocked {
    inner: Arc<dyn Store>,
    clock: Arc<Stopped>,
}

/// Why the clock stands.
#[derive(Default)]
struct Stopped {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    operations: usize,
    has_holder: bool,
}

/// One reason; the clock goes on when the last is dropped.
struct Reason(Arc<Stopped>);

impl Stopped {
    fn hold(self: &Arc<Self>) -> Reason {
        let mut state = self.state.lock().unwrap();
        state.operations += 1;
        if !std::mem::replace(&mut state.has_holder, true) {
            let clock = Arc::clone(self);
            // Tokio's paused clock does not advance by itself while a blocking task is there.
            tokio::task::spawn_blocking(move || clock.wait());
        }
        Reason(Arc::clone(self))
    }

    fn wait(&self) {
        let state = self.state.lock().unwrap();
        let mut state = self.changed.wait_while(state, |state| state.operations > 0).unwrap();
        state.has_holder = false;
    }
}

impl Drop for Reason {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap();
        state.operations -= 1;
        if state.operations == 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Clocked {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, clock: Arc::default() }
    }
}

/// Does it while the clock stands.
macro_rules! held {
    ($store:ident.$operation:ident($($argument:expr),*)) => {{
        let _reason = $store.clock.hold();
        $store.inner.$operation($($argument),*).await
    }};
}

#[async_trait]
impl Store for Clocked {
    fn epoch(&self) -> Option<u64> {
        self.inner.epoch()
    }
    async fn create(&self, s: SessionKey, p: PrincipalKey) -> Result<Opened, CreateError> {
        held!(self.create(s, p))
    }
    async fn sessions(
        &self,
        after: Option<SessionKey>,
        rows_max: usize,
    ) -> Result<Vec<SessionKey>, LoadError> {
        held!(self.sessions(after, rows_max))
    }
    async fn load(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError> {
        held!(self.load(session))
    }
    async fn load_all(
        &self,
        sessions: Vec<SessionKey>,
    ) -> Result<Vec<Result<Option<Loaded>, LoadError>>, LoadError> {
        held!(self.load_all(sessions))
    }
    async fn commit(
        &self,
        session: SessionKey,
        fence: Fence,
        expected: Version,
        batch: Batch,
    ) -> Result<Version, CommitError> {
        held!(self.commit(session, fence, expected, batch))
    }
    async fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        held!(self.read(session, stream, after, bytes_max))
    }
    async fn read_part(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
        offset: usize,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        held!(self.read_part(session, stream, seq, offset, bytes_max))
    }
    async fn read_one(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
    ) -> Result<Option<Event>, ReadError> {
        held!(self.read_one(session, stream, seq))
    }
    async fn watch(&self, s: SessionKey, stream: StreamId) -> Result<StreamWatch, ReadError> {
        held!(self.watch(s, stream))
    }
    async fn token(&self, key: DedupKey) -> Result<Option<DedupRecord>, TokenError> {
        held!(self.token(key))
    }
    async fn remove(&self, session: SessionKey, fence: Fence) -> Result<(), RemoveError> {
        held!(self.remove(session, fence))
    }
    async fn expire(&self, now_ms: u64, rows_max: usize) -> Result<Expired, ExpireError> {
        held!(self.expire(now_ms, rows_max))
    }
    async fn usage(&self) -> Result<Usage, UsageError> {
        // At once, from memory.
        self.inner.usage().await
    }
    async fn principal_usage(&self, p: PrincipalKey) -> Result<PrincipalUsage, UsageError> {
        self.inner.principal_usage(p).await
    }
}
