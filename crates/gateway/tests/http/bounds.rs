//! What a client can make the gateway keep: bodies, names, sessions, server processes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Connection, Request};
use serde_json::{Value, json};

use crate::support::{Bench, Greeting, initialize, request};

const BODY: usize = 100_000;

/// The bytes of a POST with a large body.
fn large(bench: &Bench, session: &str, id: u64) -> Request {
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": "echo", "arguments": {"text": "x".repeat(BODY)},
    }});
    bench.post(call.to_string()).header("Mcp-Session-Id", session)
}

#[tokio::test]
async fn large_bodies_beyond_the_bound_get_503_and_small_ones_still_pass() -> TestResult {
    let bench = Bench::start_with(Greeting::Agrees, |limits| {
        limits.connection_buffer_bytes_max = 16 * 1024;
        limits.request_bodies_bytes_max = 2 * BODY;
    })
    .await?;
    let session = bench.session().await?;
    let unfinished = large(&bench, session.id(), 1).to_bytes();
    let send_slowly = async || {
        let mut connection = Connection::open(bench.address).await?;
        connection.send(&unfinished[..unfinished.len() - 1]).await?;
        Ok::<_, Failure>(connection)
    };
    let mut slow = [send_slowly().await?, send_slowly().await?];
    // All but the last byte of both is read at some time; from then on a third has no room.
    let refused = until("the bound", WAIT, async || {
        let answer = bench.ask(&large(&bench, session.id(), 2)).await?;
        if answer.status() == 503 {
            return Ok::<_, Failure>(Some(answer));
        }
        for connection in &mut slow {
            // The third was read before it, and took its room.
            if connection.readable(Duration::ZERO).await {
                *connection = send_slowly().await?;
            }
        }
        Ok(None)
    })
    .await?;
    assert_eq!(refused.head.header("retry-after"), Some("1"));
    assert_eq!(refused.head.header("connection"), Some("close"));
    assert_eq!(refused.json()["error"]["data"]["sendAgain"], true);
    let small = session.post(&request(3, "ping")).await?.response().await?;
    assert_eq!(small["id"], 3);
    for connection in slow {
        connection.cut_rst()?;
    }
    until("the room to be free again", WAIT, async || {
        let answer = bench.ask(&large(&bench, session.id(), 4)).await?;
        Ok::<_, Failure>((answer.status() == 200).then_some(()))
    })
    .await
}

#[tokio::test]
async fn names_that_are_kept_with_a_call_are_bounded() -> TestResult {
    let bench = Bench::start_with(Greeting::Agrees, |limits| limits.name_bytes_max = 100).await?;
    let session = bench.session().await?;
    let long = "x".repeat(101);
    let call = |id: &Value, method: &str, tool: &str, token: &str| {
        json!({"jsonrpc": "2.0", "id": id, "method": method,
            "params": {"name": tool, "arguments": {}, "_meta": {"progressToken": token}}})
    };
    for (part, message) in [
        ("id", call(&json!(long), "tools/call", "echo", "t")),
        ("method", call(&json!(1), &long, "echo", "t")),
        ("tool name", call(&json!(2), "tools/call", &long, "t")),
        ("progress token", call(&json!(3), "tools/call", "echo", &long)),
    ] {
        let answer = bench.ask(&session.post_request(&message)).await?;
        assert_eq!((answer.status(), answer.error().1), (400, message["id"].clone()), "{part}");
        let text = answer.json()["error"]["message"].to_string();
        assert!(
            text.contains(&format!("The {part} of a request may have at most 100 bytes")),
            "{text}"
        );
    }
    assert_eq!(bench.server.runs("echo"), 0);
    let whole = call(&json!("y".repeat(98)), "tools/call", "echo", &"t".repeat(98));
    assert_eq!(bench.ask(&session.post_request(&whole)).await?.status(), 200);
    Ok(())
}

