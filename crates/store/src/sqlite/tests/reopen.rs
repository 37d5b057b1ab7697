//! What a new process finds.

use rejoin_core::effect::DedupWrite;
use rejoin_core::id::CallId;
use rejoin_core::ledger::{Call, Phase, ScopeRow, Settled};
use rejoin_core::message::IdKey;
use rejoin_core::stream::{Connection, Release, Segment, Stream, StreamState};
use rejoin_core::token::{Outcome, Owner};
use rejoin_core::tool::Class;

use super::*;

const SESSION: &[u8] = b"s";

fn call(id: u64) -> Call {
    Call {
        id: CallId(id),
        request_id: Bytes::from_static("\"\u{e9}\"".as_bytes()),
        request_key: IdKey::text("\u{e9}"),
        progress_token: Some("1e400".into()),
        method: "tools/call".to_owned(),
        tool: Some("charge".to_owned()),
        class: Class::Effectful,
        params: digest(b"params"),
        body: digest(b"body"),
        token: Some(DedupKey(digest(b"t"))),
        scope: Some(ScopeRow { key: DedupKey(digest(b"k")), expires_ms: 9, open: true }),
        phase: Phase::Cancelled { result: true },
        stream: Some(STREAM),
        ran_on: None,
        result: Some((STREAM, Seq(2))),
        claimed_ms: 1,
        heard_ms: 2,
        ended_ms: Some(3),
        lost_ms: Some(u64::from(u32::MAX) * 7),
        settled_by: Some(Settled::ByHand),
        upstream_cursor: Some("\u{e9} 7".into()),
    }
}

fn stream(id: StreamId) -> Stream {
    let mut stream = Stream::new(id, StreamState::Released(Release::NotRun), 5);
    stream.calls = vec![CallId(1)];
    stream.request_ids = vec![Bytes::from_static(b"1")];
    stream.connection = Some(Connection { id: rejoin_core::id::ConnectionId(4), observed: true });
    stream.segments.push_back(Segment { through: Seq(2), bytes: 77 });
    stream.cursors.produce(Seq(2));
    stream.last = Some(Seq(2));
    stream
}

fn write(key: &str, expected: Option<Owner>, outcome: Outcome) -> DedupWrite {
    let record = DedupRecord {
        owner: Owner { session: digest(SESSION), call: CallId(1) },
        params: digest(b"params"),
        outcome,
        result_expires_ms: 10,
        expires_ms: 20,
    };
    DedupWrite { key: DedupKey(digest(key.as_bytes())), expected, record }
}

/// Everything of a core's row, as text.
fn shown(row: &impl std::fmt::Debug) -> String {
    format!("{row:?}")
}

async fn fill(store: &Arc<SqliteStore>) -> Log {
    let mut log = Log::create(store, "s").await;
    let response = Outcome::Finished { response: "{}".into(), ended_ms: 3 };
    let outcomes = [
        ("running", Outcome::Running),
        ("finished", response),
        ("cancelled", Outcome::Cancelled),
        ("unknown", Outcome::Unknown),
    ];
    log.append("one").await.unwrap();
    log.commit(Batch {
        events: vec![event(2, 1, "two")],
        calls: vec![call(1), call(2)],
        streams: vec![stream(STREAM), stream(StreamId(9))],
        dedup: outcomes.map(|(key, outcome)| write(key, None, outcome)).to_vec(),
        durable: true,
        ..Batch::default()
    })
    .await
    .unwrap();
    log.last = 2;
    log
}

#[tokio::test]
async fn everything_is_there_after_a_clean_end() {
    for durability in [Durability::Calls, Durability::Events, Durability::Memory] {
        let directory = folder();
        let store = open_with(directory.path(), durability, MIB);
        let log = fill(&store).await;
        let (session, version) = (log.session, log.version);
        let usage = store.usage().await.unwrap();
        let (epoch, own) = (store.epoch(), store.principal_usage([8; 32]).await.unwrap());
        drop((log, store));
        let store = open_with(directory.path(), durability, MIB);
        assert_eq!(store.epoch(), epoch);
        assert_eq!(store.usage().await.unwrap(), Usage { memory_bytes: 0, ..usage });
        assert_eq!(store.principal_usage([8; 32]).await.unwrap(), own);
        assert_eq!(store.look(session).await.unwrap().unwrap().fence, Fence(1));
        let loaded = store.load(session).await.unwrap().unwrap();
        assert_eq!(shown(&store.look(session).await.unwrap()), shown(&Some(&loaded)));
        assert_eq!((loaded.version, loaded.last_seq), (version, Seq(2)));
        assert_eq!((loaded.principal, loaded.fence), ([8; 32], Fence(2)));
        assert_eq!(shown(&loaded.calls), shown(&[call(1), call(2)]));
        assert_eq!(shown(&loaded.streams), shown(&[stream(STREAM), stream(StreamId(9))]));
        let page = store.read(session, STREAM, Seq::ORIGIN, 100).await.unwrap();
        assert_eq!(page.events, [event(1, 0, "one"), event(2, 1, "two")]);
        let finished = store.token(DedupKey(digest(b"finished"))).await.unwrap().unwrap();
        let response = Outcome::Finished { response: "{}".into(), ended_ms: 3 };
        assert_eq!(finished, write("finished", None, response).record);
    }
}

