//! The server, without a gateway: it does what the other cases take for granted.

use rejoin_testkit::failure::TestResult;

use crate::direct::Direct;
use crate::server::{Kind, Need};
use crate::support::{assert_result, charge_with, get};

#[tokio::test]
async fn the_server_sends_progress_and_a_result_that_names_its_call() -> TestResult {
    let mut direct = Direct::start().await?;
    let call = charge_with(10, 7, 4, 20);
    let mut messages = direct.exchange(&call).await?;
    let response = messages.pop().unwrap_or_default();
    for (number, message) in (1u64..).zip(&messages) {
        assert_eq!(message["method"], "notifications/progress", "{message}");
        let params = &message["params"];
        assert_eq!(params["progressToken"], call.progress_token.as_str(), "{message}");
        // One server counts in floats.
        assert_eq!(params["progress"].as_f64(), Some(number as f64), "{message}");
    }
    assert_eq!(messages.len(), 4);
    assert_result(&response, 10, 1);
    assert_eq!(Kind::chosen().amount(&response), Some(7));
    assert_eq!(direct.count.runs("charge")?, 1);
    assert_eq!(direct.count.runs_with("charge", "amount", &7.into())?, 1);
    assert!(direct.answer(&get(11)).await?.get("result").is_some());
    assert_eq!(direct.count.runs("get")?, 1);
    Ok(())
}

#[tokio::test]
async fn the_server_runs_the_same_call_again() -> TestResult {
    let mut direct = Direct::start().await?;
    for id in 1..=3 {
        assert_result(&direct.answer(&charge_with(id, 1, 0, 0)).await?, id, id);
    }
    let mut failing = charge_with(10, 1, 0, 0);
    Kind::chosen().fail(&mut failing);
    let response = direct.answer(&failing).await?;
    assert_eq!(response["result"]["isError"], true, "{response}");
    assert_eq!(direct.count.runs("charge")?, 4);
    Ok(())
}

#[tokio::test]
async fn the_server_asks_its_client_during_the_call() -> TestResult {
    let mut direct = Direct::start().await?;
    let messages = direct.exchange(&Kind::chosen().ask(10)).await?;
    let [question, response] = messages.as_slice() else {
        panic!("not a question and a response: {messages:?}");
    };
    assert_eq!(question["method"], "elicitation/create");
    assert!(Kind::chosen().says_yes(response), "{response}");
    assert_eq!(direct.count.runs("ask")?, 1);
    Ok(())
}

#[tokio::test]
async fn the_server_forgot_its_sessions_when_it_died() -> TestResult {
    let mut direct = Direct::start_to_crash().await?;
    assert_result(&direct.answer(&charge_with(1, 1, 0, 0)).await?, 1, 1);
    direct.crash_in(charge_with(2, 2, 20, 100)).await?;
    let unknown = if Kind::chosen().lacks(Need::NotFound).is_some() { 400 } else { 404 };
    let status = direct.status_of(&get(3)).await?;
    assert!(status.is_none_or(|status| status == unknown), "{status:?}");
    assert_eq!(status.is_none(), Kind::chosen() == Kind::Stdio, "{status:?}");
    direct.reopen().await?;
    assert_result(&direct.answer(&charge_with(4, 4, 0, 0)).await?, 4, 1);
    assert_eq!(direct.count.runs("charge")?, 3);
    Ok(())
}
