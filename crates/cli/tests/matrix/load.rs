//! J: a client that stops reading costs neither memory nor the time of others.

use std::time::{Duration, Instant};

use rejoin_testkit::check::complete;
use rejoin_testkit::deadline::pause;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::Session;

use crate::server::{Kind, needs};
use crate::support::{Bench, get, owed};

/// Progress events of the stalled call, in megabytes.
const FLOOD_MEGABYTES: u64 = 50;

/// The same for a call before it, so that what memory grows to anyway is there.
const WARM_UP_MEGABYTES: u64 = 8;

/// Other requests during a flood.
const REQUESTS: u64 = 200;

const GROWTH_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How long 99 of 100 of them may take.
const P99_MAX: Duration = Duration::from_millis(50);

/// How long memory is watched after the last request.
const WATCH: Duration = Duration::from_secs(3);

/// How long 99 of 100 requests with ids from `first` take at most; `highest` grows to the memory
/// of the gateway meanwhile.
async fn p99(
    bench: &Bench,
    session: &Session,
    first: u64,
    highest: &mut u64,
) -> Result<Duration, Failure> {
    let mut times = Vec::new();
    for id in first..first + REQUESTS {
        let start = Instant::now();
        let response = session.answer(&get(id)).await?;
        times.push(start.elapsed());
        assert!(response.get("result").is_some(), "{response}");
        *highest = (*highest).max(bench.gateway.resident_bytes()?);
    }
    times.sort_unstable();
    Ok(times[times.len() * 99 / 100])
}

#[tokio::test]
async fn j_a_stalled_reader_costs_no_memory_and_delays_nobody() -> TestResult {
    needs!(LargeEvents);
    let bench = Bench::start_alone(&[]).await?;
    let session = bench.session().await?;
    session.answer(&Kind::chosen().flood(1, 1, WARM_UP_MEGABYTES)).await?;
    let mut warm = 0;
    let undisturbed = p99(&bench, &session, 2, &mut warm).await?;
    let baseline = bench.gateway.resident_bytes()?;

    let call = Kind::chosen().flood(1000, 2, FLOOD_MEGABYTES);
    let mut stalled = session.call(&call).await?;
    stalled.messages(5).await?;
    let mut highest = baseline;
    let disturbed = p99(&bench, &session, 2000, &mut highest).await?;
    let watched = Instant::now();
    while watched.elapsed() < WATCH {
        highest = highest.max(bench.gateway.resident_bytes()?);
        pause(Duration::from_millis(20)).await;
    }
    stalled.clean_rest().await?;
    highest = highest.max(bench.gateway.resident_bytes()?);
    complete(stalled.events(), &owed(&call, 1))?;
    let growth = highest - baseline;
    println!("J: resident memory grew by {growth} bytes, p99 {undisturbed:?}, then {disturbed:?}");
    assert!(growth <= GROWTH_BYTES_MAX, "grew by {growth} bytes over {baseline}");

    // A machine that is busy with other things delays both.
    assert!(disturbed <= P99_MAX + 4 * undisturbed, "p99 {undisturbed:?}, then {disturbed:?}");
    assert_eq!(bench.charges_of(2)?, 1);
    Ok(())
}
