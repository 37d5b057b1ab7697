//! How one side ends is what the other side sees.

use rejoin_testkit::failure::TestResult;
use serde_json::json;

use crate::support::{Bench, chunk, modern, stream};

#[tokio::test]
async fn a_client_that_leaves_a_stream_takes_the_connection_to_the_server_with_it() -> TestResult {
    let bench = Bench::start().await?;
    for reset in [true, false] {
        let mut client = bench.client(&modern(1, "")).await?;
        let mut peer = bench.peer().await?;
        peer.say(stream("data: 1\n\n")).await?;
        client.sees("data: 1").await?;
        if reset {
            client.reset()?;
        } else {
            drop(client);
        }
        peer.closed().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_does_so_too() -> TestResult {
    let bench = Bench::start().await?;
    let client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    client.reset()?;
    peer.closed().await
}

#[tokio::test]
async fn a_client_that_leaves_while_it_does_not_read_does_so_too() -> TestResult {
    let bench = Bench::start().await?;
    let client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    peer.say(stream("data: 1\n\n")).await?;
    let piece = chunk(&"x".repeat(64 * 1024));
    // Until all buffers between here and there are full.
    let full = std::time::Duration::from_millis(300);
    for _ in 0..1_000 {
        if tokio::time::timeout(full, peer.say(&piece)).await.is_err() {
            break;
        }
    }
    client.reset()?;
    peer.closed().await
}

#[tokio::test]
async fn a_stream_that_the_server_breaks_off_does_not_end_cleanly() -> TestResult {
    let bench = Bench::start().await?;
    for reset in [true, false] {
        let mut client = bench.client(&modern(1, "")).await?;
        let mut peer = bench.peer().await?;
        peer.say(stream("data: 1\n\n")).await?;
        client.sees("data: 1").await?;
        if reset {
            peer.reset()?;
        } else {
            drop(peer);
        }
        let got = client.answer().await?;
        assert_eq!((got.is_whole, got.status()), (false, "200"));
        assert_eq!(got.body, b"data: 1\n\n");
    }
    Ok(())
}

#[tokio::test]
async fn what_came_before_a_break_is_passed_on() -> TestResult {
    let bench = Bench::start().await?;
    for _ in 0..20 {
        let mut client = bench.client(&modern(1, "")).await?;
        let mut peer = bench.peer().await?;
        // The end is there together with the last piece.
        peer.say(stream("data: 1\n\n") + &chunk("data: 2\n\n")).await?;
        drop(peer);
        let got = client.answer().await?;
        assert_eq!((got.is_whole, &*got.body), (false, &b"data: 1\n\ndata: 2\n\n"[..]));
    }
    Ok(())
}

#[tokio::test]
async fn a_document_that_the_server_breaks_off_is_not_whole() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\"").await?;
    client.sees("{\"a\"").await?;
    peer.reset()?;
    assert!(!client.answer().await?.is_whole);
    Ok(())
}

#[tokio::test]
async fn a_server_that_breaks_off_before_its_answer_is_asked_once_and_named() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = bench.client(&modern(41, "")).await?;
    bench.peer().await?.reset()?;
    let got = client.answer().await?;
    assert_eq!((got.status(), &got.json()["id"]), ("502", &json!(41)));
    let message = got.json()["error"]["message"].to_string();
    assert!(message.contains("may have been processed"), "{message}");
    assert!(bench.nothing_came().await, "it was not sent again");
    Ok(())
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_told_with_the_id_of_the_request() -> TestResult {
    let bench = Bench::start().await?.without_server().await?;
    let got = bench.client(&modern(42, "")).await?.answer().await?;
    assert_eq!((got.status(), &got.json()["id"]), ("502", &json!(42)));
    assert_eq!(got.json()["error"]["code"], -32603);
    let message = got.json()["error"]["message"].to_string();
    assert!(message.contains("cannot be reached"), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_connection_to_the_server_is_used_again_after_a_whole_answer() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    peer.say(stream("data: 1\n\n") + "0\r\n\r\n").await?;
    assert!(client.answer().await?.is_whole);
    client.again(&modern(2, "")).await?;
    peer.request().await?;
    assert!(String::from_utf8_lossy(&peer.body).contains("\"id\":2"));
    Ok(())
}
