//! A disk that fails, is full or slow: nothing counts that is not in the file, and all goes on when
//! the fault ends, in the same process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Other;

/// The other process, on a disk that does as it is told.
struct Disk {
    other: Other,
    directory: TempDir,
}

impl Disk {
    fn new(durability: &str) -> Self {
        let directory = tempfile::tempdir().expect("the temporary folder can be written");
        let path = |name: &str| directory.path().join(name);
        let (library, fault, syncs) = (library(directory.path()), path("fault"), path("syncs"));
        fs::write(&fault, "-").expect("it is written");
        let more =
            [("LD_PRELOAD", library.as_path()), ("REJOIN_FAULT", &fault), ("REJOIN_SYNCS", &syncs)];
        let other = Other::start(&path("data"), durability, &more);
        Self { other, directory }
    }

    /// From now on.
    fn fault(&self, kind: &str) {
        let (new, fault) = (self.directory.path().join("new"), self.directory.path().join("fault"));
        fs::write(&new, kind).and_then(|()| fs::rename(&new, &fault)).expect("it is written");
    }

    fn syncs(&self) -> u64 {
        fs::metadata(self.directory.path().join("syncs")).map_or(0, |file| file.len())
    }

    fn ask(&mut self, word: &str) -> String {
        self.other.ask(word)
    }
}

/// Builds the library that stands between the process and its disk.
fn library(directory: &Path) -> PathBuf {
    let library = directory.join("faults.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sqlite_process/faults.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&library).arg(source);
    assert!(compiler.status().expect("a C compiler, as for SQLite").success());
    library
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
    let data = disk.directory.path().join("data");
    let mut other = Other::start(&data, "calls", &[]);
    assert_eq!(other.ask("load"), "version 4", "and a killed process finds it");
}

#[test]
fn what_is_synced_is_what_the_durability_says() {
    let synced = [("calls", true, false), ("events", true, true), ("memory", false, false)];
    for (durability, durable, progress) in synced {
        let mut disk = Disk::new(durability);
        // The first one may reserve numbers.
        assert_eq!(disk.ask("durable"), "ok");
        for (word, is_synced) in [("durable", durable), ("progress", progress)] {
            let before = disk.syncs();
            assert_eq!(disk.ask(word), "ok");
            assert_eq!(disk.syncs() > before, is_synced, "{durability} {word}");
        }
    }
}

#[test]
fn numbers_beyond_the_reserved_are_synced_before_they_count() {
    let mut disk = Disk::new("calls");
    let before = disk.syncs();
    assert_eq!(disk.ask("progress"), "ok");
    assert_eq!(disk.syncs(), before, "there are numbers enough");
    assert_eq!(disk.ask("leap"), "ok");
    assert!(disk.syncs() > before, "a number was given out that a power cut could take back");
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
