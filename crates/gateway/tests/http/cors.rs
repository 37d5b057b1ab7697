//! Pages in browsers: what a script of an allowed origin may send and read.

use rejoin_testkit::failure::TestResult;
use rejoin_testkit::raw::Head;
use serde_json::json;

use crate::support::{Bench, initialize, request};

const PAGE: &str = "http://localhost:3000";

fn names(head: &Head, header: &str) -> Vec<String> {
    let value = head.header(header).unwrap();
    value.split(',').map(|name| name.trim().to_ascii_lowercase()).collect()
}

#[tokio::test]
async fn a_preflight_allows_every_header_and_method_that_the_endpoint_reads() -> TestResult {
    let bench = Bench::start().await?;
    let preflight = bench
        .bare("OPTIONS")
        .header("Origin", PAGE)
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "content-type, mcp-session-id");
    let answer = bench.ask(&preflight).await?;
    assert_eq!((answer.status(), answer.body.len()), (204, 0));
    assert_eq!(answer.head.header("access-control-allow-origin"), Some(PAGE));
    assert_eq!(answer.head.header("vary"), Some("Origin"));
    let methods = names(&answer.head, "access-control-allow-methods");
    for method in ["get", "post", "delete"] {
        assert!(methods.contains(&method.to_owned()), "{method} is not in {methods:?}");
    }
    let allowed = names(&answer.head, "access-control-allow-headers");
    for header in [
        "accept",
        "authorization",
        "content-type",
        "idempotency-key",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "mcp-stream-ack",
    ] {
        assert!(allowed.contains(&header.to_owned()), "{header} is not in {allowed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_page_reads_its_session_and_every_header_of_a_stream_and_of_a_refusal() -> TestResult {
    let bench = Bench::start().await?;
    let post = bench.post(initialize(&json!(1), "2025-11-25")).header("Origin", PAGE);
    let opened = bench.ask(&post).await?;
    let session = opened.head.header("mcp-session-id").unwrap().to_owned();
    let inside = |body: String| {
        let post = bench.post(body).header("Origin", PAGE);
        post.header("Mcp-Session-Id", &session)
    };
    let ping = bench.ask(&inside(request(2, "ping").to_string())).await?;
    let broken = bench.ask(&inside("{".to_owned())).await?;
    let unknown = bench.ask(&inside("{}".to_owned()).header("Mcp-Session-Id", "x")).await?;
    let put = bench.ask(&bench.bare("PUT").header("Origin", PAGE)).await?;
    for answer in [opened, ping, broken, unknown, put] {
        assert_eq!(answer.head.header("access-control-allow-origin"), Some(PAGE), "{answer:?}");
        let exposed = names(&answer.head, "access-control-expose-headers");
        for header in [
            "mcp-session-id",
            "mcp-stream-resumable",
            "last-event-id",
            "mcp-replay-until",
            "retry-after",
            "www-authenticate",
        ] {
            assert!(exposed.contains(&header.to_owned()), "{header} is not in {exposed:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_foreign_page_and_a_client_that_is_no_page_are_allowed_nothing() -> TestResult {
    let bench = Bench::start().await?;
    for origin in ["http://evil.example", "null", "http://localhost@evil.example", "file://x"] {
        let preflight = bench.bare("OPTIONS").header("Origin", origin);
        let preflight = preflight.header("Access-Control-Request-Method", "POST");
        let answer = bench.ask(&preflight).await?;
        assert_eq!(answer.status(), 403, "{origin}");
        assert_eq!(answer.head.header("access-control-allow-origin"), None, "{origin}");
    }
    let post = bench.post(initialize(&json!(1), "2025-11-25"));
    let answer = bench.ask(&post).await?;
    assert_eq!((answer.status(), answer.head.header("access-control-allow-origin")), (200, None));
    // OPTIONS that is no preflight is a method like any other.
    assert_eq!(bench.ask(&bench.bare("OPTIONS").header("Origin", PAGE)).await?.status(), 405);
    Ok(())
}
