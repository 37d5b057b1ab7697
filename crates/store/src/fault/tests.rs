use std::time::Duration;

use rejoin_core::effect::EventKind;
use tokio::sync::Semaphore;

use super::*;
use crate::conformance::{self, WIDE};
use crate::memory::{MemoryLimits, MemoryStore};

const SESSION: SessionKey = [1; 32];
const STREAM: StreamId = StreamId(3);

fn memory(quota: crate::Quota) -> Arc<dyn Store> {
    let limits = MemoryLimits { memory_log_bytes_max: 1_000_000, quota };
    Arc::new(MemoryStore::new(limits).unwrap())
}

async fn faulty() -> (Arc<FaultStore>, Opened) {
    let store = Arc::new(FaultStore::new(memory(WIDE)));
    let opened = store.create(SESSION, [2; 32]).await.unwrap();
    (store, opened)
}

fn batch(seq: u64) -> Batch {
    let event = Event {
        stream: STREAM,
        seq: Seq(seq),
        previous: Seq(seq - 1),
        kind: EventKind::Notification,
        last: false,
        payload: "{}".into(),
    };
    Batch { events: vec![event], ..Batch::default() }
}

async fn count(store: &FaultStore) -> usize {
    store.read(SESSION, STREAM, Seq::ORIGIN, 100).await.unwrap().events.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_faults_it_keeps_the_contract() {
    let make = async |quota| Arc::new(FaultStore::new(memory(quota))) as Arc<dyn Store>;
    conformance::run(make).await;
}

#[tokio::test]
async fn the_named_calls_fail_and_no_others() {
    let (store, Opened { fence, mut version }) = faulty().await;
    store.inject(Operation::Commit, 2..=3, Fault::Fail(io::ErrorKind::StorageFull));
    version = store.commit(SESSION, fence, version, batch(1)).await.unwrap();
    for _ in 0..2 {
        let failed = store.commit(SESSION, fence, version, batch(2)).await;
        assert!(matches!(failed, Err(CommitError::Io(_))), "{failed:?}");
        assert_eq!(count(&store).await, 1);
    }
    store.commit(SESSION, fence, version, batch(2)).await.unwrap();
    assert_eq!((store.calls(Operation::Commit), count(&store).await), (4, 2));
}

#[tokio::test]
async fn an_ambiguous_commit_was_applied_or_not() {
    let (store, Opened { fence, version }) = faulty().await;
    store.inject(Operation::Commit, 1..=1, Fault::LoseRequest);
    store.inject(Operation::Commit, 2..=2, Fault::LoseAnswer);
    for applied in [0, 1] {
        let failed = store.commit(SESSION, fence, version, batch(1)).await;
        assert!(matches!(failed, Err(CommitError::Ambiguous(_))), "{failed:?}");
        assert_eq!(count(&store).await, applied);
    }
}

#[tokio::test]
async fn a_lasting_fault_ends_when_it_is_cleared() {
    let (store, _) = faulty().await;
    store.inject(Operation::Read, 1.., Fault::Fail(io::ErrorKind::Other));
    for _ in 0..3 {
        let failed = store.read(SESSION, STREAM, Seq::ORIGIN, 1).await;
        assert!(matches!(failed, Err(ReadError::Io(_))), "{failed:?}");
    }
    store.clear();
    assert_eq!(count(&store).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_delayed_or_held_until_it_is_let_through() {
    let (store, Opened { fence, version }) = faulty().await;
    store.inject(Operation::Token, 1..=1, Fault::Delay(Duration::from_secs(3)));
    let start = tokio::time::Instant::now();
    store.token(DedupKey([0; 32])).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    let gate = Arc::new(Semaphore::new(0));
    store.inject(Operation::Commit, 1..=1, Fault::Hold(Arc::clone(&gate)));
    let held = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.commit(SESSION, fence, version, batch(1)).await }
    });
    while store.calls(Operation::Commit) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&store).await, 0);
    gate.add_permits(1);
    held.await.unwrap().unwrap();
    assert_eq!(count(&store).await, 1);
}
