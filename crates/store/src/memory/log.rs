//! One session: ledger rows and the chains of its streams.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use rejoin_core::effect::{Batch, Event, EventKind, Eviction};
use rejoin_core::id::{CallId, Seq, StreamId};
use rejoin_core::ledger::Call;
use rejoin_core::session::{SessionRow, Tail};
use rejoin_core::stream::Stream;
use tokio::sync::watch;

use crate::contract::{Fence, Loaded, PrincipalKey, Version};
use crate::error::{CommitError, ReadError};
use crate::memory::stored::Stored;
use crate::page::{Bounds, PageBuilder, Shape};
use crate::watch::StreamWatch;

/// What a session's mutex guards.
#[derive(Debug)]
pub(super) struct SessionLog {
    fence: Fence,
    version: Version,
    last_seq: Seq,
    is_removed: bool,
    row: Option<Box<SessionRow>>,
    calls: BTreeMap<CallId, Call>,
    streams: BTreeMap<StreamId, Stream>,
    chains: HashMap<StreamId, Chain>,
}

/// The events of one stream.
#[derive(Debug, Default)]
struct Chain {
    entries: VecDeque<Entry>,
    bounds: Bounds,
    grown: Option<watch::Sender<Seq>>,
}

/// An event without stream and payload.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    seq: Seq,
    previous: Seq,
    kind: EventKind,
    last: bool,
    pub(super) stored: Arc<Stored>,
}

impl Entry {
    /// The event.
    pub(super) fn event(&self, stream: StreamId, payload: bytes::Bytes) -> Event {
        Event {
            stream,
            seq: self.seq,
            previous: self.previous,
            kind: self.kind,
            last: self.last,
            payload,
        }
    }
}

impl SessionLog {
    pub(super) fn new() -> Self {
        Self {
            fence: Fence(1),
            version: Version(0),
            last_seq: Seq::ORIGIN,
            is_removed: false,
            row: None,
            calls: BTreeMap::new(),
            streams: BTreeMap::new(),
            chains: HashMap::new(),
        }
    }

