//! Tasks (2025-11-25, experimental): a call that is answered with a task at once, and the requests
//! about that task.

use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::Session;
use serde_json::{Value, json};

use crate::living::{Place, TASK};
use crate::support::request;

const RECORDED: &str = "dev.rejoin/recorded";

/// A call of `tool` that is to become a task.
fn creation(id: u64, tool: &str) -> Value {
    let mut message = Call::new(id, tool, json!({"n": 1})).message();
    message["params"]["task"] = json!({"ttl": 60_000});
    message
}

fn about(id: u64, method: &str) -> Value {
    let mut message = request(id, method);
    message["params"] = json!({"taskId": TASK});
    message
}

async fn answer(session: &Session, message: &Value) -> Result<Value, Failure> {
    Ok(session.post(message).await?.response().await?)
}

/// Posts a message of which the server is to hear, and resets the connection after that.
async fn post_and_cut(place: &Place, session: &Session, message: &Value) -> TestResult {
    let method = message["method"].as_str().unwrap_or_default();
    let before = place.server.count(method);
    let connection = session.post(message).await?;
    until("the server has it", WAIT, async || {
        Ok::<_, Failure>((place.server.count(method) > before).then_some(()))
    })
    .await?;
    connection.cut_rst()?;
    Ok(())
}

#[tokio::test]
async fn a_call_that_becomes_a_task_is_answered_at_once_and_its_result_is_fetched() -> TestResult {
    let place = Place::start().await?;
    let session = Session::open(place.address).await?;
    let created = answer(&session, &creation(1, "quick")).await?;
    assert_eq!(created["result"]["task"]["taskId"], TASK, "{created}");
    assert_eq!(answer(&session, &about(2, "tasks/get")).await?["result"]["status"], "working");
    let mut waiting = session.post(&about(3, "tasks/result")).await?;
    place.server.go_on.notify_one();
    let result = waiting.response().await?;
    assert_eq!(
        (&result["id"], &result["result"]["content"][0]["text"]),
        (&json!(3), &json!("done"))
    );
    assert_eq!(place.server.runs("quick"), 1);
    Ok(())
}

#[tokio::test]
async fn a_repeat_of_a_creation_makes_no_second_task() -> TestResult {
    let place = Place::start().await?;
    let session = Session::open(place.address).await?;
    post_and_cut(&place, &session, &creation(1, "slow")).await?;
    until("the refusal", WAIT, async || {
        let refused = answer(&session, &creation(2, "slow")).await?;
        Ok::<_, Failure>((refused["error"]["code"] == 40_902).then_some(()))
    })
    .await?;
    place.server.go_on.notify_one();
    let collected = until("the record", WAIT, async || {
        let told = answer(&session, &creation(3, "slow")).await?;
        Ok::<_, Failure>(told.get("result").is_some().then_some(told))
    })
    .await?;
    assert_eq!(collected["result"]["task"]["taskId"], TASK, "{collected}");
    assert!(!collected["result"]["_meta"][RECORDED].is_null(), "{collected}");
    assert_eq!(place.server.runs("slow"), 1);
    Ok(())
}

#[tokio::test]
async fn a_result_is_asked_for_again_as_often_as_the_client_likes() -> TestResult {
    let place = Place::start().await?;
    let session = Session::open(place.address).await?;
    answer(&session, &creation(1, "quick")).await?;
    for id in [2, 3] {
        post_and_cut(&place, &session, &about(id, "tasks/result")).await?;
    }
    let mut waiting = session.post(&about(4, "tasks/result")).await?;
    until("the third", WAIT, async || {
        Ok::<_, Failure>((place.server.count("tasks/result") == 3).then_some(()))
    })
    .await?;
    // Those that were given up wait at the server too.
    for _ in 0..3 {
        place.server.go_on.notify_one();
        tokio::task::yield_now().await;
    }
    let result = waiting.response().await?;
    assert_eq!(result["result"]["content"][0]["text"], "done", "{result}");
    Ok(())
}

#[tokio::test]
async fn what_asks_about_a_task_never_waits_for_an_answer_that_is_owed() -> TestResult {
    let place = Place::start().await?;
    let session = Session::open(place.address).await?;
    post_and_cut(&place, &session, &Call::new(1, "hang", json!({})).message()).await?;
    let got = answer(&session, &about(2, "tasks/get")).await?;
    assert_eq!(got["result"]["taskId"], TASK, "{got}");
    for method in ["tasks/list", "tasks/cancel"] {
        assert!(answer(&session, &about(3, method)).await?.get("result").is_some(), "{method}");
    }
    Ok(())
}
