//! The gateway's own end.

use rejoin_testkit::deadline::{WAIT, until, within};
use rejoin_testkit::failure::{Failure, TestResult};
use serde_json::json;

use crate::support::{Bench, answer, bare, modern, post, stream};

/// Waits until the gateway drains.
async fn draining(bench: &Bench) -> TestResult {
    let is_draining = async || Ok::<_, Failure>(bench.gateway.is_draining().then_some(()));
    until("the gateway to drain", WAIT, is_draining).await
}

#[tokio::test]
async fn a_running_call_is_waited_for_and_a_new_one_refused() -> TestResult {
    let bench = Bench::start().await?;
    let mut running = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    let gateway = bench.gateway.clone();
    let drain = tokio::spawn(async move { gateway.drain().await });
    draining(&bench).await?;
    let refused = bench.client(&modern(2, "")).await?.answer().await?;
    assert_eq!((refused.status(), &refused.json()["id"]), ("503", &json!(2)));
    assert!(refused.field("retry-after").is_some());
    let refused = bench.client(&bare("GET", "/mcp", "")).await?.answer().await?;
    assert_eq!(refused.status(), "503");
    assert!(!drain.is_finished());
    peer.say(answer("200 OK", "Content-Type: application/json\r\n", "{}")).await?;
    let got = running.answer().await?;
    assert_eq!((got.status(), &*got.body), ("200", &b"{}"[..]));
    within("the drain", WAIT, drain).await??;
    Ok(())
}

#[tokio::test]
async fn streams_that_only_listen_are_not_waited_for_and_end_with_the_last_chunk() -> TestResult {
    let bench = Bench::start().await?;
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let listen = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"_meta":{meta}}}}}"#
    );
    let mut open = Vec::new();
    for request in [bare("GET", "/mcp", ""), post("", &listen)] {
        let mut client = bench.client(&request).await?;
        let mut peer = bench.peer().await?;
        peer.say(stream("data: 1\n\n")).await?;
        client.sees("data: 1").await?;
        open.push((client, peer));
    }
    // The time for calls is 30 s, and longer than this wait.
    within("the drain", WAIT, bench.gateway.drain()).await?;
    for (mut client, mut peer) in open {
        let got = client.answer().await?;
        assert_eq!((got.is_whole, &*got.body), (true, &b"data: 1\n\n"[..]));
        peer.closed().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cut_without_looking_whole() -> TestResult {
    let bench = Bench::limited(|limits| limits.drain_ms = 50).await?;
    let mut half = bench.client(&modern(1, "")).await?;
    let mut half_peer = bench.peer().await?;
    half_peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{ \r\n").await?;
    half.sees("{ ").await?;
    let mut silent = bench.client(&modern(2, "")).await?;
    let mut silent_peer = bench.peer().await?;
    within("the drain", WAIT, bench.gateway.drain()).await?;
    assert!(!half.answer().await?.is_whole);
    let got = silent.answer().await?;
    assert_eq!((got.status(), &got.json()["id"]), ("502", &json!(2)));
    half_peer.closed().await?;
    silent_peer.closed().await
}
