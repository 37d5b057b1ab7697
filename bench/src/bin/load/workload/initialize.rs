//! Sessions, one after another, each on a connection of its own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rejoin_bench::Failure;

use super::Pass;
use crate::wire::Connection;

/// Opens sessions for so long.
pub(super) async fn run(host: SocketAddr, time: Duration) -> Result<Pass, Failure> {
    let (began, mut latencies) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let one = Instant::now();
        drop(Connection::open(host).await?);
        latencies.push(one.elapsed());
    }
    Ok(Pass::rate(began.elapsed(), latencies.len() as u64, latencies))
}
