//! Power cuts: of what was not synced, any block is there or not.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::child;
use crate::faults::Bench;
use crate::kill::{check, commit_and_kill};

const ROUNDS: u64 = 8;
/// The kernel writes blocks of this many bytes.
const BLOCK_BYTES: usize = 4_096;

/// Numbers that look random and come again with the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }
}

fn read(path: &Path) -> Vec<u8> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.expect("it is read"),
    }
}

/// What may be left of a file: each block as it was synced, or as it was written since.
fn left(synced: &[u8], written: &[u8], dice: &mut Dice) -> Vec<u8> {
    let (shorter, longer) = (synced.len().min(written.len()), synced.len().max(written.len()));
    let length = shorter + dice.roll(longer - shorter + 1);
    let writes_arrive = dice.roll(4);
    let mut left = vec![0; length];
    for (number, block) in left.chunks_mut(BLOCK_BYTES).enumerate() {
        let source = if dice.roll(3) < writes_arrive { written } else { synced };
        let start = (number * BLOCK_BYTES).min(source.len());
        let bytes = &source[start..source.len().min(start + block.len())];
        block[..bytes.len()].copy_from_slice(bytes);
    }
    left
}

/// The data directory after a power cut, on a machine that has booted again.
fn cut_power(bench: &Bench, left: impl FnMut(&[u8], &[u8]) -> Vec<u8>) -> TempDir {
    let mut left = left;
    let after = tempfile::tempdir().expect("the temporary folder can be written");
    for name in ["rejoin.db", "rejoin.db-wal"] {
        let kept = bench.path("kept").join(name);
        // Until its first checkpoint it is as it was made, under another name.
        let made = bench.path("kept").join("rejoin.db.new");
        let is_as_made = name == "rejoin.db" && !kept.exists();
        let synced = read(if is_as_made { &made } else { &kept });
        let written = read(&bench.path("data").join(name));
        fs::write(after.path().join(name), left(&synced, &written)).expect("it is written");
    }
    let database = rusqlite::Connection::open(after.path().join("rejoin.db")).expect("it opens");
    let boot = "update meta set value = 'another' where key = 'boot'";
    database.execute_batch(boot).expect("it is sound");
    after
}

/// The last version up to this one whose commit was durable.
fn last_durable(version: u64) -> u64 {
    (1..=version).rev().find(|version| child::is_durable(*version)).unwrap_or(0)
}

async fn after_a_power_cut(durability: &str, round: u64) {
    let (bench, mut dice) = (Bench::new(), Dice(round));
    let (other, word) = bench.start(durability);
    assert_eq!(word, "ready");
    // Some rounds end before the first checkpoint, most after some.
    let acked = commit_and_kill(other, Duration::from_millis(50 + 150 * round));
    let directory = cut_power(&bench, |synced, written| left(synced, written, &mut dice));
    let store = child::open(directory.path(), durability);
    for (number, acked) in (0..).zip(acked) {
        let found = check(&store, number).await;
        let version = found.map_or(0, |(version, _)| version);
        let must_be_there = match durability {
            "calls" => last_durable(acked),
            "events" => acked,
            _ => {
                assert_eq!(found, None, "claims may be lost, so the session must not go on");
                continue;
            }
        };
        assert!(
            version >= must_be_there,
            "session {number}: acknowledged {acked}, of which {must_be_there} were synced, found \
             {version}"
        );
    }
}

#[tokio::test]
async fn claims_and_results_survive_a_power_cut() {
    for round in 0..ROUNDS {
        after_a_power_cut("calls", round).await;
    }
}

#[tokio::test]
async fn everything_survives_a_power_cut_when_everything_is_synced() {
    for round in 0..ROUNDS {
        after_a_power_cut("events", round).await;
    }
}

#[tokio::test]
async fn the_file_stays_sound_when_nothing_is_synced() {
    for round in 0..ROUNDS {
        after_a_power_cut("memory", round).await;
    }
}

/// The kernel forgets what it could not write when it has told so once: a later sync is no proof.
#[tokio::test]
async fn what_a_failed_sync_has_dropped_is_written_again_before_anything_builds_on_it() {
    let bench = Bench::new();
    let (mut other, word) = bench.start("calls");
    assert_eq!(word, "ready");
    for word in ["durable", "progress", "progress"] {
        assert_eq!(other.ask(word), "ok");
    }
    bench.fault("s");
    assert_eq!(other.ask("durable"), "unknown: Other");
    bench.fault("-");
    assert_eq!(other.ask("load"), "version 3");
    assert_eq!(other.ask("durable"), "ok");
    other.kill();
    let directory = cut_power(&bench, |synced, _| synced.to_vec());
    let store = child::open(directory.path(), "calls");
    let (version, _) = check(&store, 0).await.expect("it is there");
    assert_eq!(version, 4);
}
