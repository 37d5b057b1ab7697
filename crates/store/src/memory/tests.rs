//! The suite, in memory and through the file, and what only this store does.

use std::fs::OpenOptions;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::{Batch, Event, EventKind, Eviction};
use rejoin_core::id::{Seq, StreamId, digest};

use super::*;
use crate::conformance::{self, WIDE};

const STREAM: StreamId = StreamId(3);
const MIB: u64 = 1024 * 1024;

fn store(memory_log_bytes_max: u64, quota: Quota) -> Arc<MemoryStore> {
    let limits = MemoryLimits { memory_log_bytes_max, quota };
    Arc::new(MemoryStore::new(limits).expect("the temporary folder can be written"))
}

/// Reproducible bytes that differ from event to event.
fn payload(number: u64, size: usize) -> Bytes {
    let bytes = digest(&number.to_le_bytes());
    bytes.iter().copied().cycle().take(size).collect()
}

struct Log {
    store: Arc<MemoryStore>,
    opened: Opened,
    last: u64,
}

impl Log {
    async fn open(store: &Arc<MemoryStore>) -> Self {
        let opened = store.create([7; 32], [8; 32]).await.unwrap();
        Self { store: Arc::clone(store), opened, last: 0 }
    }

    async fn append(&mut self, payload: Bytes) -> Result<(), CommitError> {
        let event = Event {
            stream: STREAM,
            seq: Seq(self.last + 1),
            previous: Seq(self.last),
            kind: EventKind::Notification,
            last: false,
            payload,
        };
        let batch = Batch { events: vec![event], ..Batch::default() };
        self.commit(batch).await?;
        self.last += 1;
        Ok(())
    }

    async fn evict(&mut self, through: u64) {
        let eviction = Eviction { stream: STREAM, through: Seq(through), responses_too: true };
        self.commit(Batch { evictions: vec![eviction], ..Batch::default() }).await.unwrap();
    }

