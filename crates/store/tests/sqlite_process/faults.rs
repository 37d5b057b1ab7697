//! A disk that fails, is full or slow: nothing counts that is not in the file, and all goes on when
//! the fault ends, in the same process.

use std::path::PathBuf;

use rejoin_testkit::disk;

use crate::Other;

/// A disk that does as it is told.
pub(crate) struct Bench(disk::Disk);

impl Bench {
    pub(crate) fn new() -> Self {
        Self(disk::Disk::new().expect("a C compiler, as for SQLite"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// From now on.
    pub(crate) fn fault(&self, kind: &str) {
        self.0.set_fault(kind).expect("it is written");
    }

    /// Starts the other process on it, and returns its first word.
    pub(crate) fn start(&self, durability: &str) -> (Other, String) {
        let more = self.0.environment();
        let more = more.each_ref().map(|(name, path)| (*name, path.as_path()));
        Other::try_start(&self.path("data"), durability, &more)
    }
}

/// The other process, on such a disk.
struct Disk {
    other: Other,
    bench: Bench,
}

impl Disk {
    fn new(durability: &str) -> Self {
        let bench = Bench::new();
        let (other, word) = bench.start(durability);
        assert_eq!(word, "ready");
        Self { other, bench }
    }

    fn fault(&self, kind: &str) {
        self.bench.fault(kind);
    }

    fn syncs(&self) -> u64 {
        self.bench.0.syncs()
    }

    fn ask(&mut self, word: &str) -> String {
        self.other.ask(word)
    }
}

#[test]
fn a_disk_that_fails_to_write_refuses_everything_until_it_works_again() {
    for durability in ["calls", "events", "memory"] {
        let mut disk = Disk::new(durability);
        assert_eq!(disk.ask("durable"), "ok");
        disk.fault("w");
        for word in ["durable", "progress", "durable"] {
            let answer = disk.ask(word);
            assert!(answer.ends_with("Other"), "{durability} {word}: {answer}");
        }
        disk.fault("-");
        assert_eq!(disk.ask("load"), "version 1", "{durability}");
        for word in ["durable", "progress", "durable"] {
            assert_eq!(disk.ask(word), "ok", "{durability}");
        }
        assert_eq!(disk.ask("load"), "version 4", "{durability}");
    }
}

#[test]
fn a_full_disk_refuses_what_it_cannot_hold_and_says_so() {
    for durability in ["calls", "events", "memory"] {
        let mut disk = Disk::new(durability);
        assert_eq!(disk.ask("progress"), "ok");
        disk.fault("f");
        for word in ["durable", "progress", "durable"] {
            assert_eq!(disk.ask(word), "not done: StorageFull", "{durability} {word}");
        }
        disk.fault("-");
        // Nobody need ask what became of it: nothing did.
        for word in ["durable", "progress"] {
            assert_eq!(disk.ask(word), "ok", "{durability}");
        }
        assert_eq!(disk.ask("load"), "version 3", "{durability}");
    }
}

#[test]
fn a_disk_that_fails_to_sync_refuses_what_must_be_synced_and_everything_after() {
    let mut disk = Disk::new("calls");
    assert_eq!(disk.ask("progress"), "ok");
    disk.fault("s");
    assert_eq!(disk.ask("progress"), "ok", "nothing of it is synced");
    assert_eq!(disk.ask("durable"), "unknown: Other");
    // What was committed before may be lost on that disk, so nothing may build on it.
    for word in ["progress", "durable"] {
        assert_eq!(disk.ask(word), "not done: Other", "{word}");
    }
    disk.fault("-");
    assert_eq!(disk.ask("load"), "version 2");
    for word in ["durable", "progress"] {
        assert_eq!(disk.ask(word), "ok");
    }
    drop(disk.other);
    let data = disk.bench.path("data");
    let mut other = Other::start(&data, "calls", &[]);
    assert_eq!(other.ask("load"), "version 4", "and a killed process finds it");
}

#[test]
fn what_is_synced_is_what_the_durability_says() {
    let synced = [("calls", true, false), ("events", true, true), ("memory", false, false)];
    for (durability, durable, progress) in synced {
        let mut disk = Disk::new(durability);
        for (word, is_synced) in [("durable", durable), ("progress", progress)] {
            let before = disk.syncs();
            assert_eq!(disk.ask(word), "ok");
            assert_eq!(disk.syncs() > before, is_synced, "{durability} {word}");
        }
    }
}

#[test]
fn on_a_slow_disk_those_who_wait_share_a_sync() {
    let mut disk = Disk::new("calls");
    assert_eq!(disk.ask("crowd"), "ok");
    disk.fault("d");
    let before = disk.syncs();
    assert_eq!(disk.ask("many"), "ok");
    let syncs = disk.syncs() - before;
    assert!(syncs < 10, "{syncs} syncs for 64 commits at the same time");
}

#[test]
fn a_start_on_a_bad_disk_says_what_is_wrong_and_spoils_nothing() {
    let bench = Bench::new();
    // First there is no database, then there is one.
    for version in ["version 0", "version 1"] {
        for (kind, words) in [("f", ["is full", "make room"]), ("w", ["cannot open", "the disk"])] {
            bench.fault(kind);
            let (_ended, word) = bench.start("calls");
            assert!(words.iter().all(|part| word.contains(part)), "{word}");
            assert!(word.contains("rejoin.db"), "{word}");
        }
        bench.fault("-");
        let (mut other, word) = bench.start("calls");
        assert_eq!((word.as_str(), other.ask("load").as_str()), ("ready", version));
        assert_eq!(other.ask("durable"), "ok");
        other.kill();
    }
}

#[test]
fn a_directory_that_another_process_serves_is_not_shared() {
    let directory = tempfile::tempdir().expect("the temporary folder can be written");
    let mut first = Other::start(directory.path(), "calls", &[]);
    let (_ended, word) = Other::try_start(directory.path(), "calls", &[]);
    let process = format!("process {}", first.process.id());
    assert!(word.contains("in use") && word.contains(&process), "{word}");
    assert_eq!(first.ask("durable"), "ok", "nothing happened to the first");
    first.kill();
    let mut next = Other::start(directory.path(), "calls", &[]);
    assert_eq!(next.ask("load"), "version 1");
}
