//! `initialize`, the session it makes, and who knows it.

use std::sync::atomic::Ordering;

use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::Connection;
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};

use crate::support::{Bench, Greeting, initialize, request};

#[tokio::test]
async fn initialize_gives_a_session_under_the_clients_own_id() -> TestResult {
    let bench = Bench::start().await?;
    for own in [json!("own-7"), json!(12)] {
        let answer = bench.ask(&bench.post(initialize(&own, "2025-11-25"))).await?;
        assert_eq!((answer.status(), answer.head.media_type().as_str()), (200, "application/json"));
        let id = answer.head.header("mcp-session-id").unwrap_or_default();
        assert!(id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        let body = answer.json();
        assert_eq!((&body["id"], &body["result"]["serverInfo"]["name"]), (&own, &json!("fake")));
        let capabilities = &body["result"]["capabilities"];
        let continuity = &capabilities["experimental"]["dev.rejoin/continuity"];
        assert_eq!((&continuity["version"], &continuity["resume"]), (&json!(1), &json!("GET")));
        assert_eq!(continuity["ack"], "Mcp-Stream-Ack");
        assert_eq!(continuity["token"], "dev.rejoin/dedup-token");
        assert_eq!(continuity["retentionMs"], 24 * 60 * 60 * 1000);
        assert!(continuity["epoch"].is_u64() && capabilities["tools"].is_object());
    }
    let seen = bench.server.seen();
    assert_eq!(
        (&seen[0]["id"], &seen[0]["params"]["clientInfo"]["name"]),
        (&json!(0), &json!("test"))
    );
    assert_eq!(bench.metric("rejoin_sessions").await?, Some(2.0));
    Ok(())
}

#[tokio::test]
async fn a_server_that_refuses_is_quoted_and_leaves_no_session() -> TestResult {
    let bench = Bench::start_with(Greeting::Refuses, |_| {}).await?;
    let answer = bench.ask(&bench.post(initialize(&json!("own"), "2025-11-25"))).await?;
    assert_eq!((answer.status(), answer.error()), (200, (-32602, json!("own"))));
    assert_eq!(answer.head.header("mcp-session-id"), None);
    assert_eq!(bench.metric("rejoin_sessions").await?, Some(0.0));
    ended(&bench, 1).await
}

async fn ended(bench: &Bench, wanted: usize) -> TestResult {
    until("the end of the server's session", WAIT, async || {
        let ended = bench.server.ended.load(Ordering::SeqCst);
        Ok::<_, Failure>((ended == wanted).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_gateway_without_room_says_when_to_come_again_and_starts_nothing() -> TestResult {
    let bench = Bench::start_with(Greeting::Agrees, |limits| limits.sessions_max = 1).await?;
    let session = bench.session().await?;
    let post = bench.post(initialize(&json!("own"), "2025-11-25"));
    let full = bench.ask(&post).await?;
    assert_eq!((full.status(), full.error().1), (503, json!("own")));
    assert_eq!(full.head.header("retry-after"), Some("1"));
    assert_eq!(full.json()["error"]["data"]["sendAgain"], true);
    let soft = bench.ask(&post.clone().header("User-Agent", "python-httpx/0.28.1")).await?;
    assert_eq!((soft.status(), soft.json()), (200, full.json()));
    assert_eq!(bench.server.opened.load(Ordering::SeqCst), 1);
    assert_eq!(session.delete().await?, 204);
    until("room for a session", WAIT, async || {
        let answer = bench.ask(&post).await?;
        Ok::<_, Failure>((answer.status() == 200).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_full_log_is_told_before_a_server_is_started() -> TestResult {
    let bench =
        Bench::start_with(Greeting::Agrees, |limits| limits.total_log_bytes_max = 0).await?;
    let answer = bench.ask(&bench.post(initialize(&json!(1), "2025-11-25"))).await?;
    assert_eq!((answer.status(), bench.server.opened.load(Ordering::SeqCst)), (503, 0));
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_start_is_the_gateways_fault() -> TestResult {
    for (greeting, status) in [(Greeting::IsFull, 503), (Greeting::Exits, 502)] {
        let bench = Bench::start_with(greeting, |_| {}).await?;
        let answer = bench.ask(&bench.post(initialize(&json!("own"), "2025-11-25"))).await?;
        assert_eq!((answer.status(), answer.error().1), (status, json!("own")), "{greeting:?}");
        assert_eq!(answer.head.header("mcp-session-id"), None);
        assert_eq!(bench.metric("rejoin_sessions_refused_total").await?, Some(1.0));
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_during_initialize_leaves_no_server() -> TestResult {
    let bench = Bench::start_with(Greeting::Hangs, |limits| limits.sessions_max = 1).await?;
    for round in 1..=3 {
        let mut connection = Connection::open(bench.address).await?;
        connection.request(&bench.post(initialize(&json!(1), "2025-11-25"))).await?;
        until("the opening", WAIT, async || {
            let opened = bench.server.opened.load(Ordering::SeqCst);
            Ok::<_, Failure>((opened == round).then_some(()))
        })
        .await?;
        connection.cut_rst()?;
        until("the end of the opening", WAIT, async || {
            let abandoned = bench.server.abandoned.load(Ordering::SeqCst);
            Ok::<_, Failure>((abandoned == round).then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn initialize_inside_a_session_is_refused() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let body = initialize(&json!("own"), "2025-11-25");
    let inside = bench.post(body).header("Mcp-Session-Id", session.id());
    let answer = bench.ask(&inside).await?;
    assert_eq!((answer.status(), answer.error()), (400, (-32600, json!("own"))));
    let outside = inside.header("Mcp-Session-Id", "unknown");
    assert_eq!(bench.ask(&outside).await?.status(), 404);
    assert_eq!(bench.server.opened.load(Ordering::SeqCst), 1);
    Ok(())
}

#[tokio::test]
async fn another_principals_session_is_as_unknown_as_one_that_never_was() -> TestResult {
    let bench = Bench::start().await?;
    let owner = bench.session_as(Identity::authorized("Bearer one")).await?;
    let thief = owner.presented_as(Identity::authorized("Bearer two"));
    for make in [post_of, get_of, delete_of] {
        let foreign = bench.ask(&make(&thief)).await?.without_date();
        assert_eq!(foreign.status(), 404);
        let unknown = make(&thief).header("Mcp-Session-Id", "00");
        assert_eq!(bench.ask(&unknown).await?.without_date(), foreign);
        let nameless = owner.presented_as(Identity::default());
        assert_eq!(bench.ask(&make(&nameless)).await?.without_date(), foreign);
    }
    assert_eq!(owner.post(&request(1, "ping")).await?.response().await?["id"], 1);
    Ok(())
}

fn post_of(session: &Session) -> rejoin_testkit::raw::Request {
    session.post_request(&request(9, "ping"))
}

fn get_of(session: &Session) -> rejoin_testkit::raw::Request {
    session.get_request(None)
}

fn delete_of(session: &Session) -> rejoin_testkit::raw::Request {
    session.http("DELETE")
}

#[tokio::test]
async fn a_deleted_session_is_unknown_and_its_server_ends() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    assert_eq!(session.delete().await?, 204);
    assert_eq!(session.delete().await?, 404);
    for make in [post_of, get_of, delete_of] {
        assert_eq!(bench.ask(&make(&session)).await?.status(), 404);
    }
    ended(&bench, 1).await?;
    assert_eq!(bench.metric("rejoin_sessions").await?, Some(0.0));
    Ok(())
}

#[tokio::test]
async fn notifications_and_responses_are_taken_with_202_and_no_body() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}),
        json!({"jsonrpc": "2.0", "id": 99, "result": {}}),
        json!({"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "no"}}),
    ] {
        let answer = bench.ask(&session.post_request(&message)).await?;
        assert_eq!((answer.status(), answer.body.len()), (202, 0), "{message}");
    }
    let methods = |bench: &Bench| -> Vec<Value> {
        bench.server.seen().iter().map(|message| message["method"].clone()).collect()
    };
    until("the notification", WAIT, async || {
        let seen = methods(&bench);
        Ok::<_, Failure>(seen.contains(&json!("notifications/roots/list_changed")).then_some(()))
    })
    .await?;
    // Answers to questions that the server never asked stay here.
    assert_eq!(methods(&bench).len(), 3);
    Ok(())
}
