//! A server that dies in the middle of a call.

use rejoin_testkit::call::Call;
use rejoin_testkit::check;
use rejoin_testkit::deadline::WAIT_MAX;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::Connection;

use crate::server::needs;
use crate::support::{Bench, assert_result, charge_with, drop_after, get, owed, refused};

/// Checks that a stream has the progress of `call` from `first` on without a hole, up to `last`
/// where the server died exactly there, and then the word that its outcome is unknown.
fn assert_unknown(
    bench: &Bench,
    stream: &Connection,
    call: &Call,
    first: u64,
    last: u64,
) -> TestResult {
    let numbers = check::progress(stream.events(), &call.progress_token)?;
    let end = numbers.last().copied().unwrap_or(first - 1);
    assert!(numbers.into_iter().eq(first..=end), "{}", stream.account());
    assert!(end == last || !bench.upstream.crashes_exactly() && end > last, "died at {end}");
    let messages = check::messages(stream.events())?;
    let last = messages.last().ok_or_else(|| Failure::new("no message"))?;
    assert_eq!((&last["id"], &last["error"]["code"]), (&call.id.into(), &40906.into()), "{last}");
    Ok(())
}

#[tokio::test]
async fn a_call_whose_server_dies_ends_as_unknown_and_its_repeat_is_refused() -> TestResult {
    let mut bench = Bench::start_to_crash(&[]).await?;
    let session = bench.session().await?;
    let mut call = charge_with(10, 1, 20, 100);
    bench.upstream.let_crash(&mut call, 3);
    let mut stream = session.call(&call).await?;
    stream.messages(3).await?;
    bench.upstream.crash().await?;
    // The gateway gives a server at a URL some time to come back.
    stream.set_wait(WAIT_MAX);
    stream.clean_rest().await?;
    assert_unknown(&bench, &stream, &call, 1, 3)?;
    let refusal = refused(&session, &call.again(11)).await?;
    assert_eq!((refusal.code, refusal.reason.as_str()), (40906, "outcome_unknown"));
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_lost_stream_of_a_dead_server_is_resumed_to_its_outcome_unknown() -> TestResult {
    let mut bench = Bench::start_to_crash(&[]).await?;
    let session = bench.session().await?;
    let mut call = charge_with(10, 1, 20, 100);
    bench.upstream.let_crash(&mut call, 8);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    bench.upstream.crash().await?;
    let mut tail = session.get(Some(&cursor)).await?;
    tail.set_wait(WAIT_MAX);
    tail.clean_rest().await?;
    let last = if bench.upstream.crashes_exactly() { 8 } else { 5 };
    assert_unknown(&bench, &tail, &call, 6, last)?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn the_first_call_after_a_crash_is_told_once_that_state_was_lost() -> TestResult {
    needs!(NotFound);
    let mut bench = Bench::start_to_crash(&[]).await?;
    let session = bench.session().await?;
    let mut crash = charge_with(10, 1, 20, 100);
    bench.upstream.let_crash(&mut crash, 0);
    let mut crashed = session.call(&crash).await?;
    bench.charged(1).await?;
    bench.upstream.crash().await?;
    bench.upstream.restart().await?;
    crashed.set_wait(WAIT_MAX);
    let response = crashed.response().await?;
    assert_eq!(response["error"]["code"], 40906, "{response}");
    let mut next = charge_with(11, 2, 0, 0);
    let mut refusal = refused(&session, &next).await?;
    if refusal.reason == "upstream_unavailable" {
        // It was on its way to the session that Rejoin learned of in this moment to be lost.
        next = next.again(14);
        refusal = refused(&session, &next).await?;
    }
    assert_eq!((refusal.code, refusal.reason.as_str()), (40907, "state_lost"));
    assert_eq!(bench.charges_of(2)?, 0);
    assert_result(&session.answer(&next.again(12)).await?, 12, 1);
    assert!(session.answer(&get(13)).await?.get("result").is_some());
    assert_eq!((bench.charges_of(1)?, bench.charges_of(2)?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn a_server_that_dies_in_one_session_leaves_the_others_alone() -> TestResult {
    needs!(OwnProcess);
    let bench = Bench::start_to_crash(&[]).await?;
    let (one, two) = (bench.session().await?, bench.session().await?);
    let living = charge_with(10, 2, 10, 50);
    let mut running = two.call(&living).await?;
    bench.charged(1).await?;
    let mut crash = charge_with(10, 1, 0, 0);
    bench.upstream.let_crash(&mut crash, 0);
    one.answer(&crash).await?;
    running.clean_rest().await?;
    check::complete(running.events(), &owed(&living, 1))?;
    assert_eq!(bench.charges()?, 2);
    Ok(())
}
