//! What still holds for requests that are passed through: who is let in, and how much at once.

use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use serde_json::json;

use crate::support::{Bench, End, answer, bare, modern, post, stream};

#[tokio::test]
async fn one_principal_takes_no_more_than_its_share() -> TestResult {
    let bench = Bench::limited(|limits| {
        (limits.passed_exchanges_max, limits.principal_passed_exchanges_max) = (3, 2);
    })
    .await?;
    let mine = modern(1, "Authorization: Bearer mine\r\n");
    let mut open = Vec::new();
    for _ in 0..2 {
        let client = bench.client(&mine).await?;
        open.push((client, bench.peer().await?));
    }
    let refused = bench.client(&mine).await?.answer().await?;
    assert_eq!((refused.status(), &refused.json()["id"]), ("503", &json!(1)));
    assert_eq!(refused.json()["error"]["data"]["sendAgain"], true);
    assert!(refused.field("retry-after").is_some());
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("principal_passed_exchanges_max"), "{message}");
    let theirs = modern(2, "Authorization: Bearer theirs\r\n");
    open.push((bench.client(&theirs).await?, bench.peer().await?));
    let third = modern(3, "Authorization: Bearer third\r\n");
    let refused = bench.client(&third).await?.answer().await?;
    let message = refused.json()["error"]["message"].to_string();
    assert!(refused.status() == "503" && message.contains(" passed_exchanges_max"), "{message}");
    // An answer that ended, and a client that left, make room.
    let (mut client, mut peer) = open.swap_remove(0);
    peer.say(answer("200 OK", "Connection: close\r\n", "{}")).await?;
    client.answer().await?;
    drop(open.swap_remove(0));
    until("room", WAIT, async || {
        let client = bench.client(&mine).await?;
        if bench.nothing_came().await {
            return Ok::<_, Failure>(None);
        }
        drop(client.end(End::Reset));
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_body_beyond_the_limit_does_not_reach_the_server() -> TestResult {
    let bench = Bench::limited(|limits| limits.body_bytes_max = 1_000).await?;
    let large = post("MCP-Protocol-Version: 2026-07-28\r\n", &" ".repeat(1_001));
    assert_eq!(bench.client(&large).await?.answer().await?.status(), "413");
    let coded = bare("POST", "/mcp", "Transfer-Encoding: chunked\r\n");
    let coded = format!("{coded}400\r\n{}\r\n0\r\n\r\n", "x".repeat(0x400));
    assert_eq!(bench.client(&coded).await?.answer().await?.status(), "413");
    assert!(bench.nothing_came().await);
    Ok(())
}

#[tokio::test]
async fn a_request_that_is_not_let_in_does_not_reach_the_server() -> TestResult {
    let bench = Bench::start().await?;
    let foreign = "Host: evil.example\r\nContent-Length: 0\r\n\r\n";
    for request in [
        modern(1, "Origin: https://evil.example\r\n"),
        bare("GET", "/mcp", "Origin: https://evil.example\r\n"),
        format!("POST /mcp HTTP/1.1\r\nMCP-Protocol-Version: 2026-07-28\r\n{foreign}"),
        format!("GET /mcp HTTP/1.1\r\n{foreign}"),
    ] {
        assert_eq!(bench.client(&request).await?.answer().await?.status(), "403", "{request}");
    }
    assert!(bench.nothing_came().await);
    Ok(())
}

#[tokio::test]
async fn a_page_may_read_what_is_passed_and_send_any_header() -> TestResult {
    let bench = Bench::start().await?;
    let origin = "Origin: http://localhost:3000\r\n";
    let said = answer("200 OK", "Connection: close\r\nVary: Accept\r\n", "{}");
    let (peer, got) = bench.exchange(&modern(1, origin), &said).await?;
    assert_eq!(peer.field("origin"), Some("http://localhost:3000"));
    let allowed = "access-control-allow-origin";
    assert_eq!(got.field(allowed), Some("http://localhost:3000"));
    // A server that knows about pages is not corrected.
    let any = "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: X-Own\r\n";
    let said = answer("200 OK", &format!("Connection: close\r\n{any}"), "{}");
    let (_, got) = bench.exchange(&modern(1, origin), &said).await?;
    assert_eq!(got.field(allowed), Some("*"));
    assert_eq!(got.field("access-control-expose-headers"), Some("X-Own"));
    let wanted = "Access-Control-Request-Method: POST\r\n\
        Access-Control-Request-Headers: mcp-method,mcp-param-region\r\n";
    let preflight = bare("OPTIONS", "/mcp", &format!("{origin}{wanted}"));
    let got = bench.client(&preflight).await?.answer().await?;
    let headers = got.field("access-control-allow-headers");
    assert_eq!((got.status(), headers), ("204", Some("mcp-method,mcp-param-region")));
    Ok(())
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_the_server_back() -> TestResult {
    let bench = Bench::start().await?;
    let client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    peer.say(stream("data: 1\n\n")).await?;
    let piece = crate::support::chunk(&"x".repeat(64 * 1024));
    let stalled = std::time::Duration::from_millis(500);
    let mut pieces = 0;
    while pieces < 4_000 && tokio::time::timeout(stalled, peer.say(&piece)).await.is_ok() {
        pieces += 1;
    }
    assert!(pieces < 1_000, "{pieces} pieces of 64 KiB were taken from the server");
    drop(client);
    Ok(())
}
