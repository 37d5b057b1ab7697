//! The newest events of streams, ready to be read, and whoever waits for the next one.
//!
//! Only the writer adds to it, after each commit and for all of it under one lock; so a tail is at
//! most one commit behind the file, and whoever saw that commit in the file waits for it here.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use rejoin_core::effect::{Event, EventKind, Eviction};
use rejoin_core::id::{Seq, StreamId};
use tokio::sync::watch;

use crate::charge::EVENT_OVERHEAD_BYTES;
use crate::contract::SessionKey;
use crate::error::ReadError;
use crate::page::{Bounds, Page, PageBuilder};
use crate::watch::StreamWatch;

/// What a commit changed, for whoever reads.
#[derive(Debug)]
pub(super) enum Change {
    /// Events came and went.
    Log {
        session: SessionKey,
        events: Vec<Event>,
        evictions: Vec<Eviction>,
        /// Streams that changed, as they are now.
        bounds: Vec<(StreamId, Bounds)>,
        forgotten: Vec<StreamId>,
    },
    /// A session is gone.
    Removed(SessionKey),
}

/// All tails.
#[derive(Debug)]
pub(super) struct Tails {
    bytes_max: u64,
    stream_bytes_max: u64,
    sessions: HashMap<SessionKey, HashMap<StreamId, Tail>>,
    /// Events from the oldest to the newest, by when they came.
    order: BTreeMap<u64, (SessionKey, StreamId)>,
    next_age: u64,
    /// Payloads and overheads.
    bytes: u64,
    payload_bytes: u64,
}

#[derive(Debug, Default)]
struct Tail {
    /// Every event after this one is here; `None`: nothing is known.
    floor: Option<Seq>,
    bounds: Bounds,
    events: VecDeque<Kept>,
    bytes: u64,
    grown: Option<watch::Sender<Seq>>,
}

#[derive(Debug)]
struct Kept {
    age: u64,
    event: Event,
}

fn cost(event: &Event) -> u64 {
    EVENT_OVERHEAD_BYTES + event.payload.len() as u64
}

impl Tail {
    fn is_watched(&self) -> bool {
        self.grown.as_ref().is_some_and(|grown| grown.receiver_count() > 0)
    }

    fn is_of_use(&self) -> bool {
        !self.events.is_empty() || self.is_watched()
    }
}

impl Tails {
    pub(super) fn new(bytes_max: u64, stream_bytes_max: u64) -> Self {
        Self {
            bytes_max,
            stream_bytes_max: stream_bytes_max.min(bytes_max),
            sessions: HashMap::new(),
            order: BTreeMap::new(),
            next_age: 0,
            bytes: 0,
            payload_bytes: 0,
        }
    }

    /// Payload bytes kept.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Follows what was committed.
    pub(super) fn apply(&mut self, change: Change) {
        let (session, events, evictions, bounds, forgotten) = match change {
            Change::Removed(session) => {
                let gone = self.sessions.remove(&session);
                for tail in gone.into_iter().flat_map(HashMap::into_values) {
                    self.release(&tail);
                }
                return;
            }
            Change::Log { session, events, evictions, bounds, forgotten } => {
                (session, events, evictions, bounds, forgotten)
            }
        };
        for event in events {
            self.append(session, event);
        }
        for eviction in evictions {
            self.evict(&session, eviction);
        }
        for (stream, bounds) in bounds {
            if let Some(tail) = self.tail_mut(&session, stream) {
                tail.bounds = bounds;
                if let Some(grown) = &tail.grown {
                    raise(grown, bounds.last);
                }
            }
        }
        for stream in forgotten {
            let gone = self.sessions.get_mut(&session).and_then(|tails| tails.remove(&stream));
            if let Some(tail) = gone {
                self.release(&tail);
            }
        }
        self.make_room();
    }

    fn tail_mut(&mut self, session: &SessionKey, stream: StreamId) -> Option<&mut Tail> {
        self.sessions.get_mut(session)?.get_mut(&stream)
    }

    /// Keeps a copy of an event, lest a few bytes keep the large buffer alive they were cut from.
    fn append(&mut self, session: SessionKey, mut event: Event) {
        let (age, cost, stream) = (self.next_age, cost(&event), event.stream);
        let room = self.stream_bytes_max.checked_sub(cost);
        let mut left = self.tail(session, stream).bytes;
        while left > room.unwrap_or(0) {
            left = self.drop_first(&session, stream);
        }
        let tail = self.tail(session, stream);
        if room.is_none() {
            tail.floor = Some(event.seq);
            return self.drop_if_useless(&session, stream);
        }
        event.payload = Bytes::copy_from_slice(&event.payload);
        let payload_bytes = event.payload.len() as u64;
        tail.floor.get_or_insert(event.previous);
        tail.events.push_back(Kept { age, event });
        tail.bytes += cost;
        self.next_age += 1;
        self.order.insert(age, (session, stream));
        self.bytes += cost;
        self.payload_bytes += payload_bytes;
    }

    fn tail(&mut self, session: SessionKey, stream: StreamId) -> &mut Tail {
        self.sessions.entry(session).or_default().entry(stream).or_default()
    }

