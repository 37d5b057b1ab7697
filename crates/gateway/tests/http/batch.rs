//! Batches, which only revision 2025-03-26 has.

use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::Identity;
use serde_json::{Value, json};

use crate::support::{Bench, Greeting, request};

fn call(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "echo", "arguments": {"n": id}}})
}

#[tokio::test]
async fn a_batch_is_answered_on_one_stream_and_its_notifications_go_first() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session_as(Identity::of_revision("2025-03-26")).await?;
    let note = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    let mut stream = session.post(&json!([call(1), call(2), note])).await?;
    assert!(stream.head().await?.is_event_stream());
    stream.clean_rest().await?;
    let mut answers: Vec<Value> = stream.events().iter().filter_map(|e| e.message()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    let ids: Vec<_> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [1, 2]);
    assert_eq!(answers[0]["result"]["echo"]["n"], 1);
    let seen = bench.server.seen();
    let place = |method: &str| seen.iter().position(|message| message["method"] == method);
    assert!(place("notifications/roots/list_changed") < place("tools/call"), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_batch_without_requests_is_taken_with_202() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session_as(Identity::of_revision("2025-03-26")).await?;
    let notes = json!([
        {"jsonrpc": "2.0", "method": "notifications/a"},
        {"jsonrpc": "2.0", "method": "notifications/b"},
    ]);
    assert_eq!(session.post(&notes).await?.head().await?.status, 202);
    until("both notifications", WAIT, async || {
        let seen = bench.server.seen();
        let count = seen.iter().filter(|m| m["method"].as_str() > Some("notifications/")).count();
        Ok::<_, Failure>((count >= 3).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_batch_that_is_refused_is_refused_for_each_request_and_none_runs() -> TestResult {
    let set = |limits: &mut rejoin_core::limits::Limits| limits.batch_requests_max = 3;
    let bench = Bench::start_with(Greeting::Agrees, set).await?;
    let newer = bench.session().await?;
    let older = bench.session_as(Identity::of_revision("2025-03-26")).await?;
    let mut opening = request(2, "initialize");
    opening["params"] = json!({});
    for (session, batch) in [
        (&newer, json!([call(1), call(2)])),
        (&older, json!([call(1), opening])),
        (&older, json!([call(1), call(2), call(3), call(4)])),
    ] {
        let answer = bench.ask(&session.post_request(&batch)).await?;
        let body = answer.json();
        assert_eq!(answer.status(), 400, "{batch}");
        assert_eq!((&body[0]["id"], &body[1]["id"]), (&json!(1), &json!(2)), "{batch}");
        assert_eq!(body[1]["error"]["code"], -32600);
    }
    assert_eq!(bench.ask(&older.post_request(&json!([]))).await?.status(), 400);
    let first = older.post_request(&json!([request(1, "initialize")])).without("Mcp-Session-Id");
    let answer = bench.ask(&first).await?;
    assert_eq!(answer.status(), 400);
    let told = answer.json().to_string();
    assert!(told.contains("must not be part of a batch: send it alone"), "{told}");
    assert_eq!(bench.server.runs("echo"), 0);
    Ok(())
}

#[tokio::test]
async fn a_cancel_of_a_call_in_its_own_batch_is_not_lost() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session_as(Identity::of_revision("2025-03-26")).await?;
    let mut hanging = call(1);
    hanging["params"]["name"] = json!("hang");
    let method = "notifications/cancelled";
    let cancel = |id: u64| json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": id}});
    // Whichever comes first in the array, and beside a call that goes on.
    let mut stream = session.post(&json!([cancel(1), hanging, call(2), cancel(7)])).await?;
    stream.clean_rest().await?;
    let answers: Vec<Value> = stream.events().iter().filter_map(|e| e.message()).collect();
    let answered = |id: u64| answers.iter().filter(|answer| answer["id"] == id).count();
    assert_eq!(answered(2), 1, "{answers:?}");
    let seen = bench.server.seen();
    let place = |method: &str| seen.iter().position(|message| message["method"] == method);
    let cancelled = seen.iter().filter(|m| m["method"] == "notifications/cancelled").count();
    assert_eq!(cancelled, 1, "{seen:?}");
    assert!(place("tools/call") < place("notifications/cancelled"), "{seen:?}");
    Ok(())
}