#[tokio::test]
async fn a_database_of_a_version_before_continuations_is_read() {
    let directory = folder();
    let store = open(directory.path());
    let mut log = fill(&store).await;
    let own = Some(Box::new(conformance::row("as it was")));
    log.commit(Batch { session: own, ..Batch::default() }).await.unwrap();
    drop((log, store));
    // Rows as they were written then.
    let without = |table: &str, row: &str, names: &[&str]| {
        let names: String = names.iter().map(|name| format!(", '$.{name}'")).collect();
        format!("update {table} set {row} = cast(json_remove(cast({row} as text){names}) as blob);")
    };
    let own = without("facts", "facts", &["continuation", "lost_untold", "open_requests"]);
    let rows = [own, without("calls", "row", &["upstream_cursor"])].concat();
    tamper(directory.path(), &rows);
    let store = open(directory.path());
    let loaded = store.load(digest(SESSION)).await.unwrap().unwrap();
    let row = loaded.row.unwrap();
    assert_eq!((row.origin, row.continuation), ("as it was".into(), None));
    assert_eq!((row.lost_untold, row.open_requests.len()), (false, 0));
    assert_eq!(loaded.calls.len(), 2);
    assert!(loaded.calls.iter().all(|call| call.upstream_cursor.is_none()));
}

#[tokio::test]
async fn sessions_are_listed_in_parts_while_they_come_and_go() {
    let directory = folder();
    let store = open_with(directory.path(), Durability::Memory, MIB);
    let mut expected = Vec::new();
    for number in 0..25 {
        expected.push(Log::create(&store, &format!("s{number}")).await.session);
    }
    expected.sort_unstable();
    let first = store.sessions(None, 10).await.unwrap();
    assert_eq!(first, expected[..10]);
    store.remove(expected[9], Fence(1)).await.unwrap();
    let rest = store.sessions(Some(expected[9]), 100).await.unwrap();
    assert_eq!(rest, expected[10..]);
    assert!(store.sessions(Some(expected[24]), 10).await.unwrap().is_empty());
}

/// As a power cut leaves it: the last sync is as far as the file goes, and the machine has booted
/// again.
async fn cut_power(durability: Durability) -> (TempDir, SessionKey) {
    let (directory, after) = (folder(), folder());
    let store = open_with(directory.path(), durability, MIB);
    let mut log = fill(&store).await;
    let wal = directory.path().join("rejoin.db-wal");
    let synced = std::fs::read(&wal).unwrap();
    for number in 0..3 {
        log.append(format!("progress {number}")).await.unwrap();
    }
    std::fs::copy(directory.path().join("rejoin.db"), after.path().join("rejoin.db")).unwrap();
    std::fs::write(after.path().join("rejoin.db-wal"), synced).unwrap();
    tamper(after.path(), "update meta set value = 'another' where key = 'boot'");
    (after, log.session)
}

#[tokio::test]
async fn where_calls_are_synced_a_power_cut_takes_what_came_after_the_last_sync_and_no_more() {
    let (directory, session) = cut_power(Durability::Calls).await;
    for _opened in 0..3 {
        let store = open(directory.path());
        let loaded = store.load(session).await.unwrap().unwrap();
        assert_eq!(loaded.last_seq, Seq(2));
        let page = store.read(session, STREAM, Seq::ORIGIN, 100).await.unwrap();
        assert_eq!(page.events, [event(1, 0, "one"), event(2, 1, "two")]);
    }
}

#[tokio::test]
async fn a_killed_process_loses_no_number() {
    let directory = folder();
    let store = open(directory.path());
    let log = fill(&store).await;
    drop((log, store));
    tamper(directory.path(), "update meta set value = 0 where key = 'clean'");
    let store = open(directory.path());
    let loaded = store.load(digest(SESSION)).await.unwrap().unwrap();
    assert_eq!(loaded.last_seq, Seq(2));
}

#[tokio::test]
async fn where_everything_was_synced_a_power_cut_takes_nothing() {
    let (directory, session) = cut_power(Durability::Events).await;
    let store = open_with(directory.path(), Durability::Events, MIB);
    let loaded = store.load(session).await.unwrap().unwrap();
    assert_eq!(loaded.last_seq, Seq(2));
}

#[tokio::test]
async fn where_nothing_was_synced_a_power_cut_ends_the_sessions_and_the_epoch() {
    let (directory, session) = cut_power(Durability::Memory).await;
    let epoch = "select value from meta where key = 'epoch'";
    let connection = rusqlite::Connection::open(directory.path().join("rejoin.db")).unwrap();
    let epoch: i64 = connection.query_row(epoch, [], |row| row.get(0)).unwrap();
    drop(connection);
    let store = open_with(directory.path(), Durability::Memory, MIB);
    assert_ne!(store.epoch(), Some(epoch as u64));
    assert!(store.load(session).await.unwrap().is_none());
    let token = store.token(DedupKey(digest(b"running"))).await.unwrap();
    assert!(token.is_some(), "what is known of tokens stays known");
    let usage = store.usage().await.unwrap();
    assert_eq!((usage.sessions, usage.tokens, usage.bytes), (0, 4, 4 * 256 + 2));
    Log::create(&store, "s").await;
    store.expire(u64::MAX, 100).await.unwrap();
    assert_eq!(store.usage().await.unwrap().bytes, 0);
}

#[tokio::test]
async fn a_damaged_session_keeps_no_other_from_being_taken_over() {
    let directory = folder();
    let store = open(directory.path());
    for name in ["a", "b"] {
        let mut log = Log::create(&store, name).await;
        log.commit(Batch { calls: vec![call(1)], ..Batch::default() }).await.unwrap();
    }
    drop(store);
    tamper(directory.path(), "update calls set row = x'00' where session = 1");
    let store = open(directory.path());
    let loaded = store.load_all(vec![digest(b"a"), digest(b"b")]).await.unwrap();
    assert!(loaded[0].is_err(), "{:?}", loaded[0]);
    assert_eq!(loaded[1].as_ref().unwrap().as_ref().unwrap().calls.len(), 1);
    assert_eq!(store.readers.idle(), 0, "after an error the next read starts afresh");
}
