//! A log that is much larger than what a store may keep in memory.

use bytes::Bytes;
use rejoin_core::effect::{Batch, Event, EventKind};
use rejoin_core::id::{Seq, StreamId, digest};
use rejoin_store::Store;

const SESSION: [u8; 32] = [7; 32];
const STREAM: StreamId = StreamId(3);
/// Payload of each of its events.
pub(crate) const EVENT_BYTES: usize = 65_536;
pub(crate) const MIB: u64 = 1024 * 1024;

/// Reproducible bytes that differ from event to event.
fn payload(number: u64) -> Bytes {
    let bytes = digest(&number.to_le_bytes());
    bytes.iter().copied().cycle().take(EVENT_BYTES).collect()
}

fn event(number: u64, events: u64) -> Event {
    Event {
        stream: STREAM,
        seq: Seq(number + 1),
        previous: Seq(number),
        kind: EventKind::Notification,
        last: number + 1 == events,
        payload: payload(number),
    }
}

/// Appends so many events, each in its own commit; the store never has more than this in memory.
pub(crate) async fn write(store: &impl Store, events: u64, memory_bytes_max: u64) {
    let opened = store.create(SESSION, [8; 32]).await.unwrap();
    let mut version = opened.version;
    for number in 0..events {
        let batch = Batch { events: vec![event(number, events)], ..Batch::default() };
        version = store.commit(SESSION, opened.fence, version, batch).await.unwrap();
        assert!(store.usage().await.unwrap().memory_bytes <= memory_bytes_max);
    }
}

/// Reads all of them again, and compares.
pub(crate) async fn read(store: &impl Store, events: u64) {
    let (mut cursor, mut number) = (Seq::ORIGIN, 0);
    loop {
        let page = store.read(SESSION, STREAM, cursor, 4 * EVENT_BYTES).await.unwrap();
        for read in &page.events {
            assert!(*read == event(number, events), "event {number} changed");
            number += 1;
        }
        cursor = page.next(cursor);
        if !page.more {
            break;
        }
    }
    assert_eq!(number, events);
}

/// Resident memory of this process.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("the kernel states it in KiB") * 1024
}
