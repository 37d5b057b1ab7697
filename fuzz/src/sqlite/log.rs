//! A log as a killed process leaves it, made once by the real store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use rejoin_core::effect::{Batch, DedupWrite, Event, EventKind, Eviction};
use rejoin_core::id::{CallId, Epoch, Seq, StreamId, digest};
use rejoin_core::ledger::{Call, Phase};
use rejoin_core::limits::Limits;
use rejoin_core::message::IdKey;
use rejoin_core::revision::Revision;
use rejoin_core::session::{Continuation, SessionStart};
use rejoin_core::settings::Settings;
use rejoin_core::stream::{Stream, StreamState};
use rejoin_core::token::{DedupKey, DedupRecord, Outcome, Owner};
use rejoin_core::tool::Class;
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use rejoin_store::{SessionKey, Store as _};
use tempfile::TempDir;

/// The files of the database, in the order in which an input numbers them.
pub(super) const FILES: [&str; 3] = ["rejoin.db", "rejoin.db-wal", "rejoin.db-shm"];
pub(super) const STREAMS: [StreamId; 2] = [StreamId(1), StreamId(2)];
pub(super) const TOKENS: [&str; 2] = ["running", "finished"];

/// Files by their place in [`FILES`].
pub(super) type Files = BTreeMap<usize, Vec<u8>>;

/// What a process left, and all that its file ever held.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) files: Files,
    /// What could be read after each commit that is not in the database itself yet, the oldest
    /// first.
    pub(super) states: Vec<String>,
}

pub(super) fn sessions() -> [SessionKey; 2] {
    [digest(b"one"), digest(b"other")]
}

pub(super) fn options() -> SqliteOptions {
    SqliteOptions::new(Durability::Calls, &Limits::default())
}

/// A directory in memory where the system has one.
pub(super) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::tempdir_in(place).expect("a temporary folder can be made")
}

pub(super) fn path(directory: &Path, file: usize) -> PathBuf {
    directory.join(FILES[file])
}

pub(super) fn files(directory: &Path) -> Files {
    let read = |file| Some((file, std::fs::read(path(directory, file)).ok()?));
    (0..FILES.len()).filter_map(read).collect()
}

/// What a process left that was killed, with everything in the log before the database; and what
/// one left that was killed after most of it was in the database.
pub(super) fn left() -> &'static [Left; 2] {
    static LEFT: OnceLock<[Left; 2]> = OnceLock::new();
    LEFT.get_or_init(|| {
        let runtime = super::runtime();
        runtime.block_on(async { [fill(false).await, fill(true).await] })
    })
}

async fn fill(is_moved: bool) -> Left {
    let directory = folder();
    let open = || SqliteStore::open(directory.path(), options()).expect("it opens");
    let mut store = open();
    let mut states = vec![super::read_all(&store).await.expect("it is sound")];
    let mut versions = BTreeMap::new();
    for session in sessions() {
        let opened = store.create(session, [8; 32]).await.expect("it is made");
        versions.insert(session, (opened.fence, opened.version));
        states.push(super::read_all(&store).await.expect("it is sound"));
    }
    let mut numbers = BTreeMap::new();
    for round in 0..6_u64 {
        if is_moved && round == 4 {
            // A clean end brings everything into the database.
            drop(store);
            store = open();
            states = vec![super::read_all(&store).await.expect("it is sound")];
            for session in sessions() {
                let loaded = store.load(session).await.expect("it loads").expect("it is there");
                versions.insert(session, (loaded.fence, loaded.version));
            }
        }
        for session in sessions() {
            let last = numbers.entry(session).or_insert([0_u64; 3]);
            let batch = batch(session, round, last);
            let (fence, version) = versions[&session];
            let version = store.commit(session, fence, version, batch).await.expect("it commits");
            versions.insert(session, (fence, version));
            states.push(super::read_all(&store).await.expect("it is sound"));
        }
    }
    let left = Left { files: files(directory.path()), states };
    drop(store);
    left
}

/// Events of both streams, calls, a stream's row, and now and then tokens and evictions.
fn batch(session: SessionKey, round: u64, last: &mut [u64; 3]) -> Batch {
    let mut batch = Batch { durable: round.is_multiple_of(2), ..Batch::default() };
    for (place, stream) in STREAMS.into_iter().enumerate() {
        last[2] += 1;
        let (seq, previous) = (Seq(last[2]), Seq(last[place]));
        let bytes = if round == 3 { 9_000 } else { 40 };
        let text = format!("{{\"round\":{round},\"text\":\"{}\"}}", "x".repeat(bytes));
        let kind = if round == 5 { EventKind::Response } else { EventKind::Notification };
        let (payload, is_last) = (Bytes::from(text), round == 5);
        batch.events.push(Event { stream, seq, previous, kind, last: is_last, payload });
        last[place] = last[2];
        let mut row = Stream::new(stream, StreamState::Live, 5 + round);
        row.calls = vec![CallId(round + 1)];
        row.cursors.produce(seq);
        batch.streams.push(row);
    }
    batch.calls.push(call(round + 1));
    match round {
        0 => batch.session = Some(Box::new(start(session).row())),
        1 => batch.dedup = TOKENS.map(|name| token(session, name)).to_vec(),
        4 => {
            let through = Seq(last[0].saturating_sub(4));
            batch.evictions.push(Eviction { stream: STREAMS[0], through, responses_too: true });
            batch.forgotten_calls.push(CallId(1));
        }
        _ => {}
    }
    batch
}

fn start(session: SessionKey) -> SessionStart {
    SessionStart {
        session,
        ledger_epoch: 1,
        call_base: CallId(0),
        epoch: Epoch(1),
        asked: Revision::new("2025-11-25"),
        agreed: Revision::new("2025-11-25"),
        origin: Bytes::from_static(b"{\"principal\":\"p\"}"),
        continuation: Some(Continuation::new("go on")),
        settings: Arc::new(Settings::default()),
    }
}

pub(super) fn token_key(session: SessionKey, name: &str) -> DedupKey {
    DedupKey(digest(&[&session[..], name.as_bytes()].concat()))
}

fn token(session: SessionKey, name: &str) -> DedupWrite {
    let outcome = match name {
        "running" => Outcome::Running,
        _ => Outcome::Finished { response: "{\"a\":1}".into(), ended_ms: 3 },
    };
    let owner = Owner { session, call: CallId(2) };
    let (result_expires_ms, expires_ms) = (u64::MAX >> 12, u64::MAX >> 11);
    let params = digest(b"params");
    let record = DedupRecord { owner, params, outcome, result_expires_ms, expires_ms };
    DedupWrite { key: token_key(session, name), expected: None, record }
}

/// A call that runs.
pub(super) fn call(id: u64) -> Call {
    Call {
        id: CallId(id),
        request_id: Bytes::from_static(b"\"a\""),
        request_key: IdKey::text("a"),
        progress_token: Some("7".into()),
        method: "tools/call".to_owned(),
        tool: Some("charge".to_owned()),
        class: Class::Effectful,
        params: digest(b"params"),
        body: digest(b"body"),
        token: None,
        scope: None,
        phase: Phase::Sent,
        stream: Some(STREAMS[0]),
        ran_on: None,
        result: None,
        claimed_ms: 1,
        heard_ms: 2,
        ended_ms: None,
        lost_ms: None,
        settled_by: None,
        upstream_cursor: None,
    }
}
