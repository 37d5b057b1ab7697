//! A batch (revision 2025-03-26) with a repeat inside: each request has its own verdict.

use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Connection, Request};
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};

use crate::living::Place;

const REVISION: &str = "2025-03-26";

fn call(id: u64, tool: &str, n: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": tool, "arguments": {"n": n}}})
}

async fn posted(session: &Session, request: &Request) -> Result<(u16, Vec<Value>), Failure> {
    let mut connection: Connection = session.send(request).await?;
    let head = connection.head().await?;
    if !head.is_event_stream() {
        let body: Value = serde_json::from_slice(&connection.plain_body().await?)?;
        return Ok((head.status, body.as_array().cloned().unwrap_or_default()));
    }
    connection.clean_rest().await?;
    let mut answers: Vec<_> = connection.events().iter().filter_map(|e| e.message()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    Ok((head.status, answers))
}

/// What an answer is about: its request, and the code of its error, or 0.
fn verdicts(answers: &[Value]) -> Vec<(u64, i64)> {
    let code = |answer: &Value| answer["error"]["code"].as_i64().unwrap_or_default();
    let id = |answer: &Value| answer["id"].as_u64().unwrap_or_default();
    answers.iter().map(|answer| (id(answer), code(answer))).collect()
}

#[tokio::test]
async fn a_repeat_in_a_batch_is_refused_and_the_rest_of_it_runs() -> TestResult {
    let place = Place::start().await?;
    let session = Session::open_as(place.address, Identity::of_revision(REVISION)).await?;
    let mut first = session.post(&json!([call(1, "hang", 1), call(2, "quick", 1)])).await?;
    first.messages(1).await?;
    first.cut_rst()?;

    // The same batch again, under other ids: nothing of it runs.
    let again = session.post_request(&json!([call(3, "hang", 1), call(4, "quick", 1)]));
    let refused = until("the refusal of both", WAIT, async || {
        let (status, answers) = posted(&session, &again).await?;
        Ok::<_, Failure>((status == 409).then(|| verdicts(&answers)))
    })
    .await?;
    assert!(refused == [(3, 40_902), (4, 40_901)] || refused == [(3, 40_902), (4, 40_902)]);
    assert_eq!((place.server.runs("hang"), place.server.runs("quick")), (1, 1));

    // Half of it with a call that is new: that one runs, once the lost stream holds it no longer.
    let mixed = session.post_request(&json!([call(5, "hang", 1), call(6, "quick", 2)]));
    let (status, answers) = posted(&session, &mixed).await?;
    assert_eq!((status, verdicts(&answers)), (200, vec![(5, 40_902), (6, 0)]), "{answers:?}");
    assert_eq!((place.server.runs("hang"), place.server.runs("quick")), (1, 2));
    Ok(())
}

#[tokio::test]
async fn two_equal_calls_of_one_batch_are_two_calls() -> TestResult {
    let place = Place::start().await?;
    let session = Session::open_as(place.address, Identity::of_revision(REVISION)).await?;
    let dice = session.post_request(&json!([call(1, "quick", 6), call(2, "quick", 6)]));
    let (status, answers) = posted(&session, &dice).await?;
    assert_eq!((status, verdicts(&answers)), (200, vec![(1, 0), (2, 0)]), "{answers:?}");
    assert_eq!(place.server.runs("quick"), 2);
    Ok(())
}