    /// Drops a stream's oldest event; what is left of the stream.
    fn drop_first(&mut self, session: &SessionKey, stream: StreamId) -> u64 {
        let Some(tail) = self.tail_mut(session, stream) else { return 0 };
        let Some(kept) = tail.events.pop_front() else { return 0 };
        tail.floor = Some(kept.event.seq);
        tail.bytes -= cost(&kept.event);
        let left = tail.bytes;
        self.forget(&kept);
        left
    }

    fn forget(&mut self, kept: &Kept) {
        self.order.remove(&kept.age);
        self.bytes -= cost(&kept.event);
        self.payload_bytes -= kept.event.payload.len() as u64;
    }

    fn release(&mut self, tail: &Tail) {
        for kept in &tail.events {
            self.forget(kept);
        }
    }

    fn evict(&mut self, session: &SessionKey, eviction: Eviction) {
        let Some(tail) = self.tail_mut(session, eviction.stream) else { return };
        let goes = |event: &Event| {
            let is_kept = !eviction.responses_too && event.kind == EventKind::Response;
            event.seq <= eviction.through && !is_kept
        };
        let all = std::mem::take(&mut tail.events);
        let (gone, kept): (VecDeque<Kept>, VecDeque<Kept>) =
            all.into_iter().partition(|kept| goes(&kept.event));
        tail.events = kept;
        tail.bytes -= gone.iter().map(|kept| cost(&kept.event)).sum::<u64>();
        for kept in &gone {
            self.forget(kept);
        }
        self.drop_if_useless(session, eviction.stream);
    }

    fn make_room(&mut self) {
        while self.bytes > self.bytes_max {
            let Some((_, &(session, stream))) = self.order.first_key_value() else { return };
            self.drop_first(&session, stream);
            self.drop_if_useless(&session, stream);
        }
    }

    fn drop_if_useless(&mut self, session: &SessionKey, stream: StreamId) {
        let Some(tails) = self.sessions.get_mut(session) else { return };
        if tails.get(&stream).is_some_and(|tail| !tail.is_of_use()) {
            tails.remove(&stream);
        }
        if tails.is_empty() {
            self.sessions.remove(session);
        }
    }

    /// Forgets the tails without events that nobody follows any more.
    pub(super) fn sweep(&mut self) {
        self.sessions.retain(|_, tails| {
            tails.retain(|_, tail| tail.is_of_use());
            !tails.is_empty()
        });
    }

    /// A page, if all of it is here.
    pub(super) fn page(
        &self,
        session: &SessionKey,
        stream: StreamId,
        after: Seq,
        bytes_max: usize,
    ) -> Option<Result<Page, ReadError>> {
        let tail = self.sessions.get(session)?.get(&stream)?;
        if tail.floor.is_none_or(|floor| after < floor) {
            return None;
        }
        Some(tail.page(stream, after, bytes_max))
    }

    /// One event, or that there is none; `None` if that is not known here.
    pub(super) fn event(
        &self,
        session: &SessionKey,
        stream: StreamId,
        seq: Seq,
    ) -> Option<Option<Event>> {
        let tail = self.sessions.get(session)?.get(&stream)?;
        if tail.floor.is_none_or(|floor| seq <= floor) {
            return None;
        }
        let at = tail.events.partition_point(|kept| kept.event.seq < seq);
        let found = tail.events.get(at).filter(|kept| kept.event.seq == seq);
        Some(found.map(|kept| kept.event.clone()))
    }

    /// Follows a stream. False: what was its last event before is not known here; it is for the
    /// caller to find out, and to tell by [`learn`](Self::learn).
    pub(super) fn watch(&mut self, session: SessionKey, stream: StreamId) -> (StreamWatch, bool) {
        let tail = self.tail(session, stream);
        let last = tail.bounds.last;
        let grown = tail.grown.get_or_insert_with(|| watch::Sender::new(last));
        (StreamWatch::new(grown.subscribe()), tail.floor.is_some())
    }

    /// Tells those that follow a stream of its last event in the file.
    pub(super) fn learn(&mut self, session: &SessionKey, stream: StreamId, last: Seq) {
        if let Some(grown) = self.tail_mut(session, stream).and_then(|tail| tail.grown.as_ref()) {
            raise(grown, last);
        }
    }

    /// Forgets a stream that is followed although its session is not there.
    pub(super) fn forget_watch(&mut self, session: &SessionKey, stream: StreamId) {
        self.drop_if_useless(session, stream);
    }
}

impl Tail {
    fn page(&self, stream: StreamId, after: Seq, bytes_max: usize) -> Result<Page, ReadError> {
        let mut page = PageBuilder::new(stream, after, bytes_max, self.bounds);
        let mut events = Vec::new();
        let from = self.events.partition_point(|kept| kept.event.seq <= after);
        for Kept { event, .. } in self.events.range(from..) {
            let bytes = event.payload.len();
            if !page.offer(event.seq, event.previous, bytes)? {
                break;
            }
            let payload = event.payload.slice(..bytes.min(bytes_max));
            events.push(Event { payload, ..event.clone() });
        }
        Ok(Page::new(events, page.finish()?))
    }
}

fn raise(grown: &watch::Sender<Seq>, last: Seq) {
    grown.send_if_modified(|seq| {
        let is_later = last > *seq;
        *seq = (*seq).max(last);
        is_later
    });
}
