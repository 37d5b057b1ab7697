//! The other process: it opens the store and does what its standard input says, line by line.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::{Batch, DedupWrite, Event, EventKind};
use rejoin_core::id::{CallId, Seq, StreamId, digest};
use rejoin_core::ledger::{Call, Phase};
use rejoin_core::message::IdKey;
use rejoin_core::stream::{Stream, StreamState};
use rejoin_core::token::{DedupKey, DedupRecord, Outcome, Owner};
use rejoin_core::tool::Class;
use rejoin_store::sqlite::{Durability, OpenError, SqliteOptions, SqliteStore};
use rejoin_store::{CommitError, Fence, Quota, SessionKey, Store, Version};

pub(crate) const STREAM: StreamId = StreamId(3);
/// Events of each batch.
pub(crate) const EVENTS: u64 = 8;
/// Sessions that are written to at the same time.
pub(crate) const SESSIONS: u64 = 8;

const GIB: u64 = 1024 * 1024 * 1024;

pub(crate) fn open(directory: &Path, durability: &str) -> Arc<SqliteStore> {
    try_open(directory, durability).expect("it opens")
}

pub(crate) fn try_open(directory: &Path, durability: &str) -> Result<Arc<SqliteStore>, OpenError> {
    let durability = match durability {
        "calls" => Durability::Calls,
        "events" => Durability::Events,
        "memory" => Durability::Memory,
        other => panic!("no such durability: {other}"),
    };
    let options = SqliteOptions {
        durability,
        quota: Quota { principal_bytes_max: GIB, total_bytes_max: GIB },
        tail_bytes_max: 1024 * 1024,
        stream_tail_bytes_max: 1024 * 1024,
    };
    SqliteStore::open(directory, options).map(Arc::new)
}

pub(crate) fn session(number: u64) -> SessionKey {
    digest(&number.to_le_bytes())
}

pub(crate) fn token(session: u64, version: u64) -> DedupKey {
    DedupKey(digest(format!("{session} {version}").as_bytes()))
}

pub(crate) fn payload(session: u64, seq: u64) -> Bytes {
    let bytes = digest(format!("payload {session} {seq}").as_bytes());
    bytes.iter().copied().cycle().take(20 + (seq % 7) as usize * 90).collect()
}

pub(crate) fn event(session: u64, seq: u64) -> Event {
    Event {
        stream: STREAM,
        seq: Seq(seq),
        previous: Seq(seq - 1),
        kind: EventKind::Notification,
        last: false,
        payload: payload(session, seq),
    }
}

/// A session, and the batches that follow each other in it: the one that makes version `v` has
/// events up to `v * EVENTS`, call `v` and one token.
pub(crate) struct Writer {
    store: Arc<SqliteStore>,
    number: u64,
    fence: Fence,
    pub(crate) version: u64,
}

impl Writer {
    /// Creates the session, or takes it over.
    pub(crate) async fn open(store: &Arc<SqliteStore>, number: u64) -> Self {
        let key = session(number);
        let (fence, version) = match store.load(key).await.expect("it loads") {
            Some(loaded) => (loaded.fence, loaded.version),
            None => {
                let opened = store.create(key, [8; 32]).await.expect("it is created");
                (opened.fence, opened.version)
            }
        };
        Self { store: Arc::clone(store), number, fence, version: version.0 }
    }

    fn batch(&self, durable: bool) -> Batch {
        let version = self.version + 1;
        let seqs = self.version * EVENTS + 1..=version * EVENTS;
        let owner = Owner { session: session(self.number), call: CallId(version) };
        let record = DedupRecord {
            owner,
            params: [1; 32],
            outcome: Outcome::Running,
            result_expires_ms: u64::MAX / 4,
            expires_ms: u64::MAX / 4,
        };
        Batch {
            events: seqs.map(|seq| event(self.number, seq)).collect(),
            dedup: vec![DedupWrite { key: token(self.number, version), expected: None, record }],
            calls: vec![call(version)],
            streams: vec![Stream::new(STREAM, StreamState::Live, version)],
            durable,
            ..Batch::default()
        }
    }

    pub(crate) async fn commit(&mut self, durable: bool) -> Result<(), CommitError> {
        let (key, version) = (session(self.number), Version(self.version));
        let batch = self.batch(durable);
        self.version = self.store.commit(key, self.fence, version, batch).await?.0;
        Ok(())
    }
}

fn call(id: u64) -> Call {
    Call {
        id: CallId(id),
        request_id: "1".into(),
        request_key: IdKey::text("1"),
        progress_token: None,
        method: "tools/call".to_owned(),
        tool: None,
        class: Class::Effectful,
        params: [1; 32],
        body: [2; 32],
        token: None,
        scope: None,
        phase: Phase::Claimed,
        stream: Some(STREAM),
        ran_on: None,
        result: None,
        claimed_ms: 1,
        heard_ms: 1,
        ended_ms: None,
        lost_ms: None,
        settled_by: None,
        upstream_cursor: None,
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n> {line}").and_then(|()| out.flush()).expect("the parent listens");
}

/// Does what standard input says until it ends.
pub(crate) async fn serve(directory: &Path, durability: &str) {
    let store = match try_open(directory, durability) {
        Ok(store) => store,
        Err(error) => return say(&error.to_string()),
    };
    let mut writer = Writer::open(&store, 0).await;
    let mut crowd = Vec::new();
    say("ready");
    for line in std::io::stdin().lock().lines() {
        match line.expect("the parent speaks").as_str() {
            "progress" => say(&answer(writer.commit(false).await)),
            "durable" => say(&answer(writer.commit(true).await)),
            "load" => {
                writer = Writer::open(&store, 0).await;
                say(&format!("version {}", writer.version));
            }
            "crowd" => {
                for number in 100..164 {
                    crowd.push(Writer::open(&store, number).await);
                }
                say("ok");
            }
            "many" => say(&many(std::mem::take(&mut crowd)).await),
            "endless" => endless(&store).await,
            other => panic!("no such word: {other}"),
        }
    }
}

fn answer(result: Result<(), CommitError>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(CommitError::Io(failure)) => format!("not done: {:?}", failure.source_kind()),
        Err(CommitError::Ambiguous(failure)) => format!("unknown: {:?}", failure.source_kind()),
        Err(other) => format!("refused: {other:?}"),
    }
}

/// All commit at the same time.
async fn many(crowd: Vec<Writer>) -> String {
    let mut tasks = tokio::task::JoinSet::new();
    for mut writer in crowd {
        tasks.spawn(async move {
            writer.commit(true).await.expect("it is committed");
        });
    }
    tasks.join_all().await;
    "ok".to_owned()
}

/// Whether the commit that makes a version must be synced, as [`endless`] does it.
pub(crate) fn is_durable(version: u64) -> bool {
    version % 200 == 1
}

/// Commits in all sessions, and says so, until it is killed.
async fn endless(store: &Arc<SqliteStore>) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..SESSIONS {
        let mut writer = Writer::open(store, number).await;
        tasks.spawn(async move {
            loop {
                let durable = is_durable(writer.version + 1);
                writer.commit(durable).await.expect("it is committed");
                say(&format!("acked {number} {}", writer.version));
            }
        });
    }
    tasks.join_all().await;
}
