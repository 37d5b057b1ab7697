//! P, twins, batches: several calls at once.

use rejoin_testkit::check::{Owed, complete, messages};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::Connection;
use rejoin_testkit::session::Identity;
use serde_json::{Value, json};

use crate::server::Kind;
use crate::support::{
    Bench, assert_result, charge, charge_with, drop_after, get, owed, resume_complete,
};

#[tokio::test]
async fn p_one_json_rpc_id_for_eight_calls_and_a_cancel_of_it_cancels_none() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut running = Vec::new();
    for amount in 1..=8 {
        let call = charge_with(1, amount, 10, 50).with_progress_token(&format!("p{amount}"));
        running.push((session.call(&call).await?, call));
    }
    bench.charged(8).await?;
    assert_eq!(session.cancel(1).await?, 202);
    for (connection, call) in &mut running {
        connection.clean_rest().await?;
        let response = complete(connection.events(), &owed(call, 1))?;
        assert_eq!(Kind::chosen().amount(&response), call.arguments["amount"].as_u64());
    }
    assert_eq!(bench.charges()?, 8);
    Ok(())
}

#[tokio::test]
async fn p_one_json_rpc_id_in_sequence_is_never_a_repeat() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    for amount in 1..=8 {
        let response = session.answer(&charge_with(1, amount, 0, 0)).await?;
        assert_result(&response, 1, amount);
    }
    assert_eq!(bench.charges()?, 8);
    Ok(())
}

#[tokio::test]
async fn three_identical_parallel_calls_on_living_connections_run_three_times() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let first = charge_with(1, 1, 20, 50);
    let calls = [first.clone(), first.again(2), first.again(3)];
    let mut running = Vec::new();
    for call in &calls {
        running.push(session.call(call).await?);
    }
    let mut executions = Vec::new();
    for (connection, call) in running.iter_mut().zip(&calls) {
        connection.clean_rest().await?;
        let response = complete(connection.events(), &owed(call, 1))?;
        executions.push(Kind::chosen().execution(&response));
    }
    executions.sort_unstable();
    let numbered = Kind::chosen() != Kind::Everything;
    assert_eq!(executions, [1, 2, 3].map(|number| numbered.then_some(number)));
    assert_eq!(bench.charges()?, 3);
    Ok(())
}

#[tokio::test]
async fn the_same_call_again_after_its_answer_was_read_runs_again() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    for id in 1..=3 {
        let mut connection = session.call(&charge_with(id, 1, 2, 10)).await?;
        connection.clean_rest().await?;
        let call = charge_with(id, 1, 2, 10);
        assert_result(&complete(connection.events(), &owed(&call, 1))?, id, id);
        connection.cut_fin().await?;
    }
    assert_eq!(bench.charges()?, 3);
    Ok(())
}

/// The messages of a batch's answer, whatever form it has.
async fn batch_messages(connection: &mut Connection) -> Result<Vec<Value>, Failure> {
    if connection.head().await?.is_event_stream() {
        connection.clean_rest().await?;
        return Ok(messages(connection.events())?);
    }
    let body: Value = serde_json::from_slice(&connection.plain_body().await?)?;
    match body {
        Value::Array(messages) => Ok(messages),
        one => Ok(vec![one]),
    }
}

fn with_id(messages: &[Value], id: u64) -> Result<&Value, Failure> {
    let found = messages.iter().find(|message| message["id"] == id);
    found.ok_or_else(|| Failure::new(format!("nothing for id {id} in {messages:?}")))
}

#[tokio::test]
async fn a_batch_with_a_repeat_refuses_the_repeat_alone() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session_as(Identity::of_revision("2025-03-26")).await?;
    let call = charge_with(10, 1, 40, 50);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let ping = json!({"jsonrpc": "2.0", "id": 21, "method": "ping"});
    let mut batch = session.post(&json!([call.again(20).message(), ping])).await?;
    assert_eq!(batch.head().await?.status, 200);
    let messages = batch_messages(&mut batch).await?;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(with_id(&messages, 20)?["error"]["code"], 40902);
    assert!(with_id(&messages, 21)?.get("result").is_some());
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_batch_of_repeats_only_is_refused_with_409() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session_as(Identity::of_revision("2025-03-26")).await?;
    let call = charge_with(10, 1, 40, 50);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let repeats = json!([call.again(20).message(), call.again(21).message()]);
    let mut batch = session.post(&repeats).await?;
    assert_eq!(batch.head().await?.status, 409);
    let messages = batch_messages(&mut batch).await?;
    for id in [20, 21] {
        assert_eq!(with_id(&messages, id)?["error"]["code"], 40902);
    }
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_batch_of_different_calls_answers_all_on_one_resumable_stream() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session_as(Identity::of_revision("2025-03-26")).await?;
    let calls = [charge_with(20, 1, 10, 50), charge_with(21, 2, 20, 50)];
    let mut batch = session.post(&json!([calls[0].message(), calls[1].message()])).await?;
    let cursor = batch.messages(5).await?;
    let read = batch.events().to_vec();
    batch.cut_rst()?;
    let mut tail = session.get(Some(&cursor)).await?;
    tail.clean_rest().await?;
    let events: Vec<_> = read.iter().chain(tail.events()).cloned().collect();
    for call in &calls {
        let Owed { progress_token, .. } = owed(call, 1);
        let own: Vec<_> = events
            .iter()
            .filter(|event| {
                event.message().is_some_and(|message| {
                    message["id"] == call.id || message["params"]["progressToken"] == progress_token
                })
            })
            .cloned()
            .collect();
        complete(&own, &owed(call, 1))?;
    }
    assert_eq!((bench.charges_of(1)?, bench.charges_of(2)?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn one_lost_call_and_one_living_call_do_not_mix() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let (lost, living) = (charge(10, 1), charge(11, 2));
    let mut connection = session.call(&living).await?;
    let cursor = drop_after(&bench, &session, &lost, 5).await?;
    connection.clean_rest().await?;
    complete(connection.events(), &owed(&living, 1))?;
    resume_complete(&session, &cursor, &lost, 6).await?;
    assert!(session.answer(&get(12)).await?.get("result").is_some());
    assert_eq!(bench.charges()?, 2);
    Ok(())
}
