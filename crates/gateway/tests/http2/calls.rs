//! Calls over HTTP/2: nothing owed is lost, nothing runs twice, and what is not seen.

use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Connection, Request};
use rejoin_testkit::session::Session;
use tokio::task::JoinSet;

use crate::support::{Answer, Bench, Client};
use crate::tool::{call, flood};

/// The reason of a refusal.
async fn refusal(answer: &mut Answer) -> Result<String, Failure> {
    assert_eq!(answer.status, 409);
    assert_eq!(answer.headers["mcp-stream-resumable"], "true");
    let body = answer.json().await?;
    Ok(body["error"]["data"]["reason"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_call_is_answered_as_a_stream_with_ids() -> TestResult {
    let bench = Bench::start().await?;
    bench.tool.open_gate();
    let mut client = Client::open(bench.address).await?;
    let call = call(10, 2, 3);
    let mut answer = client.call(&call).await?;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    for of_one_hop in ["connection", "transfer-encoding", "keep-alive"] {
        assert!(!answer.headers.contains_key(of_one_hop), "{:?}", answer.headers);
    }
    let response = answer.complete(&call, 1, 5).await?;
    assert!(response["result"]["content"][0]["text"].is_string(), "{response}");
    assert_eq!(bench.tool.runs(10), 1);
    Ok(())
}

#[tokio::test]
async fn a_call_that_is_cut_is_refused_when_repeated_and_resumed_by_get_while_it_runs_and_after()
-> TestResult {
    let bench = Bench::start().await?;
    let client = Client::open(bench.address).await?;
    let call = call(10, 3, 4);
    let mut cut = client.again(bench.address).await?;
    let cursor = cut.call(&call).await?.messages(2).await?;
    drop(cut);
    bench.owed(1.0).await?;

    let mut client = client.again(bench.address).await?;
    for repeat in [call.clone(), call.again(11)] {
        let mut answer = client.call(&repeat).await?;
        assert_eq!(refusal(&mut answer).await?, "request_in_flight");
        assert!(answer.headers.contains_key("last-event-id"));
    }
    let mut resumed = client.get(Some(&cursor)).await?;
    resumed.messages(1).await?;
    bench.tool.open_gate();
    resumed.complete(&call, 3, 7).await?;
    client.get(Some(&cursor)).await?.complete(&call, 3, 7).await?;
    assert_eq!(bench.tool.runs(10), 1);
    Ok(())
}

/// A reset of one stream says that its client has lost it, not that nobody wants the answer.
#[tokio::test]
async fn a_reset_of_one_stream_is_a_loss_and_leaves_the_others_alone() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = Client::open(bench.address).await?;
    let (one, other) = (call(10, 2, 2), call(20, 2, 2));
    let mut left = client.call(&one).await?;
    let mut kept = client.call(&other).await?;
    let cursor = left.messages(1).await?;
    kept.messages(2).await?;
    left.reset();
    bench.owed(1.0).await?;
    let repeated = &mut client.call(&one.again(11)).await?;
    assert_eq!(refusal(repeated).await?, "request_in_flight");
    bench.tool.open_gate();
    kept.complete(&other, 1, 4).await?;
    client.get(Some(&cursor)).await?.complete(&one, 2, 4).await?;
    assert_eq!((bench.tool.runs(10), bench.tool.runs(20)), (1, 1));
    assert_eq!(bench.tool.count("notifications/cancelled"), 0);
    Ok(())
}

#[tokio::test]
async fn many_calls_of_one_connection_are_answered_side_by_side() -> TestResult {
    const CALLS: u64 = 100;
    let bench = Bench::start().await?;
    let mut client = Client::open(bench.address).await?;
    let mut running = JoinSet::new();
    for id in 1..=CALLS {
        let call = call(id, 1, 2);
        let mut answer = client.call(&call).await?;
        running.spawn(async move { answer.complete(&call, 1, 3).await });
    }
    bench.metric("rejoin_connections", 1.0).await?;
    bench.tool.open_gate();
    while let Some(complete) = running.join_next().await {
        complete??;
    }
    let runs: Vec<usize> = (1..=CALLS).map(|id| bench.tool.runs(id)).collect();
    assert_eq!(runs, [1; CALLS as usize]);
    Ok(())
}

/// Nothing is seen of the delivery: not the client's kernel, not a reset after the end.
#[tokio::test]
async fn an_answer_moves_by_its_clean_end_and_time_or_by_the_clients_own_word() -> TestResult {
    let bench = Bench::start_with(true, |limits| limits.unobserved_presume_ms = 60_000).await?;
    bench.tool.open_gate();
    let mut client = Client::open(bench.address).await?;
    let mut answer = client.call(&call(10, 1, 1)).await?;
    let cursor = answer.messages(3).await?;
    answer.rest().await?;
    client.ping().await?;
    bench.metric("rejoin_streams{state=\"ending\"}", 1.0).await?;
    let initialized = r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#;
    let said = client.request("POST").header("mcp-stream-ack", cursor).body(())?;
    assert_eq!(client.send(said, Some(initialized.to_owned())).await?.status, 202);
    bench.metric("rejoin_streams{state=\"ending\"}", 0.0).await?;

    let quick = Bench::start_with(true, |limits| limits.unobserved_presume_ms = 100).await?;
    quick.tool.open_gate();
    let mut client = Client::open(quick.address).await?;
    client.call(&call(10, 1, 1)).await?.rest().await?;
    quick.metric("rejoin_streams{state=\"ending\"}", 0.0).await?;
    for state in ["doubtful", "owed"] {
        quick.metric(&format!("rejoin_streams{{state=\"{state}\"}}"), 0.0).await?;
    }
    Ok(())
}

/// The same port, the same session: what is seen is a matter of each connection.
#[tokio::test]
async fn http_1_1_on_the_same_port_keeps_all_its_evidence() -> TestResult {
    let bench = Bench::start_with(true, |limits| limits.unobserved_presume_ms = 60_000).await?;
    let session = Session::open(bench.address).await?;
    let answer = session.answer(&flood(10, 1, 0)).await?;
    assert!(answer["result"].is_object(), "{answer}");
    // Presumed at once, although without a socket it would take a minute.
    bench.metric("rejoin_streams{state=\"ending\"}", 0.0).await?;

    let unread = session.call(&flood(20, 1, 0)).await?;
    unread.unread_contains("did ", 64 * 1024).await?;
    unread.cut_rst()?;
    bench.metric("rejoin_streams{state=\"doubtful\"}", 1.0).await?;
    let record = session.answer(&flood(20, 1, 0).again(21)).await?;
    assert!(record["result"]["_meta"]["dev.rejoin/recorded"].is_number(), "{record}");
    assert_eq!((bench.tool.runs(10), bench.tool.runs(20)), (1, 1));
    Ok(())
}

#[tokio::test]
async fn a_stream_that_http_2_lost_is_resumed_over_http_1_1_and_the_other_way_round() -> TestResult
{
    let bench = Bench::start().await?;
    let mut client = Client::open(bench.address).await?;
    let request = |cursor: &str| {
        Request::new("GET", "/mcp")
            .header("Host", &bench.address.to_string())
            .header("Accept", "text/event-stream")
            .header("Mcp-Session-Id", client.session())
            .header("Last-Event-ID", cursor)
    };
    let call = call(10, 2, 3);
    let mut left = client.again(bench.address).await?;
    let cursor = left.call(&call).await?.messages(1).await?;
    drop(left);
    bench.owed(1.0).await?;
    let mut connection = Connection::open(bench.address).await?;
    connection.request(&request(&cursor)).await?;
    assert_eq!(connection.head().await?.status, 200);
    let cursor = connection.messages(1).await?;
    connection.cut_rst()?;
    bench.owed(1.0).await?;
    let mut resumed = client.get(Some(&cursor)).await?;
    bench.tool.open_gate();
    resumed.complete(&call, 3, 5).await?;
    assert_eq!(bench.tool.runs(10), 1);
    Ok(())
}
