use bytes::Bytes;
use rejoin_core::effect::EventKind;
use rejoin_core::limits::Limits;
use rejoin_store::fault::{Fault, FaultStore, Operation};
use rejoin_store::{MemoryLimits, MemoryStore};

use super::*;

const SESSION: SessionKey = [7; 32];
const STREAM: StreamId = StreamId(1);

fn event(seq: u64, previous: u64) -> Event {
    Event {
        stream: STREAM,
        seq: Seq(seq),
        previous: Seq(previous),
        kind: EventKind::Notification,
        last: false,
        payload: Bytes::from_static(b"{}"),
    }
}

fn batch(state: StreamState, acked: u64, events: Vec<Event>) -> Batch {
    let mut stream = Stream::new(STREAM, state, 0);
    stream.cursors.produced = Seq(9);
    stream.cursors.acked = Seq(acked);
    Batch { events, streams: vec![stream], ..Batch::default() }
}

fn streams(metrics: &Metrics, state: &'static str) -> i64 {
    metrics.streams.get_or_create(&State { state }).get()
}

#[tokio::test]
async fn owed_events_are_counted_from_the_loss_to_the_confirmation() {
    let metrics = Arc::new(Metrics::new());
    let inner = MemoryStore::new(MemoryLimits::from(&Limits::default())).unwrap();
    let store = CountedStore::new(Arc::new(inner), Arc::clone(&metrics));
    let opened = store.create(SESSION, [1; 32]).await.unwrap();
    let (fence, mut version) = (opened.fence, opened.version);
    let steps = [
        (batch(StreamState::Live, 0, vec![event(1, 0), event(2, 1)]), 0),
        (batch(StreamState::Owed, 0, vec![]), 2),
        (batch(StreamState::Owed, 0, vec![event(3, 2)]), 3),
        (batch(StreamState::Live, 1, vec![]), 0),
        (batch(StreamState::Abandoned, 1, vec![]), 2),
    ];
    for (batch, owed) in steps {
        version = store.commit(SESSION, fence, version, batch).await.unwrap();
        assert_eq!(metrics.events_owed.get(), owed);
    }
    assert_eq!(store.unconfirmed(&SESSION, STREAM, Seq(2), Seq(3)), 1);
    assert_eq!((streams(&metrics, "abandoned"), streams(&metrics, "live")), (1, 0));
    let proved = batch(StreamState::Proved, 3, vec![]);
    store.commit(SESSION, fence, version, proved).await.unwrap();
    assert_eq!((metrics.events_owed.get(), streams(&metrics, "abandoned")), (0, 0));
}

#[tokio::test]
async fn a_removed_session_leaves_no_count() {
    let metrics = Arc::new(Metrics::new());
    let inner = MemoryStore::new(MemoryLimits::from(&Limits::default())).unwrap();
    let store = CountedStore::new(Arc::new(inner), Arc::clone(&metrics));
    let opened = store.create(SESSION, [1; 32]).await.unwrap();
    let owed = batch(StreamState::Owed, 0, vec![event(1, 0)]);
    store.commit(SESSION, opened.fence, opened.version, owed).await.unwrap();
    assert_eq!((metrics.events_owed.get(), streams(&metrics, "owed")), (1, 1));
    store.remove(SESSION, opened.fence).await.unwrap();
    assert_eq!((metrics.events_owed.get(), streams(&metrics, "owed")), (0, 0));
}

#[tokio::test]
async fn what_another_driver_left_is_counted_once_in_place_of_the_old_and_without_payloads() {
    let inner = Arc::new(MemoryStore::new(MemoryLimits::from(&Limits::default())).unwrap());
    let opened = inner.create(SESSION, [1; 32]).await.unwrap();
    let owed = batch(StreamState::Owed, 2, vec![event(1, 0), event(2, 1), event(3, 2)]);
    inner.commit(SESSION, opened.fence, opened.version, owed).await.unwrap();
    let loaded = inner.load(SESSION).await.unwrap().unwrap();
    let metrics = Arc::new(Metrics::new());
    let inner = Arc::new(FaultStore::new(inner));
    inner.inject(Operation::Read, 1.., Fault::Fail(std::io::ErrorKind::Other));
    let store = CountedStore::new(inner, Arc::clone(&metrics));
    for _ in 0..2 {
        store.adopt(SESSION, &loaded).await.unwrap();
        assert_eq!((metrics.events_owed.get(), streams(&metrics, "owed")), (1, 1));
    }
    assert_eq!(*store.busy.borrow(), 1);
    assert_eq!(store.unconfirmed(&SESSION, STREAM, Seq(0), Seq(9)), 1);
}
