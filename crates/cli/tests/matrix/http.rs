//! Status codes, truncated bodies, and the end of a session.

use rejoin_testkit::check::complete;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Connection, Request};
use rejoin_testkit::session::Session;
use serde_json::json;

use crate::server::{Kind, needs};
use crate::support::{Bench, charge, charge_with, drop_after, get, owed, resume_complete};

async fn status(session: &Session, request: Request) -> Result<u16, Failure> {
    Ok(session.send(&request).await?.head().await?.status)
}

#[tokio::test]
async fn bad_requests_have_their_own_status_and_end_no_other_request() -> TestResult {
    let bench = Bench::start(&["--limit", "body_bytes_max=4096"]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let mut running = session.call(&call).await?;
    bench.charged(1).await?;

    let post = session.post_request(&charge_with(11, 2, 0, 0).message());
    let sessionless = session.post_request(&charge_with(12, 3, 0, 0).message());
    let cursorless = session.get_request(None);
    let cases = [
        ("POST that takes JSON only", post.clone().header("Accept", "application/json"), 406),
        ("POST that takes SSE only", post.clone().header("Accept", "text/event-stream"), 406),
        ("GET that takes JSON only", cursorless.header("Accept", "application/json"), 406),
        ("POST of text", post.clone().header("Content-Type", "text/plain"), 415),
        ("POST without a type", post.clone().without("Content-Type"), 415),
        ("POST over the limit", post.clone().body(vec![b' '; 5000]), 413),
        ("POST that is not JSON", post.clone().body("{\"jsonrpc\""), 400),
        ("POST without session", sessionless.without("Mcp-Session-Id"), 400),
        ("GET without session", session.get_request(None).without("Mcp-Session-Id"), 400),
        ("unknown session", post.clone().header("Mcp-Session-Id", "unknown"), 404),
        ("GET unknown", session.get_request(None).header("Mcp-Session-Id", "unknown"), 404),
        ("DELETE unknown", session.http("DELETE").header("Mcp-Session-Id", "unknown"), 404),
        ("bad revision", post.clone().header("Mcp-Protocol-Version", "1999-01-01"), 400),
        ("foreign origin", post.clone().header("Origin", "http://evil.example"), 403),
        ("foreign host", post.header("Host", "evil.example"), 403),
        ("PUT", session.http("PUT").body("{}"), 405),
    ];
    for (name, request, expected) in cases {
        assert_eq!(status(&session, request).await?, expected, "{name}");
    }
    running.clean_rest().await?;
    complete(running.events(), &owed(&call, 1))?;
    assert_eq!((bench.charges_of(1)?, bench.charges_of(2)?), (1, 0));
    // Traffic without session is the server's own: this 400 may be its. What counts in front of
    // server-everything sees the call, not that it did not run.
    let seen = usize::from(Kind::chosen() == Kind::Everything);
    assert!(bench.charges_of(3)? <= seen);
    Ok(())
}

#[tokio::test]
async fn loopback_origins_and_notifications_are_accepted() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = session.post_request(&get(10).message()).header("Origin", "http://localhost:3000");
    assert!(session.send(&call).await?.response().await?.get("result").is_some());
    let progress = json!({"progressToken": "unknown", "progress": 1});
    assert_eq!(session.notify("notifications/progress", progress).await?, 202);
    Ok(())
}

/// Sends `bytes` and closes, in each way a client can.
async fn send_and_cut(session: &Session, bytes: &[u8]) -> TestResult {
    let mut reset = Connection::open(session.address()).await?;
    reset.send(bytes).await?;
    reset.cut_rst()?;
    let mut closed = Connection::open(session.address()).await?;
    closed.send(bytes).await?;
    closed.cut_fin().await?;
    Ok(())
}

#[tokio::test]
async fn a_truncated_body_never_executes() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let message = charge_with(10, 1, 0, 0).message();
    let body = message.to_string();
    let request = session.post_request(&message);
    let whole = request.to_bytes();
    for missing in [1, 10, body.len()] {
        send_and_cut(&session, &whole[..whole.len() - missing]).await?;
    }
    // Whole as JSON, but the last chunk that ends the body is missing.
    let chunk = format!("{:x}\r\n{body}\r\n", body.len());
    let chunked = request.clone().header("Transfer-Encoding", "chunked").body(chunk);
    send_and_cut(&session, &chunked.to_bytes()).await?;
    // Whole as JSON, but shorter than its length.
    let longer = request.header("Content-Length", &(body.len() + 1).to_string());
    send_and_cut(&session, &longer.to_bytes()).await?;
    let response = session.answer(&charge_with(11, 2, 0, 0)).await?;
    assert!(response.get("result").is_some(), "{response}");
    assert_eq!((bench.charges_of(1)?, bench.charges_of(2)?), (0, 1));
    Ok(())
}

#[tokio::test]
async fn a_body_in_many_pieces_executes_once() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let whole = session.post_request(&charge_with(10, 1, 0, 0).message()).to_bytes();
    let mut connection = Connection::open(session.address()).await?;
    for piece in whole.chunks(7) {
        connection.send(piece).await?;
    }
    assert!(connection.response().await?.get("result").is_some());
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn one_connection_carries_many_calls() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut connection = Connection::open(session.address()).await?;
    for id in 1..=20 {
        let call = charge_with(id, id, 2, 0);
        connection.request(&session.post_request(&call.message())).await?;
        connection.clean_rest().await?;
        complete(connection.events(), &owed(&call, 1))?;
    }
    assert_eq!(bench.charges()?, 20);
    Ok(())
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_its_streams_end_cleanly() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let other = bench.session().await?;
    let mut running = session.call(&charge_with(10, 1, 200, 50)).await?;
    running.messages(2).await?;
    let deleted = session.delete().await?;
    assert!((200..300).contains(&deleted), "{deleted}");
    running.clean_rest().await?;
    assert_eq!(session.call(&get(11)).await?.head().await?.status, 404);
    assert_eq!(session.get(None).await?.head().await?.status, 404);
    assert!(other.answer(&get(10)).await?.get("result").is_some());
    Ok(())
}

#[tokio::test]
async fn the_standalone_stream_carries_notifications_and_holds_nothing() -> TestResult {
    needs!(Notes);
    let bench =
        Bench::start(&["--limit", "owed_grace_ms=never", "--limit", "hold_max_ms=1000"]).await?;
    let session = bench.session().await?;
    let notify =
        |id: u64| rejoin_testkit::call::Call::new(id, "notify", json!({"count": 3, "key": id}));
    let mut standalone = session.get(None).await?;
    assert!(standalone.head().await?.is_event_stream());
    session.answer(&notify(10)).await?;
    let cursor = standalone.messages(2).await?;
    standalone.cut_rst()?;
    session.answer(&notify(11)).await?;
    let mut resumed = session.get(Some(&cursor)).await?;
    for _ in 0..6 {
        let message = resumed.message().await?.message().unwrap_or_default();
        assert!(message["method"].as_str().is_some_and(|m| m.starts_with("notifications/")));
    }
    assert!(session.answer(&get(12)).await?.get("result").is_some());
    Ok(())
}

#[tokio::test]
async fn a_lost_call_survives_a_bad_request_with_its_id() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let bad = session.post_request(&call.message()).header("Content-Type", "text/plain");
    assert_eq!(status(&session, bad).await?, 415);
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}
