//! Resident memory is measured here, in a process that does nothing else. The suite and all other
//! tests of the memory store are in `src/memory/tests.rs`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "support/large_log.rs"]
mod large_log;

use large_log::{EVENT_BYTES, MIB, read, resident_bytes, write};
use rejoin_store::{MemoryLimits, MemoryStore, Quota, Store};

const EVENTS: u64 = 800;

#[tokio::test]
async fn fifty_megabytes_go_through_one_megabyte_of_memory_unchanged() {
    let quota = Quota { principal_bytes_max: 64 * MIB, total_bytes_max: 64 * MIB };
    let store = MemoryStore::new(MemoryLimits { memory_log_bytes_max: MIB, quota }).unwrap();
    let before = resident_bytes();
    write(&store, EVENTS, MIB).await;
    let usage = store.usage().await.unwrap();
    assert_eq!(usage.memory_bytes + usage.spilled_bytes, EVENTS * EVENT_BYTES as u64);
    assert!(usage.spilled_bytes >= 49 * MIB, "{usage:?}");
    read(&store, EVENTS).await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 8 * MIB, "resident memory grew by {grown} bytes");
}
