//! A server that dies in the middle of a call.

use rejoin_testkit::check;
use rejoin_testkit::failure::{Failure, TestResult};

use crate::support::{Bench, charge_with, drop_after, execution, get, refused, resume};

#[tokio::test]
async fn a_call_whose_server_dies_ends_as_unknown_and_its_repeat_is_refused() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut call = charge_with(10, 1, 10, 10);
    call.arguments["crash_after"] = 3.into();
    let mut stream = session.call(&call).await?;
    stream.clean_rest().await?;
    assert_eq!(check::progress(stream.events(), &call.progress_token)?, [1, 2, 3]);
    let messages = check::messages(stream.events())?;
    let last = messages.last().ok_or_else(|| Failure::new("no message"))?;
    assert_eq!((&last["id"], &last["error"]["code"]), (&10.into(), &40906.into()));
    let refusal = refused(&session, &call.again(11)).await?;
    assert_eq!((refusal.code, refusal.reason.as_str()), (40906, "outcome_unknown"));
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_lost_stream_of_a_dead_server_is_resumed_to_its_outcome_unknown() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut call = charge_with(10, 1, 10, 50);
    call.arguments["crash_after"] = 8.into();
    let cursor = drop_after(&session, &call, 5).await?;
    let tail = resume(&session, &cursor).await?;
    assert_eq!(check::progress(tail.events(), &call.progress_token)?, [6, 7, 8]);
    let messages = check::messages(tail.events())?;
    assert_eq!(messages.last().map(|last| &last["error"]["code"]), Some(&40906.into()));
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn the_first_call_after_a_crash_is_told_once_that_state_was_lost() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut crash = charge_with(10, 1, 0, 0);
    crash.arguments["crash_after"] = 0.into();
    let response = session.answer(&crash).await?;
    assert_eq!(response["error"]["code"], 40906, "{response}");
    let next = charge_with(11, 2, 0, 0);
    let refusal = refused(&session, &next).await?;
    assert_eq!((refusal.code, refusal.reason.as_str()), (40907, "state_lost"));
    assert_eq!(bench.charges_of(2)?, 0);
    let response = session.answer(&next.again(12)).await?;
    assert_eq!(execution(&response), Some(1));
    assert!(session.answer(&get(13)).await?.get("result").is_some());
    assert_eq!((bench.charges_of(1)?, bench.charges_of(2)?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn a_server_that_dies_in_one_session_leaves_the_others_alone() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let (one, two) = (bench.session().await?, bench.session().await?);
    let living = charge_with(10, 2, 10, 50);
    let mut running = two.call(&living).await?;
    bench.charged(1).await?;
    let mut crash = charge_with(10, 1, 0, 0);
    crash.arguments["crash_after"] = 0.into();
    one.answer(&crash).await?;
    running.clean_rest().await?;
    check::complete(running.events(), &crate::support::owed(&living, 1))?;
    assert_eq!(bench.charges()?, 2);
    Ok(())
}