#[tokio::test]
async fn messages_that_are_kept_with_a_session_are_bounded() -> TestResult {
    let set = |limits: &mut rejoin_core::limits::Limits| limits.kept_message_bytes_max = 1_000;
    let bench = Bench::start_with(Greeting::Agrees, set).await?;
    let filler = "x".repeat(1_000);
    let body = initialize(&json!(1), "2025-11-25").replace("\"test\"", &format!("\"{filler}\""));
    assert_eq!(bench.ask(&bench.post(body)).await?.status(), 413);
    assert_eq!(bench.server.opened.load(Ordering::SeqCst), 0);
    let session = bench.session().await?;
    for (method, id) in [
        ("notifications/initialized", None),
        ("logging/setLevel", Some(2)),
        ("resources/subscribe", Some(3)),
    ] {
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": {"x": filler}});
        if let Some(id) = id {
            message["id"] = json!(id);
        }
        assert_eq!(bench.ask(&session.post_request(&message)).await?.status(), 413, "{method}");
    }
    // What is passed on and forgotten may be as long as any body.
    assert_eq!(session.notify("notifications/x", json!({"x": filler})).await?, 202);
    Ok(())
}

#[tokio::test]
async fn a_session_whose_client_never_comes_back_ends_long_before_an_idle_one() -> TestResult {
    let bench = Bench::start_with(Greeting::Agrees, |limits| {
        limits.session_unused_ms = 1_500;
        limits.sessions_max = 2;
    })
    .await?;
    let used = bench.session().await?;
    let post = bench.post(initialize(&json!(1), "2025-11-25"));
    let opened = bench.ask(&post).await?;
    let id = opened.head.header("mcp-session-id").unwrap().to_owned();
    assert_eq!(bench.ask(&post).await?.status(), 503);
    until("the end of the unused session", WAIT, async || {
        Ok::<_, Failure>((bench.server.ended.load(Ordering::SeqCst) == 1).then_some(()))
    })
    .await?;
    let late = bench.post(request(2, "ping").to_string()).header("Mcp-Session-Id", &id);
    assert_eq!(bench.ask(&late).await?.status(), 404);
    assert_eq!(used.post(&request(3, "ping")).await?.response().await?["id"], 3);
    assert_eq!(bench.ask(&post).await?.status(), 200, "its place is free again");
    Ok(())
}

#[tokio::test]
async fn a_server_that_dies_at_once_again_and_again_is_started_ever_more_slowly() -> TestResult {
    let bench = Bench::start_with(Greeting::Dies, |_| {}).await?;
    let session = bench.session().await?;
    let began = Instant::now();
    let mut id = 0;
    let opened = || bench.server.opened.load(Ordering::SeqCst);
    while began.elapsed() < Duration::from_millis(1_600) || opened() < 3 {
        id += 1;
        let call = Call::new(id, "echo", json!({ "n": id }));
        let answer = session.post(&call.message()).await?.response().await?;
        assert!(answer.get("error").is_some(), "{answer}");
    }
    // At 0, 0, 100, 300, 700, 1,500 ms and so on, besides the first; on a busy machine later.
    let doublings = (began.elapsed().as_millis() / 100 + 1).ilog2();
    let (opened, opened_max) = (opened(), doublings as usize + 4);
    assert!(opened <= opened_max, "{opened} starts for {id} calls in {:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_request_that_was_held_counts_once() -> TestResult {
    let bench = Bench::start_with(Greeting::Agrees, |limits| {
        (limits.retry_ms, limits.owed_grace_ms) = (100, Some(2_500));
    })
    .await?;
    let session = bench.session().await?;
    let mut lost = session.call(&Call::new(1, "hang", json!({}))).await?;
    lost.messages(1).await?;
    lost.cut_rst()?;
    until("the loss", WAIT, async || {
        let owed = bench.metric("rejoin_streams{state=\"owed\"}").await?;
        Ok::<_, Failure>((owed == Some(1.0)).then_some(()))
    })
    .await?;
    session.answer(&Call::new(2, "echo", json!({"n": 2}))).await?;
    assert_eq!(bench.metric("rejoin_held_seconds_count").await?, Some(1.0));
    let claimed = "rejoin_posts_total{verdict=\"claim\",reason=\"\"}";
    assert_eq!(bench.metric(claimed).await?, Some(2.0));
    let held = "rejoin_posts_total{verdict=\"hold\",reason=\"\"}";
    assert_eq!(bench.metric(held).await?, None);
    Ok(())
}

#[tokio::test]
async fn a_connection_buffer_too_small_for_http_is_enlarged() -> TestResult {
    let set = |limits: &mut rejoin_core::limits::Limits| limits.connection_buffer_bytes_max = 1;
    let bench = Bench::start_with(Greeting::Agrees, set).await?;
    let session = bench.session().await?;
    assert_eq!(session.post(&request(1, "ping")).await?.response().await?["id"], 1);
    Ok(())
}
