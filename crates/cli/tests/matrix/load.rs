//! J: a client that stops reading costs neither memory nor the time of others.

use std::time::{Duration, Instant};

use rejoin_testkit::check::complete;
use rejoin_testkit::deadline::pause;
use rejoin_testkit::failure::TestResult;

use crate::support::{Bench, charge_with, get, owed};

/// Progress events of the stalled call, and the bytes of each message; about 55 MB.
const EVENTS: u64 = 50_000;
const EVENT_BYTES: u64 = 1000;

/// Other requests during the stall.
const REQUESTS: u64 = 200;

const GROWTH_BYTES_MAX: u64 = 16 * 1024 * 1024;
const P99_MAX: Duration = Duration::from_millis(50);

/// How long memory is watched after the last request.
const WATCH: Duration = Duration::from_secs(3);

#[tokio::test]
async fn j_a_stalled_reader_costs_no_memory_and_delays_nobody() -> TestResult {
    let bench = Bench::start_alone(&[]).await?;
    let session = bench.session().await?;
    let mut warm = charge_with(1, 1, 8000, 0);
    warm.arguments["event_bytes"] = EVENT_BYTES.into();
    session.answer(&warm).await?;
    for id in 2..50 {
        session.answer(&get(id)).await?;
    }
    let baseline = bench.gateway.resident_bytes()?;

    let mut call = charge_with(1000, 2, EVENTS, 0);
    call.arguments["event_bytes"] = EVENT_BYTES.into();
    let mut stalled = session.call(&call).await?;
    stalled.messages(5).await?;
    let mut highest = baseline;
    let mut times = Vec::new();
    for id in 2000..2000 + REQUESTS {
        let start = Instant::now();
        let response = session.answer(&get(id)).await?;
        times.push(start.elapsed());
        assert!(response.get("result").is_some(), "{response}");
        highest = highest.max(bench.gateway.resident_bytes()?);
    }
    let watched = Instant::now();
    while watched.elapsed() < WATCH {
        highest = highest.max(bench.gateway.resident_bytes()?);
        pause(Duration::from_millis(20)).await;
    }
    stalled.clean_rest().await?;
    highest = highest.max(bench.gateway.resident_bytes()?);
    complete(stalled.events(), &owed(&call, 1))?;
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100];
    let growth = highest - baseline;
    assert!(growth <= GROWTH_BYTES_MAX, "grew by {growth} bytes over {baseline}");
    assert!(p99 <= P99_MAX, "p99 {p99:?}, slowest {:?}", times.last());
    assert_eq!(bench.charges()?, 2);
    Ok(())
}
