//! What file and memory do meanwhile, and what is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Empty};
use rejoin_gateway::gateway::Gateway;
use rejoin_store::{Store, Usage};
use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::failure::{Failure, TestResult};
use rusqlite::{Connection, OpenFlags};
use tokio::time::Instant;

/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(600);
/// The median of the last quarter may be so much above that of the second: a tenth, and what an
/// allocator or a vacuum in steps leaves to chance.
const GROWTH_DIVISOR: u64 = 10;
const MEMORY_SLACK_BYTES: u64 = 8 * 1024 * 1024;
const FILE_SLACK_BYTES: u64 = 2 * 1024 * 1024;
/// What an empty database may keep for what comes.
const EMPTY_FILE_BYTES_MAX: u64 = 6 * 1024 * 1024;
/// Between two looks at what is left, in real time.
const POLL: Duration = Duration::from_millis(20);
/// Every table that has rows of sessions or tokens.
const TABLES: [&str; 9] = [
    "principals",
    "sessions",
    "facts",
    "calls",
    "streams",
    "chains",
    "events",
    "tokens",
    "garbage",
];

/// One look.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    memory_bytes: u64,
    file_bytes: u64,
    log_bytes: u64,
    sessions: u64,
    tokens: u64,
}

/// Looks at one gateway and its store.
pub(crate) struct Watch {
    directory: PathBuf,
    gateway: Gateway,
    store: Arc<dyn Store>,
    started: Instant,
    real: std::time::Instant,
    samples: Vec<Sample>,
}

impl Watch {
    pub(crate) fn new(directory: &Path, gateway: Gateway, store: Arc<dyn Store>) -> Self {
        let (directory, started) = (directory.to_owned(), Instant::now());
        let (real, samples) = (std::time::Instant::now(), Vec::new());
        Self { directory, gateway, store, started, real, samples }
    }

    /// Takes a sample, if it is time.
    pub(crate) async fn sample(&mut self) -> TestResult {
        let at = self.started.elapsed();
        if self.samples.last().is_some_and(|last| at < last.at + INTERVAL) {
            return Ok(());
        }
        let (file_bytes, memory_bytes) = (self.file_bytes(), resident_bytes());
        let Usage { bytes: log_bytes, sessions, tokens, .. } = self.store.usage().await?;
        let sample = Sample { at, memory_bytes, file_bytes, log_bytes, sessions, tokens };
        self.samples.push(sample);
        Ok(())
    }

    fn file_bytes(&self) -> u64 {
        self.size("rejoin.db") + self.size("rejoin.db-wal")
    }

    fn size(&self, name: &str) -> u64 {
        fs::metadata(self.directory.join(name)).map_or(0, |file| file.len())
    }

    /// The last quarter of the day is as the second.
    pub(crate) fn check_flat(&self) {
        let samples = self.samples.len();
        let quarters: Vec<_> = (0..4)
            .map(|quarter| &self.samples[samples * quarter / 4..samples * (quarter + 1) / 4])
            .collect();
        println!("quarter of the day: sessions, tokens, log, file, memory (KiB, medians)");
        for quarter in &quarters {
            let of = |what: fn(&Sample) -> u64| median(quarter, what);
            let kib = |what: fn(&Sample) -> u64| median(quarter, what) / 1024;
            println!(
                "{:>6} {:>6} {:>8} {:>8} {:>8}",
                of(|sample| sample.sessions),
                of(|sample| sample.tokens),
                kib(|sample| sample.log_bytes),
                kib(|sample| sample.file_bytes),
                kib(|sample| sample.memory_bytes),
            );
        }
        println!("{:.0} s of real time", self.real.elapsed().as_secs_f64());
        let grown = |name: &str, what: fn(&Sample) -> u64, slack_bytes: u64| {
            let (second, last) = (median(quarters[1], what), median(quarters[3], what));
            let most = second + second / GROWTH_DIVISOR + slack_bytes;
            assert!(last <= most, "the {name} grew from {second} to {last} bytes");
        };
        grown("file", |sample| sample.file_bytes, FILE_SLACK_BYTES);
        grown("memory", |sample| sample.memory_bytes, MEMORY_SLACK_BYTES);
    }

    /// The value of a metric, by its name with labels.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64, Failure> {
        let request = Request::get("/metrics").body(Empty::<&[u8]>::new())?;
        let page = self.gateway.admin(request).await.into_body().collect().await?.to_bytes();
        let page = String::from_utf8(page.to_vec())?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.ok_or_else(|| Failure::new(format!("there is no {name}")))?;
        Ok(value.parse()?)
    }

    /// Nothing is left of any session, and the file is sound and small.
    pub(crate) async fn check_empty(&self) -> TestResult {
        for gauge in ["rejoin_sessions", "rejoin_events_owed", "rejoin_tokens"] {
            assert_eq!(self.metric(gauge).await?, 0.0, "{gauge}");
        }
        let usage = self.store.usage().await?;
        assert_eq!((usage.bytes, usage.sessions, usage.tokens), (0, 0, 0));
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let file = Connection::open_with_flags(self.directory.join("rejoin.db"), flags)?;
        // What was removed last may still be on its way out, in real time.
        let until = std::time::Instant::now() + WAIT;
        loop {
            let (rows, bytes) = (rows(&file)?, self.size("rejoin.db"));
            if rows == 0 && bytes <= EMPTY_FILE_BYTES_MAX {
                break;
            }
            assert!(std::time::Instant::now() < until, "{rows} rows and {bytes} bytes are left");
            std::thread::sleep(POLL);
        }
        let sound: String = file.query_row("pragma integrity_check", [], |row| row.get(0))?;
        assert_eq!(sound, "ok");
        let (file, log) = (self.size("rejoin.db") / 1024, self.size("rejoin.db-wal") / 1024);
        println!("in the end: a sound file of {file} KiB, and {log} KiB of log before it");
        Ok(())
    }
}

/// Rows of sessions and tokens, in all tables.
fn rows(file: &Connection) -> rusqlite::Result<i64> {
    let count = |table| {
        file.query_row(&format!("select count(*) from {table}"), [], |row| row.get::<_, i64>(0))
    };
    TABLES.into_iter().map(count).sum()
}

fn median(samples: &[Sample], what: fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(what).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("the kernel states it in KiB") * 1024
}
