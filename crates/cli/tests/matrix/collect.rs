//! A2, B2 after the grace: a repeat gets the record, or what `on_repeat` says.

use rejoin_testkit::check;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::TestResult;
use rejoin_testkit::raw::WireError;

use crate::server::Kind;
use crate::support::{
    Bench, answered, assert_result, charge, charge_with, cut, drop_after, end_unseen, get,
    is_record, refused_for, resume_complete, short_charge,
};

#[tokio::test]
async fn a2_after_the_grace_a_retry_with_the_same_id_gets_the_record() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = short_charge(10, 1);
    end_unseen(&bench, &session, &call, 5).await?;
    let record = answered(&session, &call).await?;
    assert!(is_record(&record), "{record}");
    assert_result(&record, 10, 1);
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn b2_after_the_grace_a_retry_with_a_new_id_gets_the_record_under_its_own_id() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = short_charge(10, 1);
    let cursor = end_unseen(&bench, &session, &call, 5).await?;
    let record = answered(&session, &call.again(11)).await?;
    assert!(is_record(&record), "{record}");
    assert_result(&record, 11, 1);
    // The old stream stays readable, under the old id.
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_record_that_was_lost_too_is_collected_again() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = short_charge(10, 1);
    end_unseen(&bench, &session, &call, 5).await?;
    let lost = until("a record on its way", WAIT, async || {
        let mut connection = session.call(&call.again(11)).await?;
        let status = connection.head().await?.status;
        Ok::<_, WireError>((status == 200).then_some(connection))
    });
    cut(&bench, lost.await?).await?;
    let record = answered(&session, &call.again(12)).await?;
    assert_result(&record, 12, 1);
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn an_abandoned_stream_holds_other_calls_no_more() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 200, 50);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    // Held until the grace is over, which is before hold_max.
    let response = session.answer(&get(11)).await?;
    assert!(response.get("result").is_some(), "{response}");
    assert_eq!(bench.count.runs("get")?, 1);
    // Its repeats remain repeats, and it can be resumed.
    refused_for(&session, &call, "request_in_flight").await?;
    let mut resumed = session.get(Some(&cursor)).await?;
    resumed.messages(10).await?;
    assert_eq!(check::progress(resumed.events(), &call.progress_token)?[0], 6);
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn on_repeat_reject_keeps_the_record_back() -> TestResult {
    let bench = Bench::start(&["--on-repeat", "reject"]).await?;
    let session = bench.session().await?;
    let call = short_charge(10, 1);
    let cursor = end_unseen(&bench, &session, &call, 5).await?;
    let refusal = refused_for(&session, &call.again(11), "not_idempotent").await?;
    assert_eq!((refusal.code, &refusal.id), (40903, &11.into()));
    assert!(refusal.message.starts_with("Not run."), "{refusal:?}");
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn on_repeat_join_waits_for_the_first_call_and_answers_with_its_record() -> TestResult {
    let bench = Bench::start(&["--on-repeat", "join"]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    drop_after(&bench, &session, &call, 5).await?;
    let mut joined = session.call(&call.again(11)).await?;
    assert!(joined.head().await?.is_event_stream());
    joined.clean_rest().await?;
    let messages = check::messages(joined.events())?;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_result(&messages[0], 11, 1);
    assert!(is_record(&messages[0]), "{messages:?}");
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_repeat_of_an_idempotent_call_supersedes_it() -> TestResult {
    let bench = Bench::start(&["--idempotent-tool", Kind::chosen().charge_tool()]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 40, 50);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let retry = call.again(11);
    let mut second = session.call(&retry).await?;
    second.messages(1).await?;
    assert_eq!(bench.charges()?, 2);
    // The first stream can only say that its call was replaced.
    let mut first = session.get(Some(&cursor)).await?;
    let response = first.response().await?;
    assert_eq!(response["id"], 10);
    assert!(response.get("error").is_some(), "{response}");
    second.clean_rest().await?;
    assert_eq!(check::progress(second.events(), &retry.progress_token)?.len(), 40);
    assert_eq!(bench.charges()?, 2);
    Ok(())
}
