//! Many calls over connections that are cut: each runs once, and comes whole and in order.

use rejoin_client::ClientLimits;
use rejoin_testkit::cutter::{Cut, Cutter};
use rejoin_testkit::failure::Failure;
use serde_json::Value;

use crate::support::{Bench, Host};

#[tokio::test]
async fn a_call_whose_connection_is_cut_comes_whole_and_runs_once() -> Result<(), Failure> {
    let bench = Bench::start().await?;
    let cutter = Cutter::start(bench.address, 7, 4_000, 200, Cut::Reset)?;
    let mut host = Host::start(cutter.address())?;
    host.initialize().await?;
    host.charge(1, 5, 200).await?;
    let answer = host.until(|message| message["id"] == 1).await?;
    assert_eq!(answer["result"]["structuredContent"]["amount"], 5, "{answer}");
    assert_eq!(host.progress(1), (1..=200).collect::<Vec<_>>(), "{:?}", host.notices);
    assert_eq!(bench.count.runs("charge")?, 1);
    assert!(cutter.cuts() > 3, "{} cuts", cutter.cuts());
    Ok(())
}

/// Calls `charge` so often, with `at_once` calls running at the same time, half of them with the
/// same arguments.
pub(crate) async fn storm(
    bench: &Bench,
    host: &mut Host,
    calls: u64,
    at_once: u64,
) -> Result<(), Failure> {
    host.initialize().await?;
    let mut recorded = 0;
    let amount = |id: u64| if id.is_multiple_of(2) { 7 } else { 1_000 + id };
    let is_answer = |message: &Value| message.get("method").is_none() && message["id"].is_u64();
    for id in 1..=calls {
        if id > at_once {
            host.until(is_answer).await?;
        }
        host.charge(id, amount(id), 5).await?;
    }
    for _ in 0..at_once.min(calls) {
        host.until(is_answer).await?;
    }
    for id in 1..=calls {
        let answers: Vec<_> = host.came.iter().filter(|message| message["id"] == id).collect();
        assert_eq!(answers.len(), 1, "call {id} has {} answers", answers.len());
        let result = &answers[0]["result"]["structuredContent"];
        assert_eq!(result["amount"], amount(id), "{}", answers[0]);
        let progress = host.progress(id);
        // A record has no progress: what is missing was handed to a connection that then died.
        // So it is the end of the progress that is missing, never something in between.
        let is_recorded = !answers[0]["result"]["_meta"]["dev.rejoin/recorded"].is_null();
        recorded += u64::from(is_recorded);
        let came = if is_recorded { progress.len() } else { 5 };
        assert_eq!(progress, [1, 2, 3, 4, 5][..came], "call {id}");
        let place = |wanted: &dyn Fn(&Value) -> bool| host.came.iter().rposition(wanted);
        let token = format!("p{id}");
        let last = place(&|message| message["params"]["progressToken"] == token.as_str());
        assert!(last < place(&|message| message["id"] == id), "the answer came last");
    }
    assert_eq!(bench.count.runs("charge")?, usize::try_from(calls)?);
    let executions = |message: &Value| message["result"]["structuredContent"]["execution"].as_u64();
    let mut executions: Vec<_> = host.came.iter().filter_map(executions).collect();
    executions.sort_unstable();
    assert_eq!(executions, (1..=calls).collect::<Vec<_>>(), "no answer was given twice");
    // Else it would not be seen that progress is whole.
    assert!(recorded * 4 <= calls, "{recorded} of {calls} results came from a record");
    Ok(())
}

#[tokio::test]
async fn calls_one_after_the_other_run_once_each_whatever_is_cut() -> Result<(), Failure> {
    let bench = Bench::start().await?;
    let cutter = Cutter::start(bench.address, 11, 3_000, usize::MAX, Cut::Either)?;
    storm(&bench, &mut Host::start(cutter.address())?, 60, 1).await?;
    assert!(cutter.cuts() > 10, "{} cuts", cutter.cuts());
    Ok(())
}

#[tokio::test]
async fn calls_at_once_run_once_each_whatever_is_cut() -> Result<(), Failure> {
    let bench = Bench::start().await?;
    let cutter = Cutter::start(bench.address, 12, 3_000, usize::MAX, Cut::Reset)?;
    storm(&bench, &mut Host::start(cutter.address())?, 120, 8).await?;
    assert!(cutter.cuts() > 20, "{} cuts", cutter.cuts());
    Ok(())
}

#[tokio::test]
async fn paths_that_die_in_silence_are_left() -> Result<(), Failure> {
    let bench = Bench::start_with(&["--limit", "keep_alive_ms=200"]).await?;
    let cutter = Cutter::start(bench.address, 13, 4_000, 6, Cut::Hang)?;
    let mut limits = ClientLimits::default();
    (limits.stream_idle_max_ms, limits.head_max_ms) = (2_000, 2_000);
    storm(&bench, &mut Host::start_with(cutter.address(), limits)?, 30, 2).await?;
    assert_eq!(cutter.cuts(), 6);
    Ok(())
}
