//! How connections end: by the gateway's end, by GOAWAY, in a path that died.

use rejoin_testkit::deadline::{WAIT, until, within};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::forward::Forward;
use serde_json::json;
use tokio::net::TcpStream;

use crate::frames::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Raw, frame, headers};
use crate::support::{Bench, Client};
use crate::tool::call;

#[tokio::test]
async fn at_the_end_running_calls_finish_and_the_connection_is_told_to_go_away() -> TestResult {
    let mut bench = Bench::start().await?;
    let mut client = Client::open(bench.address).await?;
    let call = call(10, 2, 3);
    let mut running = client.call(&call).await?;
    let mut standalone = client.get(None).await?;
    running.messages(2).await?;
    let gateway = bench.gateway.clone();
    let draining = tokio::spawn(async move { gateway.drain().await });
    until::<_, Failure>("the drain", WAIT, async || Ok(bench.gateway.is_draining().then_some(())))
        .await?;
    let late = client.call(&crate::tool::call(20, 0, 0)).await?;
    assert_eq!(late.status, 503);
    bench.tool.open_gate();
    running.complete(&call, 1, 5).await?;
    standalone.rest().await?;
    let retries = standalone.events.iter().filter(|event| event.retry.is_some());
    assert!(retries.count() >= 1, "{:?}", standalone.events);
    within("the end of the drain", WAIT, draining).await??;
    // Not cut: GOAWAY without an error.
    within("the end of the connection", WAIT, &mut client.connection).await???;
    within("the end of the listener", WAIT, &mut bench.serving).await??;
    assert!(TcpStream::connect(bench.address).await.is_err());
    assert_eq!(bench.tool.runs(10), 1);
    Ok(())
}

#[tokio::test]
async fn a_client_that_goes_away_gets_the_streams_it_has() -> TestResult {
    let bench = Bench::start().await?;
    let client = Client::open(bench.address).await?;
    let mut raw = Raw::open(bench.address).await?;
    let post = headers(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/mcp"),
        (":authority", "localhost"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", client.session()),
    ]);
    let body = call(10, 1, 1).message().to_string();
    raw.send(&frame(HEADERS, END_HEADERS, 1, &post)).await?;
    raw.send(&frame(DATA, END_STREAM, 1, body.as_bytes())).await?;
    raw.until("an event", |frame| contains(&frame.payload, "notifications/progress")).await?;
    raw.send(&frame(GOAWAY, 0, 0, &[0; 8])).await?;
    bench.tool.open_gate();
    raw.until("the answer", |frame| contains(&frame.payload, "did ")).await?;
    bench.owed(0.0).await?;
    assert_eq!(bench.tool.runs(10), 1);
    Ok(())
}

fn contains(bytes: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(text)
}

#[tokio::test]
async fn a_path_that_died_is_noticed_by_its_silence_and_its_calls_are_resumed() -> TestResult {
    let bench = Bench::start_with(true, |limits| {
        (limits.http2.ping_ms, limits.http2.ping_answer_ms) = (200, 200);
    })
    .await?;
    let mut client = Client::open(bench.address).await?;
    let path = Forward::start(bench.address)?;
    let call = call(10, 2, 2);
    let mut far = client.again(path.address()).await?;
    let mut answer = far.call(&call).await?;
    let cursor = answer.messages(1).await?;
    path.go_black().await?;
    bench.owed(1.0).await?;
    let mut resumed = client.get(Some(&cursor)).await?;
    bench.tool.open_gate();
    resumed.complete(&call, 2, 4).await?;
    assert_eq!(bench.tool.runs(10), 1);
    Ok(())
}

/// Ten times as long as its silence may be.
#[tokio::test]
async fn a_connection_lives_as_long_as_it_answers_and_has_a_stream_and_then_it_is_ended()
-> TestResult {
    let bench = Bench::start_with(true, |limits| {
        (limits.http2.ping_ms, limits.http2.ping_answer_ms) = (50, 1_000);
        (limits.request_head_max_ms, limits.keep_alive_ms) = (200, 100);
    })
    .await?;
    let mut client = Client::open(bench.address).await?;
    let mut standalone = client.get(None).await?;
    let mut comments = 0;
    while comments < 20 {
        let data = standalone.data().await?.ok_or_else(|| Failure::new("it ended"))?;
        comments += usize::from(contains(&data, "keep-alive"));
    }
    let delete = client.request("DELETE").body(())?;
    assert_eq!(client.send(delete, None).await?.status, 204);
    while standalone.data().await?.is_some() {}
    within("the end of an idle connection", WAIT, &mut client.connection).await???;
    bench.metric("rejoin_connections", 0.0).await
}

#[tokio::test]
async fn whom_a_request_is_for_is_checked_by_its_authority() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = Client::connect(bench.address).await?;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let to = |authority: &str| {
        let uri = format!("http://{authority}/mcp");
        http::Request::post(uri).header("content-type", "application/json").body(())
    };
    assert_eq!(client.send(to("evil.example")?, Some(ping.clone())).await?.status, 403);
    let mut both = to("localhost")?;
    both.headers_mut().insert("host", "evil.example".parse()?);
    assert_eq!(client.send(both, Some(ping)).await?.status, 403);
    client.initialize().await
}
