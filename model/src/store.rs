//! What a store keeps of the session, and gives back after a crash: every batch, whole, in order.
//! After a power cut: those up to the last that had to survive one.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rejoin_core::effect::{Batch, EventKind};
use rejoin_core::id::{CallId, Seq, StreamId};
use rejoin_core::ledger::Call;
use rejoin_core::session::{Session, SessionRow, SessionStart, Stored, Tail};
use rejoin_core::stream::Stream;
use rejoin_core::token::{DedupKey, DedupRecord};

/// Rows of tokens.
pub type Tokens = BTreeMap<DedupKey, DedupRecord>;

/// The store of one session.
#[derive(Clone, Debug)]
pub struct Store {
    rows: Rows,
    /// What a power cut leaves, if there may be one.
    synced: Option<Box<(Rows, Tokens)>>,
}

/// The rows of one session.
#[derive(Clone, Debug)]
struct Rows {
    row: Arc<SessionRow>,
    calls: BTreeMap<CallId, Arc<Call>>,
    streams: BTreeMap<StreamId, Arc<Stream>>,
    tails: BTreeMap<StreamId, Tail>,
    last_seq: Seq,
}

impl Store {
    /// That of a session which has just been started.
    pub fn new(start: &SessionStart, power_may_be_cut: bool) -> Self {
        let rows = Rows::new(start);
        let synced = power_may_be_cut.then(|| Box::new((rows.clone(), Tokens::new())));
        Self { rows, synced }
    }

    /// Commits a batch, with the rows of tokens as they are then.
    pub fn commit(&mut self, batch: &Batch, tokens: &Tokens) {
        self.rows.commit(batch);
        if let Some(synced) = self.synced.as_mut().filter(|_| batch.durable) {
            **synced = (self.rows.clone(), tokens.clone());
        }
    }

    /// Only what had to survive is left: the last event, and the rows of tokens.
    pub fn lose_power(&mut self) -> Option<(Seq, Tokens)> {
        let (rows, tokens) = (**self.synced.as_ref()?).clone();
        self.rows = rows;
        Some((self.rows.last_seq, tokens))
    }

    /// All of it.
    pub fn stored(&self) -> Stored {
        self.rows.stored()
    }

    /// Feeds what of it may differ from the session's memory to a hasher: the session as it would
    /// be after a restart, seen through its projection.
    pub fn hash_at(&self, start: &SessionStart, now_ms: u64, state: &mut impl Hasher) {
        self.rows.hash_at(start, now_ms, state);
        if let Some(synced) = &self.synced {
            let (rows, tokens) = &**synced;
            rows.hash_at(start, now_ms, state);
            for (key, record) in tokens {
                (key, record.owner, std::mem::discriminant(&record.outcome)).hash(state);
            }
        }
    }
}

impl Rows {
    fn new(start: &SessionStart) -> Self {
        Self {
            row: Arc::new(start.row()),
            calls: BTreeMap::new(),
            streams: BTreeMap::new(),
            tails: BTreeMap::new(),
            last_seq: Seq::ORIGIN,
        }
    }

    fn commit(&mut self, batch: &Batch) {
        if let Some(row) = &batch.session {
            self.row = Arc::new((**row).clone());
        }
        self.calls.extend(batch.calls.iter().map(|call| (call.id, Arc::new(call.clone()))));
        for stream in &batch.streams {
            // What of a row is not written is as new when it is read.
            let stored = Stream { deadline_ms: None, ..stream.clone() };
            self.streams.insert(stream.id, Arc::new(stored));
        }
        for event in &batch.events {
            let none =
                Tail { stream: event.stream, produced: Seq::ORIGIN, bytes: 0, response_bytes: 0 };
            let tail = self.tails.entry(event.stream).or_insert(none);
            let bytes = event.payload.len() as u64;
            tail.produced = event.seq;
            tail.bytes += bytes;
            if event.kind == EventKind::Response {
                tail.response_bytes += bytes;
            }
            self.last_seq = self.last_seq.max(event.seq);
        }
        for call in &batch.forgotten_calls {
            self.calls.remove(call);
        }
        for stream in &batch.forgotten_streams {
            self.streams.remove(stream);
            self.tails.remove(stream);
        }
    }

    fn stored(&self) -> Stored {
        Stored {
            row: (*self.row).clone(),
            calls: self.calls.values().map(|call| (**call).clone()).collect(),
            streams: self.streams.values().map(|stream| (**stream).clone()).collect(),
            tails: self.tails.values().copied().collect(),
            last_seq: self.last_seq,
        }
    }

    fn hash_at(&self, start: &SessionStart, now_ms: u64, state: &mut impl Hasher) {
        let (session, _) = Session::restart(start.clone(), self.stored(), now_ms);
        session.hash_at(now_ms, state);
        self.last_seq.hash(state);
    }
}
