//! Bodies are the same bytes on both sides, as soon as they are there.

use rejoin_testkit::failure::TestResult;

use crate::support::{Bench, answer, bare, chunk, modern, post, stream};

/// JSON that no serialiser would write: order, spaces, escapes, numbers, a member twice.
const ODD: &str = "{ \"params\":{\"n\":1e400,\"big\":123456789012345678901234567890,\"s\":\
    \"\\u00e9\\/\u{e9}\", \"n\" : -0.0, \"_meta\":{\"io.modelcontextprotocol/protocolVersion\" :\
    \"2026-07-28\"}},\r\n\t\"method\":\"tools/call\",\"id\":\"\\u0031\",\"jsonrpc\":\"2.0\"}\n ";

#[tokio::test]
async fn json_passes_both_ways_as_it_was_written() -> TestResult {
    let bench = Bench::start().await?;
    let odd = format!("  {ODD}");
    let request = post("MCP-Protocol-Version: 2026-07-28\r\n", ODD);
    let said = answer("200 OK", "Content-Type: application/json\r\n", &odd);
    let (peer, got) = bench.exchange(&request, &said).await?;
    assert_eq!(peer.body, ODD.as_bytes());
    assert_eq!((got.status(), &*got.body), ("200", odd.as_bytes()));
    Ok(())
}

#[tokio::test]
async fn a_body_in_any_coding_passes_unread() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = bench.client(&modern(1, "Accept-Encoding: gzip, br\r\n")).await?;
    let mut peer = bench.peer().await?;
    assert_eq!(peer.field("accept-encoding"), Some("gzip, br"));
    let every_byte: Vec<u8> = (0..=255).collect();
    let media = "Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n";
    peer.say(format!("HTTP/1.1 200 OK\r\n{media}Content-Length: 256\r\n\r\n")).await?;
    peer.say(&every_byte).await?;
    let got = client.answer().await?;
    assert_eq!((got.body, got.is_whole), (every_byte, true));
    assert_eq!(got.head.matches("gzip").count(), 1, "{}", got.head);
    Ok(())
}

#[tokio::test]
async fn a_stream_passes_piece_by_piece_whatever_is_in_it() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    // No event of these pieces is whole.
    let pieces = ["da", "ta: {\"id\":1}\r", ": x\nid: \u{0}7\nretry: soon\ndata"];
    peer.say(stream(pieces[0])).await?;
    client.sees("\r\nda\r\n").await?;
    for piece in &pieces[1..] {
        peer.say(chunk(piece)).await?;
        client.sees(&format!("{piece}\r\n")).await?;
    }
    peer.say(b"3\r\n\xff\xfe\n\r\n0\r\n\r\n").await?;
    let got = client.answer().await?;
    let mut whole = pieces.concat().into_bytes();
    whole.extend_from_slice(b"\xff\xfe\n");
    assert_eq!((got.body, got.is_whole), (whole, true));
    Ok(())
}

#[tokio::test]
async fn the_head_of_an_answer_comes_before_its_body() -> TestResult {
    let bench = Bench::start().await?;
    let mut client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    let coded = "Transfer-Encoding: chunked\r\nX-Early: yes\r\n";
    peer.say(format!("HTTP/1.1 200 OK\r\n{coded}\r\n")).await?;
    client.sees("x-early: yes\r\n").await?;
    peer.say("0\r\n\r\n").await?;
    assert!(client.answer().await?.is_whole);
    Ok(())
}

#[tokio::test]
async fn a_request_that_came_in_chunks_arrives_whole() -> TestResult {
    let bench = Bench::start().await?;
    let (first, second) = ODD.split_at(17);
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
        MCP-Protocol-Version: 2026-07-28\r\nTransfer-Encoding: chunked\r\n\r\n";
    let request = format!("{head}{}{}0\r\n\r\n", chunk(first), chunk(second));
    let (peer, _) = bench.exchange(&request, &answer("202 Accepted", "", "")).await?;
    assert_eq!(peer.body, ODD.as_bytes());
    assert_eq!(peer.field("content-length"), Some(&*ODD.len().to_string()));
    Ok(())
}

#[tokio::test]
async fn a_large_answer_passes_to_the_last_byte() -> TestResult {
    let bench = Bench::start().await?;
    let large = "0123456789abcdef".repeat(200_000);
    let mut client = bench.client(&bare("GET", "/mcp", "")).await?;
    let mut peer = bench.peer().await?;
    let said = answer("200 OK", "", &large);
    let (said, got) = tokio::join!(peer.say(said), client.answer());
    said?;
    let got = got?;
    assert!(got.is_whole && got.body == large.as_bytes());
    Ok(())
}
