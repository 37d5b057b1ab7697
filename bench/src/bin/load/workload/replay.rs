//! A client that lost its connection after the first event, and reads the rest of its stream.

use std::time::{Duration, Instant};

use rejoin_bench::Failure;

use super::{Pass, all_of};
use crate::contestant::Contestant;
use crate::wire::Connection;

/// Events of the stream, one of which was read before.
const EVENTS: u64 = 50_000;
const CALL: u64 = 1;

/// Resumes again and again from the first event; `restarted`: once, after the contestant's process
/// was killed and started again, so that it has nothing in memory.
pub(super) async fn run(
    contestant: &mut Contestant,
    restarted: bool,
    time: Duration,
) -> Result<Pass, Failure> {
    let host = contestant.address;
    let connection = Connection::open(host).await?;
    let arguments = format!(r#"{{"events":{EVENTS},"bytes":100}}"#);
    let cut = connection.call_and_cut(CALL, &arguments).await?;
    // All of it has come when this has: what follows is replay alone.
    all_of(cut.resume(host, CALL).await?, EVENTS - 1)?;
    if restarted {
        contestant.restart()?;
    }
    let (began, mut latencies) = (Instant::now(), Vec::new());
    while latencies.is_empty() || (!restarted && began.elapsed() < time) {
        let one = Instant::now();
        all_of(cut.resume(host, CALL).await?, EVENTS - 1)?;
        latencies.push(one.elapsed());
    }
    Ok(Pass::rate(began.elapsed(), latencies.len() as u64 * (EVENTS - 1), latencies))
}
