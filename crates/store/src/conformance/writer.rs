//! A session's only writer, and the parts of its batches.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::{Batch, DedupWrite, Event, EventKind, Eviction};
use rejoin_core::id::{CallId, Epoch, Seq, StreamId, digest};
use rejoin_core::ledger::{Call, Phase};
use rejoin_core::message::IdKey;
use rejoin_core::revision::Revision;
use rejoin_core::session::{Continuation, SessionRow, SessionStart};
use rejoin_core::stream::{Stream, StreamState};
use rejoin_core::token::{DedupKey, DedupRecord, Outcome, Owner};
use rejoin_core::tool::Class;

use crate::contract::{Fence, PrincipalKey, SessionKey, Store, Version};
use crate::error::CommitError;

/// More than any page of the suite.
pub(super) const ALL: usize = usize::MAX;
/// The stream that most cases use.
pub(super) const STREAM: StreamId = StreamId(3);

/// Numbers the events of one session and keeps its fence and version.
pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    pub(super) session: SessionKey,
    pub(super) fence: Fence,
    pub(super) version: Version,
    next_seq: u64,
    ends: HashMap<StreamId, Seq>,
}

impl Writer {
    /// Creates the session `name` of the principal `of`.
    pub(super) async fn create_for(store: &Arc<dyn Store>, name: &str, of: &str) -> Self {
        let session = digest(name.as_bytes());
        let opened = store.create(session, principal(of)).await.expect("the session is new");
        let (fence, version) = (opened.fence, opened.version);
        let ends = HashMap::new();
        Self { store: Arc::clone(store), session, fence, version, next_seq: 101, ends }
    }

    /// Creates the session `name`.
    pub(super) async fn create(store: &Arc<dyn Store>, name: &str) -> Self {
        Self::create_for(store, name, "anyone").await
    }

    /// The next event of a stream.
    pub(super) fn event(&mut self, stream: StreamId, kind: EventKind, payload: &[u8]) -> Event {
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        let previous = self.ends.insert(stream, seq).unwrap_or(Seq::ORIGIN);
        let payload = Bytes::copy_from_slice(payload);
        Event { stream, seq, previous, kind, last: false, payload }
    }

    /// The next notification of a stream.
    pub(super) fn note(&mut self, stream: StreamId, payload: &[u8]) -> Event {
        self.event(stream, EventKind::Notification, payload)
    }

    /// Takes the newest event of a stream back, which was refused.
    pub(super) fn forget(&mut self, stream: StreamId, seq: Seq, previous: Seq) {
        assert_eq!(seq.0 + 1, self.next_seq);
        self.next_seq = seq.0;
        self.ends.insert(stream, previous);
    }

    /// Commits at the version it knows.
    pub(super) async fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        let (session, fence, version) = (self.session, self.fence, self.version);
        self.version = self.store.commit(session, fence, version, batch).await?;
        Ok(())
    }

    /// Appends notifications, each in its own commit, and returns their numbers.
    pub(super) async fn append(&mut self, stream: StreamId, payloads: &[&str]) -> Vec<u64> {
        let mut seqs = Vec::new();
        for payload in payloads {
            let event = self.note(stream, payload.as_bytes());
            seqs.push(event.seq.0);
            self.commit(events([event])).await.expect("an event in order is appended");
        }
        seqs
    }

    /// Evicts.
    pub(super) async fn evict(&mut self, stream: StreamId, through: u64, responses_too: bool) {
        let eviction = Eviction { stream, through: Seq(through), responses_too };
        let batch = Batch { evictions: vec![eviction], ..Batch::default() };
        self.commit(batch).await.expect("an eviction is committed");
    }

    /// The numbers and payloads of a stream after a cursor.
    pub(super) async fn contents(&self, stream: StreamId, after: Seq) -> Vec<(u64, Bytes)> {
        let page = self.store.read(self.session, stream, after, ALL).await.expect("it is read");
        page.events.into_iter().map(|event| (event.seq.0, event.payload)).collect()
    }

    /// A claim of a token by this session.
    pub(super) fn claim(&self, token: &str, call: u64) -> DedupWrite {
        let record = record(self.owner(call), Outcome::Running);
        DedupWrite { key: key(token), expected: None, record }
    }

    /// One of its calls.
    pub(super) fn owner(&self, call: u64) -> Owner {
        Owner { session: self.session, call: CallId(call) }
    }
}

pub(super) fn principal(name: &str) -> PrincipalKey {
    digest(format!("principal {name}").as_bytes())
}

pub(super) fn key(token: &str) -> DedupKey {
    DedupKey(digest(token.as_bytes()))
}

pub(super) fn record(owner: Owner, outcome: Outcome) -> DedupRecord {
    let params = digest(b"params");
    DedupRecord { owner, params, outcome, result_expires_ms: 1_000, expires_ms: 2_000 }
}

pub(super) fn finished(response: &[u8]) -> Outcome {
    Outcome::Finished { response: Bytes::copy_from_slice(response), ended_ms: 7 }
}

pub(super) fn events(events: impl Into<Vec<Event>>) -> Batch {
    Batch { events: events.into(), ..Batch::default() }
}

pub(super) fn dedup(writes: impl Into<Vec<DedupWrite>>) -> Batch {
    Batch { dedup: writes.into(), ..Batch::default() }
}

pub(super) fn call(id: u64, phase: Phase) -> Call {
    Call {
        id: CallId(id),
        request_id: Bytes::from_static(b"\"a\""),
        request_key: IdKey::text("a"),
        progress_token: None,
        method: "tools/call".to_owned(),
        tool: Some("charge".to_owned()),
        class: Class::Effectful,
        params: digest(b"params"),
        body: digest(b"body"),
        token: Some(key("t")),
        phase,
        stream: Some(STREAM),
        ran_on: None,
        result: None,
        claimed_ms: 5,
        heard_ms: 6,
        ended_ms: None,
        lost_ms: None,
        settled_by: None,
        scope: None,
        upstream_cursor: Some("at 7".into()),
    }
}

pub(super) fn stream(id: StreamId, state: StreamState) -> Stream {
    Stream::new(id, state, 5)
}

/// The own row of a session, with something to know it by.
pub(crate) fn row(origin: &'static str) -> SessionRow {
    let start = SessionStart {
        session: digest(b"s"),
        ledger_epoch: 1,
        call_base: CallId(7),
        epoch: Epoch(1),
        asked: Revision::new("2025-11-25"),
        agreed: Revision::new("2025-11-25"),
        origin: Bytes::from_static(origin.as_bytes()),
        continuation: Some(Continuation::new("go on")),
        settings: Arc::default(),
    };
    start.row()
}
