//! Counts what is owed: a store that watches the commits passing through it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::effect::{Batch, Event};
use rejoin_core::id::{CallId, Seq, StreamId};
use rejoin_core::ledger::Call;
use rejoin_core::stream::{Stream, StreamState};
use rejoin_core::token::{DedupKey, DedupRecord};
use rejoin_store::{
    CommitError, CreateError, ExpireError, Expired, Fence, LoadError, Loaded, Opened, Page,
    PrincipalKey, PrincipalUsage, ReadError, RemoveError, SessionKey, Store, StreamWatch,
    TokenError, Usage, UsageError, Version,
};
use tokio::sync::watch;

use super::health::Health;
use super::{Metrics, State};

/// Maps of sessions, so that commits rarely meet in one.
const SHARDS: usize = 16;

/// Streams of the sessions of one shard that are not settled.
type Shard = HashMap<SessionKey, HashMap<StreamId, Unsettled>>;

/// A store that hands everything on, and keeps the gauges of streams and owed events. Of an
/// unsettled stream it remembers 8 bytes an event until the client confirms it.
pub(crate) struct CountedStore {
    inner: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    pub(super) health: Health,
    shards: [Mutex<Shard>; SHARDS],
    /// Streams that a drain waits for.
    busy: watch::Sender<usize>,
}

/// A stream whose answer may be missing at the client.
#[derive(Debug)]
struct Unsettled {
    state: StreamState,
    /// Events that the client has not confirmed, oldest first.
    unconfirmed: VecDeque<Seq>,
    /// Its calls that run.
    running: BTreeSet<CallId>,
}

impl Unsettled {
    fn new(state: StreamState) -> Self {
        Self { state, unconfirmed: VecDeque::new(), running: BTreeSet::new() }
    }

    /// True while a drain waits for it.
    fn is_busy(&self) -> bool {
        let is_on_its_way =
            matches!(self.state, StreamState::Live | StreamState::Ending | StreamState::Owed);
        is_on_its_way || !self.running.is_empty()
    }

    fn owed(&self) -> i64 {
        let counts = matches!(self.state, StreamState::Owed | StreamState::Abandoned);
        if counts { i64::try_from(self.unconfirmed.len()).unwrap_or(i64::MAX) } else { 0 }
    }
}

/// The part of a batch that is counted.
#[derive(Default)]
struct Change {
    events: Vec<(StreamId, Seq)>,
    streams: Vec<(StreamId, StreamState, Seq)>,
    /// Calls with a stream, and whether they run.
    calls: Vec<(CallId, StreamId, bool)>,
}

impl Change {
    fn of(batch: &Batch) -> Self {
        let events = batch.events.iter().filter(|event| event.stream != StreamId::STANDALONE);
        let events = events.map(|event| (event.stream, event.seq)).collect();
        Self::new(events, &batch.streams, &batch.calls)
    }

    fn new(events: Vec<(StreamId, Seq)>, streams: &[Stream], calls: &[Call]) -> Self {
        let rows = streams.iter().filter(|row| !row.is_standalone());
        let calls = calls
            .iter()
            .filter_map(|call| Some((call.id, call.stream?, call.phase.is_in_flight())));
        Self {
            events,
            streams: rows.map(|row| (row.id, row.state, row.cursors.acked)).collect(),
            calls: calls.collect(),
        }
    }
}

impl CountedStore {
    pub(crate) fn new(inner: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { inner, metrics, health: Health::default(), shards, busy: watch::Sender::new(0) }
    }

    /// Events after `after` up to `until` that the client of an unsettled stream has not confirmed.
    pub(crate) fn unconfirmed(
        &self,
        session: &SessionKey,
        stream: StreamId,
        after: Seq,
        until: Seq,
    ) -> u64 {
        let shard = self.shard(session);
        let known = shard.get(session).and_then(|streams| streams.get(&stream));
        let Some(known) = known else { return 0 };
        let seqs = &known.unconfirmed;
        let from = seqs.partition_point(|seq| *seq <= after);
        let to = seqs.partition_point(|seq| *seq <= until);
        to.saturating_sub(from) as u64
    }

    /// Counts what a session owes that another driver left, in place of what was counted of it.
    ///
    /// # Errors
    /// If its log cannot be read. What could be read of it is counted.
    pub(crate) async fn adopt(
        &self,
        session: SessionKey,
        loaded: &Loaded,
    ) -> Result<(), ReadError> {
        self.forget(&session);
        self.apply(session, Change::new(Vec::new(), &loaded.streams, &loaded.calls));
        let rows = loaded.streams.iter().filter(|row| is_counted(row));
        for (stream, after) in rows.map(|row| (row.id, row.cursors.acked)) {
            // Their numbers only: a start does not wait until gigabytes were read.
            let seqs = self.inner.seqs(session, stream, after).await?;
            let events = seqs.into_iter().map(|seq| (stream, seq)).collect();
            self.apply(session, Change { events, ..Change::default() });
        }
        Ok(())
    }

    /// Waits until no call with a stream runs, and no answer is on its way to a client, or waits
    /// for one that is about to come back.
    pub(crate) async fn idle(&self) {
        // The sender lives as long as this store.
        let _idle = self.busy.subscribe().wait_for(|busy| *busy == 0).await.is_ok();
    }

