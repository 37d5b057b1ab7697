//! All clients lose their connections in the midst of a stream, and come back at once.

use std::net::SocketAddr;
use std::time::Instant;

use rejoin_bench::Failure;

use super::{Part, Pass, all_of, open, together};
use crate::wire::Cut;

const CLIENTS: usize = 1_000;
/// Events of each stream, one of which was read before.
const EVENTS: u64 = 100;
const CALL: u64 = 1;

/// Streams that were read to their end in a second.
pub(super) async fn run(host: SocketAddr) -> Result<Pass, Failure> {
    let arguments = format!(r#"{{"events":{EVENTS},"bytes":100}}"#);
    let mut cuts = Vec::with_capacity(CLIENTS);
    for connection in open(host, CLIENTS).await? {
        cuts.push(connection.call_and_cut(CALL, &arguments).await?);
    }
    let began = Instant::now();
    let tasks = cuts.into_iter().map(|cut| tokio::spawn(resume(cut, host, began)));
    together(began, tasks.collect()).await
}

async fn resume(cut: Cut, host: SocketAddr, began: Instant) -> Result<Part, Failure> {
    all_of(cut.resume(host, CALL).await?, EVENTS - 1)?;
    Ok(Part { count: 1, latencies: vec![began.elapsed()] })
}
