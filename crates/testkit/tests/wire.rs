//! The raw client, the forwarder and the session against a tiny server.

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::{Peer, STREAM, Tiny};
use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::forward::Forward;
use rejoin_testkit::raw::{Connection, End, Received, Request, WireError};
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::{Identity, Session};
use serde_json::json;
use tokio::io::AsyncWriteExt;

const SHORT: Duration = Duration::from_millis(200);

async fn pair() -> Result<(Connection, Peer), Failure> {
    let tiny = Tiny::start().await?;
    let connection = Connection::open(tiny.address()?).await?;
    Ok((connection, tiny.accept().await?))
}

#[tokio::test]
async fn events_come_one_by_one_and_the_last_chunk_is_a_clean_end() -> TestResult {
    let (mut client, mut peer) = pair().await?;
    client.request(&Request::new("GET", "/mcp").header("Host", "x")).await?;
    assert!(peer.request().await?.starts_with("GET /mcp HTTP/1.1\r\nHost: x\r\n"));
    peer.write(STREAM).await?;
    peer.chunk("id: 1-1-0\nretry: 500\ndata:\n\n: held\n\nid: 1-1-1\nda").await?;
    peer.chunk("ta: {\"id\":1,\"result\":{}}\n\n").await?;
    let priming = client.event().await?;
    assert_eq!((priming.retry, priming.is_empty()), (Some(500), true));
    assert_eq!(client.response().await?, json!({"id": 1, "result": {}}));
    assert_eq!(client.comments()[0].text, "held");
    assert_eq!(client.last_id(), Some("1-1-1"));
    assert_eq!(client.next_within(Duration::from_millis(5)).await?, None);
    peer.write("0\r\n\r\n").await?;
    assert_eq!(client.clean_rest().await?, End::LastChunk);
    Ok(())
}

#[tokio::test]
async fn a_stream_without_a_last_chunk_is_truncated_and_a_reset_is_a_reset() -> TestResult {
    let (mut client, mut peer) = pair().await?;
    peer.write(STREAM).await?;
    peer.chunk("data: 1\n\n").await?;
    drop(peer);
    assert_eq!(client.rest().await?, End::Truncated);
    assert!(client.clean_rest().await.is_err());
    let (mut client, mut peer) = pair().await?;
    client.send(b"unread").await?;
    peer.stream.readable().await?;
    peer.write(STREAM).await?;
    drop(peer);
    assert_eq!(client.rest().await?, End::Reset);
    Ok(())
}

#[tokio::test]
async fn a_clean_end_in_the_middle_of_a_block_is_a_fault() -> TestResult {
    let (mut client, mut peer) = pair().await?;
    peer.write(STREAM).await?;
    peer.chunk("data: 1\n").await?;
    peer.write("0\r\n\r\n").await?;
    assert!(matches!(client.rest().await, Err(WireError::Torn { .. })));
    Ok(())
}