    async fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        let Opened { fence, version } = self.opened;
        self.opened.version = self.store.commit([7; 32], fence, version, batch).await?;
        Ok(())
    }

    async fn usage(&self) -> Usage {
        self.store.usage().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_in_memory() {
    conformance::run(async |quota| store(256 * MIB, quota) as Arc<dyn Store>).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_with_every_payload_in_the_file() {
    conformance::run(async |quota| store(0, quota) as Arc<dyn Store>).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_with_payloads_in_both_places() {
    conformance::run(async |quota| store(300, quota) as Arc<dyn Store>).await;
}

#[tokio::test]
async fn a_file_whose_events_are_evicted_does_not_grow() {
    const SIZE: usize = 50_000;
    let store = store(0, WIDE);
    let mut log = Log::open(&store).await;
    for number in 0..2_000_u64 {
        log.append(payload(number, SIZE + (number % 7) as usize * 1_000)).await.unwrap();
        log.evict(log.last.saturating_sub(40)).await;
    }
    let file = store.spill.file_bytes().unwrap();
    assert!(file < 6 * MIB, "{file} bytes for at most 2.3 MB of events");
    let page = store.read([7; 32], STREAM, Seq(1_960), usize::MAX).await.unwrap();
    let kept = page.events.iter().map(|event| event.payload.clone());
    let size = |number: u64| SIZE + (number % 7) as usize * 1_000;
    assert!(kept.eq((1_960..2_000).map(|number| payload(number, size(number)))));
}

#[tokio::test]
async fn the_end_of_the_file_is_given_back() {
    let store = store(0, WIDE);
    let mut log = Log::open(&store).await;
    for number in 0..30 {
        log.append(payload(number, MIB as usize)).await.unwrap();
    }
    assert_eq!(store.spill.file_bytes().unwrap(), 30 * MIB);
    log.evict(30).await;
    assert_eq!(log.usage().await.spilled_bytes, 0);
    store.expire(0, 1).await.unwrap();
    assert_eq!(store.spill.file_bytes().unwrap(), 0);
    log.append(payload(30, 10)).await.unwrap();
    let event = store.read_one([7; 32], STREAM, Seq(31)).await.unwrap().unwrap();
    assert_eq!(event.payload, payload(30, 10));
}

#[tokio::test]
async fn evictions_make_room_in_memory_again() {
    let store = store(100_000, WIDE);
    let mut log = Log::open(&store).await;
    for number in 0..4 {
        log.append(payload(number, 40_000)).await.unwrap();
    }
    let usage = log.usage().await;
    assert_eq!((usage.memory_bytes, usage.spilled_bytes), (80_000, 80_000));
    log.evict(1).await;
    log.append(payload(4, 40_000)).await.unwrap();
    let usage = log.usage().await;
    assert_eq!((usage.memory_bytes, usage.spilled_bytes), (80_000, 80_000));
}

#[tokio::test]
async fn a_page_that_was_taken_survives_an_eviction_while_it_is_read() {
    let store = store(0, WIDE);
    let mut log = Log::open(&store).await;
    log.append(payload(0, 1_000)).await.unwrap();
    let cell = store.cell(&[7; 32]).unwrap();
    let (entries, _) = lock(&cell.log).page(STREAM, Seq::ORIGIN, 1).unwrap();
    log.evict(1).await;
    log.append(payload(1, 1_000)).await.unwrap();
    let read = fetch(vec![Arc::clone(&entries[0].stored)], 0, usize::MAX).await.unwrap();
    assert_eq!(read, [payload(0, 1_000)]);
}

#[tokio::test]
async fn a_full_disk_refuses_the_commit_and_leaves_no_trace() {
    let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
    let limits = MemoryLimits { memory_log_bytes_max: 1_000, quota: WIDE };
    let mut log = Log::open(&Arc::new(MemoryStore::spilling_to(full, limits))).await;
    log.append(payload(0, 600)).await.unwrap();
    let before = log.usage().await;
    let refused = log.append(payload(1, 600)).await.unwrap_err();
    let CommitError::Io(failure) = &refused else { panic!("{refused:?}") };
    assert_eq!(failure.source_kind(), io::ErrorKind::StorageFull);
    let text = refused.to_string();
    assert!(text.contains("spill file") && text.contains("make room"), "{text}");
    assert_eq!(log.usage().await, before);
    let page = log.store.read([7; 32], STREAM, Seq::ORIGIN, usize::MAX).await.unwrap();
    assert_eq!(page.events.len(), 1);
    log.append(payload(1, 400)).await.expect("what fits in memory is still appended");
    log.evict(2).await;
    log.append(payload(2, 1_000)).await.expect("it recovers by itself");
}

#[tokio::test]
async fn a_payload_does_not_keep_the_buffer_it_was_cut_from() {
    let store = store(MIB, WIDE);
    let mut log = Log::open(&store).await;
    let buffer = Bytes::from(vec![1; 100_000]);
    log.append(buffer.slice(10..20)).await.unwrap();
    assert!(buffer.is_unique(), "the store shares a buffer of 100,000 bytes for 10");
}

#[test]
fn a_commit_that_is_given_up_while_it_is_written_leaves_no_trace() {
    // One thread for what blocks, and that one is taken: the write cannot end before it is let.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
    runtime.expect("a runtime").block_on(async {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let holder = tokio::task::spawn_blocking(move || held.recv());
        let store = store(0, WIDE);
        let mut log = Log::open(&store).await;
        let before = log.usage().await;
        {
            let append = log.append(payload(0, 5_000_000));
            let mut append = std::pin::pin!(append);
            let polled = poll_once(append.as_mut()).await;
            assert!(polled.is_none(), "the write runs on another thread");
            assert_ne!(store.usage().await.unwrap(), before, "it is charged while it is under way");
        }
        drop(release);
        assert!(holder.await.expect("it ends").is_err());
        // Behind the write, on the same thread.
        tokio::task::spawn_blocking(|| ()).await.expect("it ends");
        assert_eq!(log.usage().await, before);
        log.append(payload(0, 10)).await.unwrap();
    });
}

/// Polls once; the output if it was ready.
async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
