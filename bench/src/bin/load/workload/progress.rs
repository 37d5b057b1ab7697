//! Calls with much progress.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rejoin_bench::Failure;

use super::{Part, Pass, all_of, open, together};
use crate::wire::Connection;

/// Events of all streams together, in one round of calls.
const EVENTS: usize = 20_000;
/// What they carry together at most.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// One call after another on each stream; each pass has at least one to its end.
pub(super) async fn run(
    host: SocketAddr,
    streams: usize,
    bytes: usize,
    time: Duration,
) -> Result<Pass, Failure> {
    let events = EVENTS.min(BYTES_MAX / bytes) / streams;
    let open = open(host, streams).await?;
    let began = Instant::now();
    let until = began + time;
    let drive = |connection| tokio::spawn(drive(connection, events as u64, bytes, until));
    together(began, open.into_iter().map(drive).collect()).await
}

async fn drive(
    mut connection: Connection,
    events: u64,
    bytes: usize,
    until: Instant,
) -> Result<Part, Failure> {
    let mut part = Part::default();
    for id in 1.. {
        let began = Instant::now();
        let arguments = format!(r#"{{"events":{events},"bytes":{bytes},"n":{id}}}"#);
        let came = connection.call(id, "stream", &arguments, true).await?;
        all_of(came, events)?;
        part.count += came;
        part.latencies.push(began.elapsed());
        if Instant::now() >= until {
            break;
        }
    }
    Ok(part)
}