#[tokio::test]
async fn the_next_request_may_use_the_same_connection() -> TestResult {
    let (mut client, mut peer) = pair().await?;
    let request = Request::new("POST", "/mcp").body("{}");
    client.request(&request).await?;
    peer.request().await?;
    peer.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{").await?;
    assert_eq!(client.head().await?.status, 200);
    assert!(client.request(&request).await.is_err(), "the answer is not complete");
    peer.write("}").await?;
    assert_eq!(client.plain_body().await?, b"{}");
    client.request(&request).await?;
    peer.request().await?;
    peer.write("HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\n{}").await?;
    assert_eq!((client.head().await?.status, client.plain_body().await?), (400, b"{}".to_vec()));
    Ok(())
}

#[tokio::test]
async fn the_peer_sees_a_reset_or_a_fin_as_the_test_says() -> TestResult {
    let (client, mut peer) = pair().await?;
    client.cut_rst()?;
    assert_eq!(peer.read().await?, Err(ErrorKind::ConnectionReset));

    let (client, mut peer) = pair().await?;
    peer.write("unread").await?;
    let ended = tokio::spawn(client.cut_fin());
    assert_eq!(peer.read().await?, Ok(0));
    peer.stream.shutdown().await?;
    ended.await??;

    let (mut client, mut peer) = pair().await?;
    client.half_close().await?;
    assert_eq!(peer.read().await?, Ok(0));
    peer.write("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await?;
    assert_eq!(client.head().await?.status, 202);
    Ok(())
}

#[tokio::test]
async fn what_the_kernel_has_is_taken_without_waiting() -> TestResult {
    let (mut client, mut peer) = pair().await?;
    assert_eq!(client.available()?, []);
    peer.write(STREAM).await?;
    peer.chunk("id: 1\ndata: 1\n\nid: 2\ndata: 2\n\n").await?;
    client.unread_contains("id: 2", 4096).await?;
    let items = client.available()?;
    assert!(matches!(&items[..], [Received::Event(_), Received::Event(_)]), "{items:?}");
    assert_eq!(client.available()?, []);
    peer.chunk(": more\n").await?;
    assert!(client.readable(WAIT).await);
    let comment = client.comment("more").await?;
    assert_eq!(comment.offset, 30);
    drop(peer);
    until("the end", WAIT, async || {
        Ok::<_, Failure>(
            client.available()?.pop().filter(|item| matches!(item, Received::End(End::Truncated))),
        )
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_black_path_acknowledges_nothing_and_says_nothing() -> TestResult {
    let (client, mut peer) = pair().await?;
    peer.give_up_after(SHORT)?;
    client.go_black()?;
    peer.write("into the dark").await?;
    assert_eq!(peer.read().await?, Err(ErrorKind::TimedOut));
    Ok(())
}

#[tokio::test]
async fn a_forwarder_carries_and_delays_and_cuts() -> TestResult {
    let tiny = Tiny::start().await?;
    let forward = Forward::start(tiny.address()?)?;
    let mut client = Connection::open(forward.address()).await?;
    let mut peer = tiny.accept().await?;
    client.send(b"ping").await?;
    assert_eq!(peer.read().await?, Ok(4));
    forward.delay(SHORT);
    let start = std::time::Instant::now();
    peer.write("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await?;
    assert_eq!(client.head().await?.status, 202);
    assert!(start.elapsed() >= SHORT);
    forward.cut_rst();
    assert_eq!(peer.read().await?, Err(ErrorKind::ConnectionReset));
    assert!(client.available()?.iter().all(|item| matches!(item, Received::End(_))));
    Ok(())
}

#[tokio::test]
async fn a_reset_of_the_client_goes_through_a_forwarder() -> TestResult {
    let tiny = Tiny::start().await?;
    let forward = Forward::start(tiny.address()?)?;
    let mut client = Connection::open(forward.address()).await?;
    let mut peer = tiny.accept().await?;
    client.send(b"ping").await?;
    assert_eq!(peer.read().await?, Ok(4));
    client.cut_rst()?;
    assert_eq!(peer.read().await?, Err(ErrorKind::ConnectionReset));
    Ok(())
}

#[tokio::test]
async fn a_black_forwarder_acknowledges_nothing_and_says_nothing() -> TestResult {
    let tiny = Tiny::start().await?;
    let forward = Forward::start(tiny.address()?)?;
    let mut client = Connection::open(forward.address()).await?;
    let mut peer = tiny.accept().await?;
    client.send(b"ping").await?;
    assert_eq!(peer.read().await?, Ok(4));
    peer.give_up_after(SHORT)?;
    forward.go_black().await?;
    // The forwarder turns dark in its own task: write until a byte is lost.
    let lost = until("a byte that is lost", WAIT, async || {
        let written = peer.stream.write_all(b"into the dark").await;
        Ok::<_, Failure>(written.err().map(|error| error.kind()))
    });
    assert_eq!(lost.await?, ErrorKind::TimedOut);
    assert_eq!(client.end(), None);
    Ok(())
}

#[tokio::test]
async fn a_session_sends_its_headers_and_reads_a_refusal() -> TestResult {
    let tiny = Tiny::start().await?;
    let identity =
        Identity { user_agent: Some("python-httpx/0.28.1".into()), ..Default::default() };
    let opening = tokio::spawn(Session::open_as(tiny.address()?, identity));
    let mut peer = tiny.accept().await?;
    let initialize = peer.request().await?;
    assert!(initialize.contains("User-Agent: python-httpx/0.28.1\r\n"), "{initialize}");
    assert!(!initialize.contains("Mcp-Session-Id"), "{initialize}");
    let body = r#"{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-11-25"}}"#;
    let head = "HTTP/1.1 200 OK\r\nMcp-Session-Id: s1\r\nContent-Type: application/json\r\n";
    peer.write(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await?;
    let mut peer = tiny.accept().await?;
    assert!(peer.request().await?.contains("notifications/initialized"));
    peer.write("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await?;
    let session = opening.await??;
    assert_eq!(session.id(), "s1");

    let mut connection = session.call(&Call::new(7, "charge", json!({}))).await?;
    let mut peer = tiny.accept().await?;
    let request = peer.request().await?;
    assert!(request.contains("Mcp-Session-Id: s1\r\n"), "{request}");
    assert!(request.contains("Mcp-Protocol-Version: 2025-11-25\r\n"), "{request}");
    let error = json!({"code": 40902, "message": "Not run.", "data": {"reason": "x"}});
    let body = json!({"jsonrpc": "2.0", "id": 7, "error": error}).to_string();
    let head = "HTTP/1.1 409 Conflict\r\nLast-Event-ID: 1-2-0\r\nContent-Type: application/json";
    peer.write(&format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await?;
    let refusal = Refusal::read(&mut connection).await?;
    assert_eq!((refusal.code, refusal.cursor()), (40902, Some("1-2-0")));
    Ok(())
}
