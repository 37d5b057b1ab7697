//! Commits, by one session or by many at once.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rejoin_bench::Failure;
use rejoin_core::effect::{Batch, Event, EventKind};
use rejoin_core::id::{CallId, Seq, StreamId, digest};
use rejoin_core::ledger::{Call, Phase};
use rejoin_core::limits::Limits;
use rejoin_core::message::IdKey;
use rejoin_core::stream::{Stream, StreamState};
use rejoin_core::tool::Class;
use rejoin_store::Store;
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};

use crate::Pass;

/// Payload of an event of progress.
pub(crate) const EVENT_BYTES: usize = 200;
/// The stream of all events.
pub(crate) const STREAM: StreamId = StreamId(1);

/// What is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A call that is about to be sent, with its stream: before it counts it is on the disk.
    Claim,
    /// An event of progress.
    Event,
}

/// A workload of commits, each by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writes {
    pub(crate) kind: Kind,
    pub(crate) durability: Durability,
    pub(crate) writers: usize,
}

impl Writes {
    /// Commits in an empty store in this directory, again and again.
    pub(crate) async fn run(self, directory: &Path, time: Duration) -> Result<Pass, Failure> {
        let directory = tempfile::tempdir_in(directory)?;
        let options = SqliteOptions::new(self.durability, &Limits::default());
        let store = Arc::new(SqliteStore::open(directory.path(), options)?);
        let began = Instant::now();
        let writers: Vec<_> = (0..self.writers)
            .map(|writer| tokio::spawn(commit(Arc::clone(&store), writer, self.kind, began + time)))
            .collect();
        let mut latencies = Vec::new();
        for writer in writers {
            latencies.extend(writer.await??);
        }
        Ok(Pass::new(began.elapsed(), latencies))
    }
}

async fn commit(
    store: Arc<SqliteStore>,
    writer: usize,
    kind: Kind,
    until: Instant,
) -> Result<Vec<Duration>, Failure> {
    let session = digest(&writer.to_le_bytes());
    let opened = store.create(session, [8; 32]).await?;
    let (mut version, mut latencies) = (opened.version, Vec::new());
    for number in 1.. {
        let batch = match kind {
            Kind::Claim => claim(number),
            Kind::Event => Batch { events: vec![event(number)], ..Batch::default() },
        };
        let at = Instant::now();
        version = store.commit(session, opened.fence, version, batch).await?;
        latencies.push(at.elapsed());
        if Instant::now() >= until {
            break;
        }
    }
    Ok(latencies)
}

fn claim(number: u64) -> Batch {
    let stream = u32::try_from(number).unwrap_or(u32::MAX);
    Batch {
        calls: vec![call(number)],
        streams: vec![Stream::new(StreamId(stream), StreamState::Live, 1)],
        durable: true,
        ..Batch::default()
    }
}

/// An event of progress, with the one before it as its predecessor.
pub(crate) fn event(number: u64) -> Event {
    Event {
        stream: STREAM,
        seq: Seq(number),
        previous: Seq(number - 1),
        kind: EventKind::Notification,
        last: false,
        payload: Bytes::from_static(&[b'x'; EVENT_BYTES]),
    }
}

fn call(number: u64) -> Call {
    Call {
        id: CallId(number),
        request_id: Bytes::from_static(b"1"),
        request_key: IdKey::text("1"),
        progress_token: Some(Bytes::from_static(b"\"progress-1\"")),
        method: "tools/call".to_owned(),
        tool: Some("charge".to_owned()),
        class: Class::Effectful,
        params: digest(&number.to_le_bytes()),
        body: digest(&number.to_be_bytes()),
        token: None,
        scope: None,
        phase: Phase::Claimed,
        stream: Some(STREAM),
        ran_on: None,
        result: None,
        claimed_ms: 1,
        heard_ms: 1,
        ended_ms: None,
        lost_ms: None,
        settled_by: None,
        upstream_cursor: None,
    }
}
