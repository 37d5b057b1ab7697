//! Resident memory of a store in a file is measured here, in a process that does nothing else.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "support/large_log.rs"]
mod large_log;

use large_log::{MIB, read, resident_bytes, write};
use rejoin_store::Quota;
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};

const EVENTS: u64 = 4_000;
/// Connections have caches of 8 MiB (the writer's) and 2 MiB (each of four readers').
const GROWN_BYTES_MAX: u64 = 28 * MIB;

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
    let before = resident_bytes();
    write(&store, EVENTS, MIB).await;
    read(&store, EVENTS).await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWN_BYTES_MAX, "resident memory grew by {grown} bytes");
    println!("resident memory grew by {} KiB", grown / 1024);
}
