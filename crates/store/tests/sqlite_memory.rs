//! Resident memory of a store in a file is measured here, in a process that does nothing else.
#![cfg(feature = "sqlite")]

use bytes::Bytes;
use rejoin_core::effect::{Batch, Event, EventKind};
use rejoin_core::id::{Seq, StreamId, digest};
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use rejoin_store::{Quota, Store};

const SESSION: [u8; 32] = [7; 32];
const STREAM: StreamId = StreamId(3);
const EVENTS: u64 = 4_000;
const EVENT_BYTES: usize = 65_536;
const MIB: u64 = 1024 * 1024;
/// Connections have caches of 8 MiB (the writer's) and 2 MiB (each of four readers').
const GROWN_BYTES_MAX: u64 = 28 * MIB;

/// Reproducible bytes that differ from event to event.
fn payload(number: u64) -> Bytes {
    let bytes = digest(&number.to_le_bytes());
    bytes.iter().copied().cycle().take(EVENT_BYTES).collect()
}

fn event(number: u64) -> Event {
    Event {
        stream: STREAM,
        seq: Seq(number + 1),
        previous: Seq(number),
        kind: EventKind::Notification,
        last: number + 1 == EVENTS,
        payload: payload(number),
    }
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("the kernel states it in KiB") * 1024
}

#[tokio::test]
async fn a_quarter_gigabyte_goes_through_one_megabyte_of_tails_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        durability: Durability::Memory,
        quota: Quota { principal_bytes_max: 512 * MIB, total_bytes_max: 512 * MIB },
        tail_bytes_max: MIB,
        stream_tail_bytes_max: MIB,
    };
    let store = SqliteStore::open(directory.path(), options).unwrap();
    let opened = store.create(SESSION, [8; 32]).await.unwrap();
    let mut version = opened.version;
    let before = resident_bytes();
    for number in 0..EVENTS {
        let batch = Batch { events: vec![event(number)], ..Batch::default() };
        version = store.commit(SESSION, opened.fence, version, batch).await.unwrap();
        assert!(store.usage().await.unwrap().memory_bytes <= MIB);
    }
    let (mut cursor, mut number) = (Seq::ORIGIN, 0);
    loop {
        let page = store.read(SESSION, STREAM, cursor, 4 * EVENT_BYTES).await.unwrap();
        for read in &page.events {
            assert!(*read == event(number), "event {number} changed");
            number += 1;
        }
        cursor = page.next(cursor);
        if !page.more {
            break;
        }
    }
    assert_eq!(number, EVENTS);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWN_BYTES_MAX, "resident memory grew by {grown} bytes");
    println!("resident memory grew by {} KiB", grown / 1024);
}
