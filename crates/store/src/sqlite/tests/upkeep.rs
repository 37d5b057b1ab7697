//! The file does not grow with what has gone, and nobody waits while it goes.

use std::time::{Duration, Instant};

use super::*;

fn file_bytes(directory: &Path) -> u64 {
    ["rejoin.db", "rejoin.db-wal"]
        .iter()
        .map(|name| std::fs::metadata(directory.join(name)).map_or(0, |file| file.len()))
        .sum()
}

/// Waits until upkeep has brought something about.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(Instant::now() < until, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn count(directory: &Path, table: &str) -> i64 {
    let connection = rusqlite::Connection::open(directory.join("rejoin.db")).unwrap();
    connection.query_row(&format!("select count(*) from {table}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn removed_sessions_leave_nothing_in_any_table() {
    let directory = folder();
    let store = open(directory.path());
    for round in 0..3 {
        let mut log = Log::create(&store, &format!("s{round}")).await;
        log.append_many(2_000, 100).await;
        log.evict(1_500).await;
        log.append_many(100, 100).await;
        let session = Some(Box::new(conformance::row("its own")));
        log.commit(Batch { session, ..Batch::default() }).await.unwrap();
        store.remove(log.session, log.fence).await.unwrap();
        assert_eq!(store.usage().await.unwrap(), Usage::default());
    }
    eventually("a clean file", async || count(directory.path(), "garbage") == 0).await;
    const TABLES: [&str; 7] =
        ["sessions", "events", "chains", "calls", "streams", "facts", "principals"];
    for table in TABLES {
        assert_eq!(count(directory.path(), table), 0, "{table}");
    }
}

#[tokio::test]
async fn a_large_eviction_is_unreadable_at_once_and_given_back_in_parts() {
    let directory = folder();
    let store = open_with(directory.path(), Durability::Memory, 10_000);
    let mut log = Log::create(&store, "s").await;
    log.append_many(10_000, 50).await;
    log.evict(9_990).await;
    let page = log.read(9_990).await;
    assert_eq!((page.events.len(), page.gap.is_none()), (10, true));
    let page = log.read(0).await;
    assert_eq!(page.gap.unwrap().through, Seq(9_990));
    let one = store.read_one(log.session, STREAM, Seq(9_980)).await.unwrap();
    assert!(one.is_none(), "an evicted event is read");
    eventually("all given back", async || store.usage().await.unwrap().bytes == 10 * (50 + 128))
        .await;
    assert_eq!(count(directory.path(), "events"), 10);
    drop((log, store));
    let store = open(directory.path());
    assert_eq!(store.usage().await.unwrap().bytes, 10 * (50 + 128));
}

#[tokio::test]
async fn a_forgotten_stream_starts_anew_while_its_events_are_still_being_deleted() {
    let directory = folder();
    let store = open_with(directory.path(), Durability::Memory, 0);
    let mut log = Log::create(&store, "s").await;
    log.append_many(5_000, 50).await;
    let forgotten_streams = vec![STREAM];
    log.commit(Batch { forgotten_streams, ..Batch::default() }).await.unwrap();
    assert!(log.read(0).await.events.is_empty());
    let events = vec![event(5_001, 0, "new"), event(5_002, 5_001, "newer")];
    log.commit(Batch { events: events.clone(), ..Batch::default() }).await.unwrap();
    eventually("a clean file", async || count(directory.path(), "garbage") == 0).await;
    let page = log.read(0).await;
    assert_eq!((page.events, page.gap), (events, None));
    assert_eq!(store.usage().await.unwrap().bytes, 2 * 128 + 8);
}

#[tokio::test]
async fn a_file_whose_sessions_come_and_go_does_not_grow() {
    let directory = folder();
    let store = open_with(directory.path(), Durability::Memory, MIB);
    let mut sizes = Vec::new();
    for round in 0..12 {
        for number in 0..25 {
            let mut log = Log::create(&store, &format!("{round} {number}")).await;
            log.append_many(100, 1_000).await;
            store.remove(log.session, log.fence).await.unwrap();
        }
        eventually("a clean file", async || count(directory.path(), "garbage") == 0).await;
        sizes.push(file_bytes(directory.path()) / MIB);
    }
    let (early, late) = (sizes[2], sizes[11]);
    assert!(late <= early + 4, "MiB after each round: {sizes:?}");
    assert!(late < 40, "MiB after each round: {sizes:?}");
}

#[tokio::test]
async fn the_unused_end_of_the_file_is_given_back() {
    let directory = folder();
    let store = open_with(directory.path(), Durability::Memory, MIB);
    let mut log = Log::create(&store, "s").await;
    for _ in 0..40 {
        log.append_many(16, 65_536).await;
    }
    let full = file_bytes(directory.path());
    assert!(full > 40 * MIB, "{full}");
    store.remove(log.session, log.fence).await.unwrap();
    let database = directory.path().join("rejoin.db");
    eventually("a small file", async || std::fs::metadata(&database).unwrap().len() < 10 * MIB)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_do_not_wait_for_what_is_being_deleted() {
    let directory = folder();
    let store = open_with(directory.path(), Durability::Memory, MIB);
    let mut gone = Log::create(&store, "gone").await;
    for _ in 0..20 {
        gone.append_many(5_000, 100).await;
    }
    let mut log = Log::create(&store, "s").await;
    store.remove(gone.session, gone.fence).await.unwrap();
    // It goes in some 400 parts. Were it one, the first commit would wait for all of it.
    let mut between = 0;
    while count(directory.path(), "garbage") > 0 {
        log.append("x").await.unwrap();
        between += 1;
    }
    assert!(between >= 3, "{between} commits came between");
}