    pub(super) fn fence(&self) -> Fence {
        self.fence
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Hands the session to a new owner.
    pub(super) fn load(&mut self, principal: PrincipalKey) -> Option<Loaded> {
        if self.is_removed {
            return None;
        }
        self.fence.0 += 1;
        let chains = self.chains.iter();
        let mut tails: Vec<_> = chains.filter_map(|(&id, chain)| chain.tail(id)).collect();
        tails.sort_unstable_by_key(|tail| tail.stream);
        Some(Loaded {
            fence: self.fence,
            version: self.version,
            principal,
            row: self.row.as_deref().cloned(),
            calls: self.calls.values().cloned().collect(),
            streams: self.streams.values().cloned().collect(),
            tails,
            last_seq: self.last_seq,
        })
    }

    /// Whether a batch may be applied, but for tokens and quota.
    pub(super) fn check(
        &self,
        fence: Fence,
        expected: Version,
        batch: &Batch,
    ) -> Result<(), CommitError> {
        if self.is_removed {
            return Err(CommitError::UnknownSession);
        }
        if fence != self.fence {
            return Err(CommitError::Fenced);
        }
        if expected != self.version {
            return Err(CommitError::StaleVersion { expected, actual: self.version });
        }
        self.check_chains(&batch.events)
    }

    fn check_chains(&self, events: &[Event]) -> Result<(), CommitError> {
        let mut last_seq = self.last_seq;
        let mut ends: HashMap<StreamId, Seq> = HashMap::new();
        for event in events {
            let (stream, seq, previous) = (event.stream, event.seq, event.previous);
            if seq <= last_seq {
                return Err(CommitError::Backwards { last_seq, seq });
            }
            let known = || self.chains.get(&stream).map_or(Seq::ORIGIN, |chain| chain.bounds.last);
            let end = ends.entry(stream).or_insert_with(known);
            if previous != *end {
                let expected_previous = *end;
                return Err(CommitError::Gap { stream, expected_previous, previous });
            }
            (*end, last_seq) = (seq, seq);
        }
        Ok(())
    }

    /// Applies a batch that was checked under the same lock; `stored` has a payload per event.
    pub(super) fn apply(&mut self, batch: Batch, stored: Vec<Arc<Stored>>) -> Version {
        for (event, stored) in batch.events.into_iter().zip(stored) {
            self.last_seq = event.seq;
            self.chains.entry(event.stream).or_default().append(&event, stored);
        }
        if let Some(row) = batch.session {
            self.row = Some(row);
        }
        for call in batch.calls {
            self.calls.insert(call.id, call);
        }
        for stream in batch.streams {
            self.streams.insert(stream.id, stream);
        }
        for eviction in batch.evictions {
            if let Some(chain) = self.chains.get_mut(&eviction.stream) {
                chain.evict(eviction);
            }
        }
        for call in batch.forgotten_calls {
            self.calls.remove(&call);
        }
        for stream in batch.forgotten_streams {
            self.streams.remove(&stream);
            self.chains.remove(&stream);
        }
        self.version = self.version.next();
        self.version
    }

    /// The entries of a page.
    pub(super) fn page(
        &self,
        stream: StreamId,
        after: Seq,
        bytes_max: usize,
    ) -> Result<(Vec<Entry>, Shape), ReadError> {
        self.check_known()?;
        let nothing = Chain::default();
        let chain = self.chains.get(&stream).unwrap_or(&nothing);
        let mut page = PageBuilder::new(stream, after, bytes_max, chain.bounds);
        let mut taken = Vec::new();
        let from = chain.entries.partition_point(|entry| entry.seq <= after);
        for entry in chain.entries.range(from..) {
            if !page.offer(entry.seq, entry.previous, entry.stored.payload_bytes())? {
                break;
            }
            taken.push(entry.clone());
        }
        Ok((taken, page.finish()?))
    }

    /// One entry.
    pub(super) fn entry(&self, stream: StreamId, seq: Seq) -> Result<Option<Entry>, ReadError> {
        self.check_known()?;
        Ok(self.chains.get(&stream).and_then(|chain| chain.find(seq)).cloned())
    }

    /// Follows a stream.
    pub(super) fn watch(&mut self, stream: StreamId) -> Result<StreamWatch, ReadError> {
        self.check_known()?;
        let chain = self.chains.entry(stream).or_default();
        let last = chain.bounds.last;
        let grown = chain.grown.get_or_insert_with(|| watch::Sender::new(last));
        Ok(StreamWatch::new(grown.subscribe()))
    }

    /// Forgets everything. What is returned should be dropped outside of the lock.
    pub(super) fn remove(&mut self) -> Self {
        let removed = Self { is_removed: true, ..Self::new() };
        std::mem::replace(self, removed)
    }

    fn check_known(&self) -> Result<(), ReadError> {
        if self.is_removed { Err(ReadError::UnknownSession) } else { Ok(()) }
    }
}

impl Chain {
    fn append(&mut self, event: &Event, stored: Arc<Stored>) {
        self.entries.push_back(Entry {
            seq: event.seq,
            previous: event.previous,
            kind: event.kind,
            last: event.last,
            stored,
        });
        self.bounds.last = event.seq;
        if let Some(grown) = &self.grown {
            grown.send_replace(event.seq);
        }
    }

    fn evict(&mut self, eviction: Eviction) {
        let through = eviction.through.min(self.bounds.last);
        self.bounds.evicted = self.bounds.evicted.max(through);
        let end = self.entries.partition_point(|entry| entry.seq <= through);
        let is_kept = |entry: &Entry| !eviction.responses_too && entry.kind == EventKind::Response;
        let kept: Vec<Entry> = self.entries.drain(..end).filter(is_kept).collect();
        for entry in kept.into_iter().rev() {
            self.entries.push_front(entry);
        }
        if self.entries.capacity() > 4 * self.entries.len() {
            self.entries.shrink_to_fit();
        }
    }

    /// `None`: it is only watched so far.
    fn tail(&self, stream: StreamId) -> Option<Tail> {
        let bytes_of = |entry: &Entry| entry.stored.payload_bytes() as u64;
        let responses = self.entries.iter().filter(|entry| entry.kind == EventKind::Response);
        let tail = Tail {
            stream,
            produced: self.bounds.last,
            bytes: self.entries.iter().map(bytes_of).sum(),
            response_bytes: responses.map(bytes_of).sum(),
        };
        (tail.produced > Seq::ORIGIN).then_some(tail)
    }

    fn find(&self, seq: Seq) -> Option<&Entry> {
        let at = self.entries.partition_point(|entry| entry.seq < seq);
        self.entries.get(at).filter(|entry| entry.seq == seq)
    }
}