    fn shard(&self, session: &SessionKey) -> MutexGuard<'_, Shard> {
        let index = usize::from(session[0]) % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, session: SessionKey, change: Change) {
        if change.events.is_empty() && change.streams.is_empty() && change.calls.is_empty() {
            return;
        }
        let mut shard = self.shard(&session);
        let streams = shard.entry(session).or_default();
        for (stream, state, _) in &change.streams {
            if is_unsettled(*state) && !streams.contains_key(stream) {
                self.gauge(*state, 1);
                let known = Unsettled::new(*state);
                self.count_busy(false, known.is_busy());
                streams.insert(*stream, known);
            }
        }
        for (stream, seq) in change.events {
            if let Some(known) = streams.get_mut(&stream) {
                let before = known.owed();
                known.unconfirmed.push_back(seq);
                self.metrics.events_owed.inc_by(known.owed() - before);
            }
        }
        for (call, stream, runs) in change.calls {
            let Some(known) = streams.get_mut(&stream) else { continue };
            let before = known.is_busy();
            if runs {
                known.running.insert(call)
            } else {
                known.running.remove(&call)
            };
            self.count_busy(before, known.is_busy());
        }
        for (stream, state, acked) in change.streams {
            self.settle(streams, stream, state, acked);
        }
        if streams.is_empty() {
            shard.remove(&session);
        }
    }

    fn settle(
        &self,
        streams: &mut HashMap<StreamId, Unsettled>,
        stream: StreamId,
        state: StreamState,
        acked: Seq,
    ) {
        let Some(known) = streams.get_mut(&stream) else { return };
        let (before, was_busy) = (known.owed(), known.is_busy());
        if !is_unsettled(state) {
            self.gauge(known.state, -1);
            self.metrics.events_owed.dec_by(before);
            self.count_busy(was_busy, false);
            streams.remove(&stream);
            return;
        }
        if known.state != state {
            self.gauge(known.state, -1);
            self.gauge(state, 1);
            known.state = state;
            self.count_busy(was_busy, known.is_busy());
        }
        let confirmed = known.unconfirmed.partition_point(|seq| *seq <= acked);
        known.unconfirmed.drain(..confirmed);
        self.metrics.events_owed.inc_by(known.owed() - before);
    }

    /// Counts nothing of a session any more.
    pub(crate) fn forget(&self, session: &SessionKey) {
        for known in self.shard(session).remove(session).unwrap_or_default().into_values() {
            self.gauge(known.state, -1);
            self.metrics.events_owed.dec_by(known.owed());
            self.count_busy(known.is_busy(), false);
        }
    }

    fn count_busy(&self, was: bool, is: bool) {
        if was != is {
            self.busy.send_modify(|busy| *busy = *busy + usize::from(is) - usize::from(was));
        }
    }

    fn gauge(&self, state: StreamState, change: i64) {
        let label = State { state: state.name() };
        self.metrics.streams.get_or_create(&label).inc_by(change);
    }
}

/// True if the events of a stream are counted until they are confirmed.
fn is_counted(stream: &Stream) -> bool {
    !stream.is_standalone() && is_unsettled(stream.state)
}

/// False if nothing more is expected of a stream in this state.
fn is_unsettled(state: StreamState) -> bool {
    use StreamState as S;
    matches!(state, S::Held | S::Live | S::Ending | S::Owed | S::Abandoned | S::Doubtful)
}

#[async_trait]
impl Store for CountedStore {
    fn epoch(&self) -> Option<u64> {
        self.inner.epoch()
    }

    async fn create(
        &self,
        session: SessionKey,
        principal: PrincipalKey,
    ) -> Result<Opened, CreateError> {
        let created = self.inner.create(session, principal).await;
        self.health.note_create(&created);
        created
    }

    async fn sessions(
        &self,
        after: Option<SessionKey>,
        rows_max: usize,
    ) -> Result<Vec<SessionKey>, LoadError> {
        self.inner.sessions(after, rows_max).await
    }

    async fn load(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError> {
        self.inner.load(session).await
    }

    async fn load_all(
        &self,
        sessions: Vec<SessionKey>,
    ) -> Result<Vec<Result<Option<Loaded>, LoadError>>, LoadError> {
        self.inner.load_all(sessions).await
    }

    async fn commit(
        &self,
        session: SessionKey,
        fence: Fence,
        expected: Version,
        batch: Batch,
    ) -> Result<Version, CommitError> {
        let change = Change::of(&batch);
        let committed = self.inner.commit(session, fence, expected, batch).await;
        self.health.note_commit(&committed);
        if committed.is_ok() {
            self.apply(session, change);
        }
        committed
    }

    async fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        self.inner.read(session, stream, after, bytes_max).await
    }

    async fn seqs(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
    ) -> Result<Vec<Seq>, ReadError> {
        self.inner.seqs(session, stream, after).await
    }

    async fn read_part(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
        offset: usize,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        self.inner.read_part(session, stream, seq, offset, bytes_max).await
    }

    async fn read_one(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
    ) -> Result<Option<Event>, ReadError> {
        self.inner.read_one(session, stream, seq).await
    }

    async fn watch(&self, session: SessionKey, stream: StreamId) -> Result<StreamWatch, ReadError> {
        self.inner.watch(session, stream).await
    }

    async fn token(&self, key: DedupKey) -> Result<Option<DedupRecord>, TokenError> {
        self.inner.token(key).await
    }

    async fn remove(&self, session: SessionKey, fence: Fence) -> Result<(), RemoveError> {
        self.inner.remove(session, fence).await?;
        self.forget(&session);
        Ok(())
    }

    async fn expire(&self, now_ms: u64, rows_max: usize) -> Result<Expired, ExpireError> {
        self.inner.expire(now_ms, rows_max).await
    }

    async fn usage(&self) -> Result<Usage, UsageError> {
        self.inner.usage().await
    }

    async fn principal_usage(&self, principal: PrincipalKey) -> Result<PrincipalUsage, UsageError> {
        self.inner.principal_usage(principal).await
    }
}

#[cfg(test)]
mod tests;
