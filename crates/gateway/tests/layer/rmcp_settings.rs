//! What rmcp's own time-outs and caches do to the promise (docs/embedding.md).

use std::time::Duration;

use rejoin_testkit::failure::TestResult;

use crate::support::{Bench, Listener, charge, refused, resume_complete, text};

/// Long after the idle timeout below.
const SILENCE_MS: u64 = 1_500;
const IDLE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn with_the_idle_timeout_off_a_silent_call_ends_with_its_answer() -> TestResult {
    let bench = Bench::start_with(Listener::Rejoin, |config| config.keep_alive = None).await?;
    let session = bench.session().await?;
    let answer = session.answer(&charge(10, 1, 1, SILENCE_MS)).await?;
    assert_eq!(text(&answer), "charge number 1");
    Ok(())
}

#[tokio::test]
async fn a_silent_call_that_the_idle_timeout_ended_is_told_and_not_run_again() -> TestResult {
    let bench =
        Bench::start_with(Listener::Rejoin, |config| config.keep_alive = Some(IDLE)).await?;
    let session = bench.session().await?;
    let call = charge(10, 1, 1, SILENCE_MS);
    let answer = session.answer(&call).await?;
    let error = &answer["error"];
    assert_eq!(error["data"]["reason"], "outcome_unknown", "{answer}");
    let refusal = refused(&session, &call.again(11)).await?;
    assert_eq!(refusal.reason, "outcome_unknown", "{refusal:?}");
    assert_eq!(bench.charges.executed(), 1);
    Ok(())
}

#[tokio::test]
async fn what_rmcp_forgets_of_finished_calls_is_in_the_log() -> TestResult {
    let forget = Duration::ZERO;
    let set =
        |config: &mut rmcp::transport::streamable_http_server::session::local::SessionConfig| {
            (config.completed_cache_ttl, config.channel_capacity) = (forget, 1);
        };
    let bench = Bench::start_with(Listener::Rejoin, set).await?;
    let session = bench.session().await?;
    let call = charge(10, 1, 20, 5);
    let cursor = bench.drop_after(&session, &call, 2).await?;
    // Other calls give rmcp occasion to forget the first.
    for id in 11..14 {
        session.answer(&charge(id, id, 1, 5)).await?;
    }
    resume_complete(&session, &cursor, &call, 3).await?;
    Ok(())
}
