//! A stream that is read again from its beginning.

use std::path::Path;
use std::time::{Duration, Instant};

use rejoin_bench::Failure;
use rejoin_core::effect::Batch;
use rejoin_core::id::Seq;
use rejoin_core::limits::Limits;
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use rejoin_store::{SessionKey, Store};

use crate::writes::{STREAM, event};

const SESSION: SessionKey = [7; 32];
/// Events in the stream: 20 MB.
const EVENTS: u64 = 100_000;
/// Events of one commit.
const EVENTS_PER_COMMIT: u64 = 1_000;
/// What is read at once, as for a connection that replays.
const PAGE_BYTES: usize = 64 * 1024;
/// Room for all of them in memory.
const TAIL_BYTES: u64 = 256 * 1024 * 1024;

/// A store with one long stream.
pub(crate) struct Replay(SqliteStore);

impl Replay {
    /// Nothing of the stream is kept ready in memory.
    pub(crate) async fn from_file(directory: &Path) -> Result<Self, Failure> {
        Self::fill(&directory.join("file"), 0).await
    }

    /// All of the stream is kept ready in memory.
    pub(crate) async fn from_memory(directory: &Path) -> Result<Self, Failure> {
        Self::fill(&directory.join("memory"), TAIL_BYTES).await
    }

    async fn fill(directory: &Path, tail_bytes_max: u64) -> Result<Self, Failure> {
        let mut options = SqliteOptions::new(Durability::Calls, &Limits::default());
        (options.tail_bytes_max, options.stream_tail_bytes_max) = (tail_bytes_max, tail_bytes_max);
        let store = SqliteStore::open(directory, options)?;
        let opened = store.create(SESSION, [8; 32]).await?;
        let mut version = opened.version;
        for first in (1..=EVENTS).step_by(EVENTS_PER_COMMIT as usize) {
            let events = (first..first + EVENTS_PER_COMMIT).map(event).collect();
            let batch = Batch { events, ..Batch::default() };
            version = store.commit(SESSION, opened.fence, version, batch).await?;
        }
        Ok(Self(store))
    }

    /// Events in a second, read from the first to the last, again and again.
    pub(crate) async fn run(&self, time: Duration) -> Result<f64, Failure> {
        let (began, mut events, mut cursor) = (Instant::now(), 0, Seq::ORIGIN);
        while began.elapsed() < time {
            let page = self.0.read(SESSION, STREAM, cursor, PAGE_BYTES).await?;
            events += page.events.len();
            cursor = if page.more { page.next(cursor) } else { Seq::ORIGIN };
        }
        Ok(events as f64 / began.elapsed().as_secs_f64())
    }
}
