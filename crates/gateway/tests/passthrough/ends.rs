//! How one side ends is what the other side sees.

use rejoin_testkit::failure::{Failure, TestResult};
use serde_json::json;

use crate::support::{Bench, Client, End, Peer, answer, chunk, modern, stream};

const ENDS: [End; 2] = [End::Reset, End::Fin];

/// Both sides of a stream whose first event has come.
async fn streaming(bench: &Bench) -> Result<(Client, Peer), Failure> {
    let mut client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    peer.say(stream("data: 1\n\n")).await?;
    client.sees("data: 1").await?;
    Ok((client, peer))
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_takes_the_connection_to_the_server_with_it() -> TestResult {
    let bench = Bench::start().await?;
    for end in ENDS {
        let (client, mut peer) = streaming(&bench).await?;
        client.end(end)?;
        peer.closed().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_behind_what_nobody_reads_does_so_too() -> TestResult {
    let bench = Bench::start().await?;
    // Less and more than what is read in one go, and what looks like a request.
    for left_behind in ["x".to_owned(), "x".repeat(64 * 1024), modern(2, "")] {
        for end in ENDS {
            let mut waiting = bench.client(&modern(1, "")).await?;
            let mut silent = bench.peer().await?;
            let (mut client, mut peer) = streaming(&bench).await?;
            for client in [&mut waiting, &mut client] {
                client.again(&left_behind).await?;
            }
            waiting.end(end)?;
            silent.closed().await?;
            client.end(end)?;
            peer.closed().await?;
            bench.counts("rejoin_passed_exchanges_running", 0.0).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_is_sent_ahead_is_answered_in_its_turn() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = bench.client(&(modern(1, "") + &modern(2, ""))).await?;
    let mut peer = bench.peer().await?;
    peer.say(answer("200 OK", "", "1")).await?;
    client.sees("\r\n\r\n1").await?;
    peer.request().await?;
    peer.say(answer("200 OK", "", "2")).await?;
    client.sees("\r\n\r\n2").await
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_does_so_too() -> TestResult {
    let bench = Bench::start().await?;
    let client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    client.end(End::Reset)?;
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
    client.end(End::Reset)?;
    peer.closed().await
}

#[tokio::test]
async fn a_stream_that_the_server_breaks_off_does_not_end_cleanly() -> TestResult {
    let bench = Bench::start().await?;
    for end in ENDS {
        let (mut client, peer) = streaming(&bench).await?;
        peer.end(end)?;
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
    peer.end(End::Reset)?;
    assert!(!client.answer().await?.is_whole);
    Ok(())
}

#[tokio::test]
async fn a_server_that_breaks_off_before_its_answer_is_asked_once_and_named() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = bench.client(&modern(41, "")).await?;
    bench.peer().await?.end(End::Reset)?;
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

#[tokio::test]
async fn an_answer_that_would_end_http_on_the_connection_is_not_passed_on() -> TestResult {
    let bench = Bench::start().await?;
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let (mut peer, got) = bench.exchange(&modern(43, ""), switch).await?;
    assert_eq!((got.status(), &got.json()["id"]), ("502", &json!(43)));
    let message = got.json()["error"]["message"].to_string();
    assert!(message.contains("101") && message.contains("not sent again"), "{message}");
    assert!(got.field("upgrade").is_none());
    peer.closed().await?;
    // What only comes before an answer is none.
    let early = format!("HTTP/1.1 103 Early Hints\r\n\r\n{}", answer("200 OK", "", "{}"));
    let (_, got) = bench.exchange(&modern(44, ""), &early).await?;
    assert_eq!(got.status(), "200");
    let mut client = bench.client(&modern(45, "")).await?;
    let mut peer = bench.peer().await?;
    peer.say("HTTP/1.1 103 Early Hints\r\n\r\n").await?;
    peer.end(End::Fin)?;
    assert_eq!(client.answer().await?.status(), "502");
    Ok(())
}
