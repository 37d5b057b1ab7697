//! The suite, with each durability and with tails of several sizes, and what only this store does.

mod group;
mod model;
mod numbers;
mod open;
mod reopen;
mod upkeep;

use std::path::Path;
use std::sync::Arc;

use rejoin_core::effect::{EventKind, Eviction};
use rejoin_core::id::digest;
use tempfile::TempDir;

use super::*;
use crate::conformance::{self, WIDE};

const MIB: u64 = 1024 * 1024;
const STREAM: StreamId = StreamId(3);

fn options(durability: Durability, quota: Quota, tail_bytes_max: u64) -> SqliteOptions {
    SqliteOptions { durability, quota, tail_bytes_max, stream_tail_bytes_max: tail_bytes_max / 2 }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("the temporary folder can be written")
}

fn open(directory: &Path) -> Arc<SqliteStore> {
    open_with(directory, Durability::Calls, MIB)
}

fn open_with(directory: &Path, durability: Durability, tail_bytes_max: u64) -> Arc<SqliteStore> {
    let store = SqliteStore::open(directory, options(durability, WIDE, tail_bytes_max));
    Arc::new(store.expect("it opens"))
}

/// A connection of somebody else's, while the store is closed.
fn tamper(directory: &Path, statements: &str) {
    let connection = rusqlite::Connection::open(directory.join("rejoin.db")).unwrap();
    connection.execute_batch(statements).unwrap();
}

fn event(seq: u64, previous: u64, payload: impl Into<Bytes>) -> Event {
    let (seq, previous, payload) = (Seq(seq), Seq(previous), payload.into());
    Event { stream: STREAM, seq, previous, kind: EventKind::Notification, last: false, payload }
}

/// A session with one stream, and its only writer.
struct Log {
    store: Arc<SqliteStore>,
    session: SessionKey,
    fence: Fence,
    version: Version,
    last: u64,
}

impl Log {
    async fn create(store: &Arc<SqliteStore>, name: &str) -> Self {
        let session = digest(name.as_bytes());
        let opened = store.create(session, [8; 32]).await.unwrap();
        let (fence, version) = (opened.fence, opened.version);
        Self { store: Arc::clone(store), session, fence, version, last: 0 }
    }

    async fn append(&mut self, payload: impl Into<Bytes>) -> Result<(), CommitError> {
        let event = event(self.last + 1, self.last, payload);
        self.commit(Batch { events: vec![event], ..Batch::default() }).await?;
        self.last += 1;
        Ok(())
    }

    /// Appends many events of one size in one commit.
    async fn append_many(&mut self, count: u64, size: usize) {
        let event = |seq| event(seq, seq - 1, vec![b'x'; size]);
        let events = (self.last + 1..=self.last + count).map(event).collect();
        self.commit(Batch { events, ..Batch::default() }).await.unwrap();
        self.last += count;
    }

    async fn evict(&mut self, through: u64) {
        let eviction = Eviction { stream: STREAM, through: Seq(through), responses_too: true };
        self.commit(Batch { evictions: vec![eviction], ..Batch::default() }).await.unwrap();
    }

    async fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        let (session, fence, version) = (self.session, self.fence, self.version);
        self.version = self.store.commit(session, fence, version, batch).await?;
        Ok(())
    }

    async fn read(&self, after: u64) -> Page {
        self.store.read(self.session, STREAM, Seq(after), usize::MAX).await.unwrap()
    }
}

async fn keeps_the_contract(durability: Durability, tail_bytes_max: u64) {
    let directories = Mutex::new(Vec::new());
    conformance::run(async |quota| {
        let directory = folder();
        let options = options(durability, quota, tail_bytes_max);
        let store = SqliteStore::open(directory.path(), options).expect("it opens");
        directories.lock().unwrap().push(directory);
        Arc::new(store) as Arc<dyn Store>
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_when_calls_are_synced() {
    keeps_the_contract(Durability::Calls, 4 * MIB).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_when_everything_is_synced() {
    keeps_the_contract(Durability::Events, 4 * MIB).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_when_nothing_is_synced() {
    keeps_the_contract(Durability::Memory, 4 * MIB).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_with_everything_read_from_the_file() {
    keeps_the_contract(Durability::Memory, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_with_tails_of_a_few_events() {
    keeps_the_contract(Durability::Memory, 600).await;
}

#[tokio::test]
async fn tails_stay_within_their_bytes_and_the_rest_is_read_from_the_file() {
    let directory = folder();
    let store = open_with(directory.path(), Durability::Memory, 100_000);
    let mut logs = Vec::new();
    for name in ["a", "b", "c", "d"] {
        logs.push(Log::create(&store, name).await);
    }
    for number in 0..100_u64 {
        for log in &mut logs {
            log.append(vec![number as u8; 2_000]).await.unwrap();
            let memory_bytes = store.usage().await.unwrap().memory_bytes;
            assert!(memory_bytes <= 100_000, "{memory_bytes} bytes in memory");
        }
    }
    assert!(store.usage().await.unwrap().memory_bytes > 80_000);
    for log in &logs {
        let page = log.read(0).await;
        assert_eq!(page.events.len(), 100);
        for (event, number) in page.events.iter().zip(0..) {
            assert!(event.payload.iter().all(|byte| *byte == number), "{event:?}");
        }
    }
}

#[tokio::test]
async fn a_payload_does_not_keep_the_buffer_it_was_cut_from() {
    let directory = folder();
    let store = open(directory.path());
    let mut log = Log::create(&store, "s").await;
    let buffer = Bytes::from(vec![1; 100_000]);
    log.append(buffer.slice(10..20)).await.unwrap();
    assert!(buffer.is_unique(), "the store shares a buffer of 100,000 bytes for 10");
}
