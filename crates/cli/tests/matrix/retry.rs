//! A, A2, B, B2: a client posts a call again whose stream it lost.

use rejoin_testkit::call::Call;
use rejoin_testkit::failure::TestResult;
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::Identity;
use serde_json::Value;

use crate::support::{
    Bench, charge, charge_with, cursor_of, cut, drop_after, end_unseen, refused_for,
    resume_complete, short_charge,
};

/// The wire shape of a refusal (design section 5).
fn assert_refusal(refusal: &Refusal, call: &Call, code: i64) {
    let head = &refusal.head;
    assert_eq!(head.media_type(), "application/json", "{refusal:?}");
    assert_eq!(head.header("cache-control"), Some("no-store"), "{refusal:?}");
    assert_eq!(head.header("mcp-stream-resumable"), Some("true"), "{refusal:?}");
    assert!(head.header("retry-after").is_some(), "{refusal:?}");
    assert_eq!(refusal.id, call.id, "{refusal:?}");
    assert_eq!(refusal.code, code, "{refusal:?}");
    assert!(refusal.message.starts_with("Not run."), "{refusal:?}");
    assert_eq!(refusal.data["lastEventId"].as_str(), head.header("last-event-id"));
    assert_eq!(refusal.data["resume"]["method"], "GET", "{refusal:?}");
    assert!(refusal.data["sendAgain"].is_boolean(), "{refusal:?}");
    for member in ["delivered", "produced", "inFlight", "originalRequestId", "doc"] {
        assert!(!refusal.data[member].is_null(), "{member} is missing in {refusal:?}");
    }
}

#[tokio::test]
async fn a_retry_with_the_same_id_while_the_call_runs_is_refused_and_runs_once() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let refusal = refused_for(&session, &call, "request_in_flight").await?;
    assert_eq!(refusal.head.status, 409);
    assert_refusal(&refusal, &call, 40902);
    assert_eq!(refusal.data["inFlight"], serde_json::json!([10]));
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_the_cursor_of_the_refusal_gives_the_whole_stream() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    drop_after(&bench, &session, &call, 5).await?;
    let refusal = refused_for(&session, &call, "request_in_flight").await?;
    resume_complete(&session, &cursor_of(&refusal)?, &call, 1).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_the_cursor_of_the_refusal_is_the_last_one_the_client_confirmed() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 40, 50);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let mut resumed = session.get(Some(&cursor)).await?;
    resumed.messages(1).await?;
    cut(&bench, resumed).await?;
    let refusal = refused_for(&session, &call, "request_in_flight").await?;
    assert_eq!(refusal.cursor(), Some(cursor.as_str()));
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_clients_that_die_of_a_409_get_the_same_refusal_with_200() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 40, 50);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let strict = refused_for(&session, &call, "request_in_flight").await?;
    let user_agent = Some("python-httpx/0.28.1".to_owned());
    let python = session.presented_as(Identity { user_agent, ..Identity::default() });
    let refusal = refused_for(&python, &call, "request_in_flight").await?;
    assert_eq!((strict.head.status, refusal.head.status), (409, 200));
    assert_refusal(&refusal, &call, 40902);
    assert_eq!((&refusal.message, refusal.cursor()), (&strict.message, strict.cursor()));
    let members = |refusal: &Refusal| refusal.data.as_object().map(|data| data.len());
    assert_eq!(members(&refusal), members(&strict));
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_reject_status_409_and_200_are_kept_for_every_client() -> TestResult {
    for (setting, status) in [("409", 409), ("200", 200)] {
        let bench = Bench::start(&["--reject-status", setting]).await?;
        let user_agent = Some("python-httpx/0.28.1".to_owned());
        let session = bench.session_as(Identity { user_agent, ..Identity::default() }).await?;
        let call = charge(10, 1);
        drop_after(&bench, &session, &call, 5).await?;
        let refusal = refused_for(&session, &call, "request_in_flight").await?;
        assert_eq!(refusal.head.status, status);
        assert_eq!(bench.charges()?, 1);
    }
    Ok(())
}

#[tokio::test]
async fn a2_a_retry_with_the_same_id_after_the_end_is_refused_while_the_answer_is_owed()
-> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = short_charge(10, 1);
    drop_after(&bench, &session, &call, 5).await?;
    let refusal = refused_for(&session, &call, "stream_not_drained").await?;
    assert_eq!(refusal.head.status, 409);
    assert_refusal(&refusal, &call, 40901);
    assert_eq!(refusal.data["inFlight"], serde_json::json!([]));
    resume_complete(&session, &cursor_of(&refusal)?, &call, 1).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn b_a_retry_with_a_new_id_while_the_call_runs_is_refused_and_runs_once() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let retry = call.again(11);
    let refusal = refused_for(&session, &retry, "request_in_flight").await?;
    assert_eq!(refusal.head.status, 409);
    assert_refusal(&refusal, &retry, 40902);
    assert_eq!(refusal.data["originalRequestId"], 10);
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn b2_a_retry_with_a_new_id_after_the_end_is_refused_while_the_answer_is_owed() -> TestResult
{
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = short_charge(10, 1);
    let cursor = end_unseen(&bench, &session, &call, 5).await?;
    let retry = call.again(11);
    let refusal = refused_for(&session, &retry, "stream_not_drained").await?;
    assert_refusal(&refusal, &retry, 40901);
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

/// JSON with the members of every object in the opposite order.
fn reversed(value: &Value) -> String {
    let Value::Object(members) = value else {
        return value.to_string();
    };
    let members: Vec<_> =
        members.iter().rev().map(|(name, value)| format!("{name:?}:{}", reversed(value))).collect();
    format!("{{{}}}", members.join(","))
}

#[tokio::test]
async fn b_members_in_another_order_are_the_same_call() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let text = reversed(&call.again(11).message());
    assert!(!text.contains(&call.arguments.to_string()), "{text} has the same order");
    let request = session.post_request(&Value::Null).body(text);
    let refusal = Refusal::read(&mut session.send(&request).await?).await?;
    assert_eq!((refusal.code, &refusal.id), (40902, &11.into()));
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}
