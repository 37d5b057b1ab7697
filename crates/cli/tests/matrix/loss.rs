//! I, L, M, O: losses at awkward times.

use std::time::Duration;

use rejoin_testkit::call::Call;
use rejoin_testkit::check::{self, complete};
use rejoin_testkit::deadline::pause;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::forward::Forward;
use rejoin_testkit::raw::{Connection, End, Received};
use rejoin_testkit::session::{Identity, Session};
use serde_json::json;

use crate::server::needs;
use crate::support::{
    Bench, answered, assert_result, charge_with, cursor_of, cut, get, is_record, owed, refused,
    refused_for, resume_complete,
};

/// Reads the priming event only, waits until the call runs, and cuts; gives the priming event's id.
async fn drop_before_the_first_event(
    bench: &Bench,
    session: &Session,
    call: &Call,
) -> Result<String, Failure> {
    let mut connection = session.call(call).await?;
    let origin = connection.event().await?.id.unwrap_or_default();
    bench.charged(1).await?;
    cut(bench, connection).await?;
    Ok(origin)
}

#[tokio::test]
async fn i_the_same_bytes_after_a_loss_before_the_first_event_take_the_stream_over() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 3, 500);
    drop_before_the_first_event(&bench, &session, &call).await?;
    let mut again = session.call(&call).await?;
    assert_eq!(again.head().await?.status, 200);
    again.clean_rest().await?;
    complete(again.events(), &owed(&call, 1))?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn i_a_new_id_after_a_loss_before_the_first_event_is_refused() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 3, 500);
    let origin = drop_before_the_first_event(&bench, &session, &call).await?;
    let refusal = refused(&session, &call.again(11)).await?;
    assert_eq!((refusal.code, refusal.cursor()), (40902, Some(origin.as_str())));
    resume_complete(&session, &origin, &call, 1).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn i_a_connection_lost_before_anything_was_read_is_resumed_from_the_refusal() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 3, 500);
    let connection = session.call(&call).await?;
    bench.charged(1).await?;
    cut(&bench, connection).await?;
    let refusal = refused(&session, &call.again(11)).await?;
    resume_complete(&session, &cursor_of(&refusal)?, &call, 1).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn l_a_cancelled_call_that_answers_late_is_collected_not_run_again() -> TestResult {
    needs!(LateAnswer);
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut call = charge_with(10, 1, 10, 100);
    call.arguments["ignore_cancel"] = true.into();
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(2).await?;
    assert_eq!(session.cancel(10).await?, 202);
    assert_eq!(stream.rest().await?, End::LastChunk, "{}", stream.account());
    let messages = check::messages(stream.events())?;
    assert!(messages.iter().all(|message| message.get("id").is_none()), "{messages:?}");
    assert_eq!(session.get(Some(&cursor)).await?.head().await?.status, 405);
    let refusal = refused(&session, &call.again(11)).await?;
    assert_eq!((refusal.code, refusal.reason.as_str()), (40906, "outcome_unknown"));
    let record = answered(&session, &call.again(12)).await?;
    assert!(is_record(&record), "{record}");
    assert_result(&record, 12, 1);
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn l_a_cancelled_call_without_a_result_stays_unknown() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 100, 100);
    let mut stream = session.call(&call).await?;
    stream.messages(2).await?;
    assert_eq!(session.cancel(10).await?, 202);
    stream.clean_rest().await?;
    refused_for(&session, &call.again(11), "outcome_unknown").await?;
    // Other calls are not held by it.
    assert!(session.answer(&get(12)).await?.get("result").is_some());
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn m_a_repeat_over_a_new_path_finds_the_black_one_dead_and_does_not_run() -> TestResult {
    let bench = Bench::start(&["--limit", "liveness_answer_ms=500"]).await?;
    let session = bench.session().await?;
    let forward = Forward::start(bench.address)?;
    let call = charge_with(10, 1, 60, 50);
    let mut stream = session.by_way_of(forward.address()).call(&call).await?;
    let cursor = stream.messages(5).await?;
    forward.go_black().await?;
    // Within the twin window of 5 s, so that only the liveness of the first can tell.
    let refusal = refused(&session, &call.again(11)).await?;
    assert_eq!((refusal.code, refusal.reason.as_str()), (40902, "request_in_flight"));
    resume_complete(&session, &cursor, &call, 6).await?;
    let said_end = stream.available()?.iter().any(|item| matches!(item, Received::End(_)));
    assert!(!said_end, "the black path said something: {}", stream.account());
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn m_an_answer_into_a_black_path_is_collected_by_its_repeat() -> TestResult {
    let bench = Bench::start(&["--limit", "liveness_answer_ms=500"]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 10, 50);
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(5).await?;
    stream.go_black()?;
    let record = answered(&session, &call.again(11)).await?;
    assert!(is_record(&record), "{record}");
    assert_result(&record, 11, 1);
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn o_an_older_client_dropped_before_its_first_message_resumes_from_the_refusal() -> TestResult
{
    for revision in ["2025-06-18", "2025-03-26"] {
        let bench = Bench::start(&[]).await?;
        let session = bench.session_as(Identity::of_revision(revision)).await?;
        assert_eq!(session.initialize_result()["protocolVersion"], json!(revision));
        let call = charge_with(10, 1, 3, 500);
        let connection = session.call(&call).await?;
        bench.charged(1).await?;
        cut(&bench, connection).await?;
        let refusal = refused(&session, &call.again(11)).await?;
        assert_eq!(refusal.code, 40902);
        resume_complete(&session, &cursor_of(&refusal)?, &call, 1).await?;
        assert_eq!(bench.charges()?, 1);
    }
    Ok(())
}

#[tokio::test]
async fn o_an_older_client_gets_no_priming_and_an_id_with_its_first_message() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session_as(Identity::of_revision("2025-06-18")).await?;
    let call = charge_with(10, 1, 3, 20);
    let mut stream = session.call(&call).await?;
    let first = stream.event().await?;
    assert!(!first.is_empty() && first.id.is_some(), "{first:?}");
    stream.clean_rest().await?;
    complete(stream.events(), &owed(&call, 1))?;
    Ok(())
}

#[tokio::test]
async fn a_client_that_drops_and_resumes_five_times_gets_the_whole_stream() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 30, 50);
    let mut stream = session.call(&call).await?;
    for round in 0..5 {
        let cursor = stream.messages(5).await?;
        let numbers = check::progress(stream.events(), &call.progress_token)?;
        assert!(numbers.into_iter().eq(5 * round + 1..=5 * round + 5));
        stream.cut_rst()?;
        pause(Duration::from_millis(20)).await;
        stream = session.get(Some(&cursor)).await?;
        assert_eq!(stream.head().await?.status, 200);
    }
    stream.clean_rest().await?;
    complete(stream.events(), &owed(&call, 26))?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

/// A next request on the connection says that the answer before it was read, but not if it was sent
/// together with the call, before there was an answer.
#[tokio::test]
async fn a_pipelined_request_is_no_evidence_that_the_answer_before_it_was_read() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    for trial in 1..=10 {
        let call = charge_with(trial, trial, 0, 0);
        let mut bytes = session.post_request(&call.message()).to_bytes();
        let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
        bytes.extend_from_slice(&session.post_request(&ping).to_bytes());
        let mut connection = Connection::open(session.address()).await?;
        connection.send(&bytes).await?;
        // Both answers have come, and nothing of them is read.
        connection.unread_contains("\"id\":\"p\"", 64 * 1024).await?;
        connection.cut_rst()?;
        let mut repeat = session.call(&call.again(1000 + trial)).await?;
        repeat.head().await?;
        repeat.clean_rest().await?;
        assert_eq!(bench.charges_of(trial)?, 1, "trial {trial}");
    }
    Ok(())
}
