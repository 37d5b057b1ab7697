//! The suite, with each durability and with tails of several sizes, and what only this store does.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::conformance::{self, WIDE};

const MIB: u64 = 1024 * 1024;

fn options(durability: Durability, quota: Quota, tail_bytes_max: u64) -> SqliteOptions {
    SqliteOptions { durability, quota, tail_bytes_max, stream_tail_bytes_max: tail_bytes_max / 2 }
}

fn open(directory: &Path) -> SqliteStore {
    SqliteStore::open(directory, options(Durability::Calls, WIDE, MIB)).expect("it opens")
}

async fn keeps_the_contract(durability: Durability, tail_bytes_max: u64) {
    let directories = Mutex::new(Vec::new());
    conformance::run(async |quota| {
        let directory = tempfile::tempdir().expect("the temporary folder can be written");
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
