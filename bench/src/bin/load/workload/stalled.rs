//! A client that does not read its stream: what it costs in memory, and the others of its session.

use std::time::{Duration, Instant};

use rejoin_bench::Failure;
use tokio::time::timeout;

use super::{Pass, all_of};
use crate::contestant::Contestant;
use crate::wire::Connection;

const EVENTS: u64 = 50_000;
const BYTES: usize = 1_024;
const STREAM_CALL: u64 = 1;
/// All of the stream has come by then.
const STALL: Duration = Duration::from_secs(4);
/// Nobody waits longer for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// Calls between two looks at the memory.
const CALLS_PER_LOOK: u64 = 50;

/// Megabytes that the contestant's process grew by at most, and how long other calls took.
pub(super) async fn run(contestant: &Contestant) -> Result<Pass, Failure> {
    let host = contestant.address;
    let mut stalled = Connection::open(host).await?;
    let mut other = Connection::join(host, stalled.session()).await?;
    other.call(0, "get", r#"{"account":0}"#, false).await?;
    let before = contestant.resident_bytes()?;
    let arguments = format!(r#"{{"events":{EVENTS},"bytes":{BYTES}}}"#);
    stalled.send_call(STREAM_CALL, "stream", &arguments, true).await?;
    let (began, mut latencies, mut most) = (Instant::now(), Vec::new(), before);
    for id in STREAM_CALL + 1.. {
        let one = Instant::now();
        let arguments = format!(r#"{{"account":{id}}}"#);
        let call = other.call(id, "get", &arguments, false);
        timeout(ANSWER_MAX, call).await.map_err(|_| "others have no answer in 4 s")??;
        latencies.push(one.elapsed());
        let is_over = began.elapsed() >= STALL;
        if is_over || id % CALLS_PER_LOOK == 0 {
            most = most.max(contestant.resident_bytes()?);
        }
        if is_over {
            break;
        }
    }
    // For the one that stalled, too.
    all_of(stalled.answer_of(STREAM_CALL, true).await?, EVENTS)?;
    Ok(Pass::of((most - before) as f64 / 1e6, latencies))
}
