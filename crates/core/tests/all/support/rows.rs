//! What a store would hold of a session: enough to start it again from.

use std::collections::BTreeMap;

use rejoin_core::effect::{Batch, EventKind};
use rejoin_core::id::{CallId, Seq, StreamId};
use rejoin_core::ledger::Call;
use rejoin_core::session::{Session, SessionRow, SessionStart, SessionView, Stored, Tail};
use rejoin_core::stream::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Clone, Debug)]
pub struct Rows {
    pub row: SessionRow,
    pub calls: BTreeMap<CallId, Call>,
    pub streams: BTreeMap<StreamId, Stream>,
    events: BTreeMap<Seq, Kept>,
    produced: BTreeMap<StreamId, Seq>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    stream: StreamId,
    kind: EventKind,
    bytes: u64,
}

impl Rows {
    pub fn new(start: &SessionStart) -> Self {
        Self {
            row: start.row(),
            calls: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            produced: BTreeMap::new(),
        }
    }

    pub fn apply(&mut self, batch: &Batch) {
        if let Some(row) = &batch.session {
            self.row = stored(&**row);
        }
        self.calls.extend(batch.calls.iter().map(|call| (call.id, stored(call))));
        self.streams.extend(batch.streams.iter().map(|stream| (stream.id, stored(stream))));
        for event in &batch.events {
            let bytes = event.payload.len() as u64;
            let kept = Kept { stream: event.stream, kind: event.kind, bytes };
            assert!(event.seq <= self.row.reserved.seq, "{} was not reserved", event.seq);
            assert!(self.events.insert(event.seq, kept).is_none(), "{} came twice", event.seq);
            self.produced.insert(event.stream, event.seq);
        }
        for eviction in &batch.evictions {
            self.events.retain(|seq, kept| {
                let covers = kept.stream == eviction.stream && *seq <= eviction.through;
                !covers || !eviction.responses_too && kept.kind == EventKind::Response
            });
        }
        for call in &batch.forgotten_calls {
            self.calls.remove(call);
        }
        for stream in &batch.forgotten_streams {
            self.streams.remove(stream);
            self.produced.remove(stream);
        }
    }

    /// What the store has is what the session would write now: a change that is forgotten here is
    /// lost with the process.
    pub fn assert_current(&self, session: &Session, view: &SessionView) {
        assert_eq!(as_json(&self.row), as_json(&session.row()), "the row of the session");
        let calls = view.calls.iter().map(|call| (call.id, (call.phase, call.stream)));
        let stored = self.calls.values().map(|call| (call.id, (call.phase.name(), call.stream)));
        assert_eq!(stored.collect::<BTreeMap<_, _>>(), calls.collect(), "the rows of the calls");
        let streams = view.streams.iter().map(|stream| (stream.id, (stream.state, stream.scarred)));
        let stored = self.streams.values().map(|stream| {
            let state = (stream.state.name(), stream.scarred);
            (stream.id, state)
        });
        let stored: BTreeMap<_, _> = stored.filter(|(id, _)| *id != StreamId::STANDALONE).collect();
        let streams = streams.filter(|(id, _)| *id != StreamId::STANDALONE);
        assert_eq!(stored, streams.collect(), "the rows of the streams");
    }

    pub fn stored(&self) -> Stored {
        let tails = self.produced.iter().map(|(&stream, &produced)| {
            let sum = |kinds: &[EventKind]| {
                let kept = self.events.values().filter(|kept| kept.stream == stream);
                kept.filter(|kept| kinds.contains(&kept.kind)).map(|kept| kept.bytes).sum()
            };
            let progress: u64 = sum(&[EventKind::Notification, EventKind::ServerRequest]);
            let response_bytes = sum(&[EventKind::Response]);
            Tail { stream, produced, bytes: progress + response_bytes, response_bytes }
        });
        Stored {
            row: self.row.clone(),
            calls: self.calls.values().cloned().collect(),
            streams: self.streams.values().cloned().collect(),
            tails: tails.collect(),
            last_seq: self.produced.values().copied().max().unwrap_or_default(),
        }
    }
}

/// As a store gives it back.
fn stored<T: Serialize + DeserializeOwned>(row: &T) -> T {
    let json = serde_json::to_vec(row).expect("a row can be written");
    serde_json::from_slice(&json).expect("a row can be read")
}

/// A row with what has no order of its own in order.
fn as_json(row: &SessionRow) -> String {
    let mut row = row.clone();
    row.forgotten.sort_unstable();
    // Where nothing goes on, a restart loses the server's state in any case.
    row.lost_untold &= row.continuation.is_some();
    serde_json::to_string(&row).expect("a row can be written")
}
