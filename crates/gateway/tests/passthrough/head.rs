//! Methods, queries, statuses and header fields.

use http::HeaderValue;
use rejoin_gateway::upstream::http::UpstreamAuth;
use rejoin_testkit::failure::{Failure, TestResult};

use crate::support::{Bench, Peer, answer, bare, modern};

#[tokio::test]
async fn end_to_end_fields_pass_both_ways_and_those_of_one_hop_do_not() -> TestResult {
    let bench = Bench::start().await?;
    let sent = "Connection: keep-alive, X-Hop\r\nKeep-Alive: timeout=9\r\nX-Hop: 1\r\n\
        TE: trailers\r\nUpgrade: h2c\r\nProxy-Authorization: Basic x\r\n\
        Authorization: Bearer one\r\nCookie: a=b\r\nMcp-Param-Region: eu\r\n\
        X-Twice: a\r\nX-Twice: b\r\nUser-Agent: odd/1\r\n";
    let said = "Connection: X-Back, close\r\nX-Back: 1\r\nKeep-Alive: timeout=5\r\n\
        Content-Type: application/json\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
        Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nCache-Control: max-age=7\r\nServer: odd\r\n\
        Mcp-Session-Id: theirs\r\n";
    let (peer, got) = bench.exchange(&modern(1, sent), &answer("200 Fine", said, "{}")).await?;
    let host = peer.field("host").unwrap_or_default();
    assert!(host.starts_with("127.0.0.1:") && host != "localhost", "{host}");
    let mut fields = peer.fields();
    fields.retain(|line| !line.starts_with("host:") && !line.starts_with("content-length:"));
    fields.sort_unstable();
    let expected = [
        "accept: application/json, text/event-stream",
        "authorization: Bearer one",
        "content-type: application/json",
        "cookie: a=b",
        "mcp-method: tools/call",
        "mcp-param-region: eu",
        "mcp-protocol-version: 2026-07-28",
        "user-agent: odd/1",
        "x-twice: a",
        "x-twice: b",
    ];
    assert_eq!(fields, expected);
    let mut fields = got.fields();
    fields.sort_unstable();
    let expected = [
        "cache-control: max-age=7",
        "content-length: 2",
        "content-type: application/json",
        "mcp-session-id: theirs",
        "server: odd",
        "set-cookie: a=1",
        "set-cookie: b=2",
    ];
    assert_eq!(fields, expected);
    assert_eq!(got.field("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
    assert!(got.head.starts_with("HTTP/1.1 200 Fine\r\n"), "{}", got.head);
    Ok(())
}

#[tokio::test]
async fn every_status_comes_back_as_it_is() -> TestResult {
    let bench = Bench::start().await?;
    let challenge = "WWW-Authenticate: Bearer resource_metadata=\"https://a/m\"\r\n\
        WWW-Authenticate: Basic\r\nContent-Type: text/plain\r\n";
    let away = "Location: https://elsewhere.example/\r\n";
    for (status, more, body) in [
        ("400 Bad Request", "", r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32020}}"#),
        ("401 Unauthorized", challenge, "who are you?"),
        ("403 Forbidden", challenge, ""),
        ("404 Not Found", "", r#"{"error":{"code":-32601}}"#),
        ("429 Too Many Requests", "Retry-After: 9\r\n", ""),
        ("500 Internal Server Error", "", "<html>"),
        ("307 Temporary Redirect", away, ""),
        ("302 Found", "Location: /mcp/\r\n", ""),
    ] {
        let said = answer(status, &format!("{more}Connection: close\r\n"), body);
        let (_, got) = bench.exchange(&modern(1, ""), &said).await?;
        assert!(got.head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{}", got.head);
        assert_eq!((String::from_utf8_lossy(&got.body), got.is_whole), (body.into(), true));
        let wanted: Vec<_> = more.lines().collect();
        let fields = got.fields();
        for line in &wanted {
            let is_there = |field: &&str| field.eq_ignore_ascii_case(line);
            assert!(fields.iter().any(is_there), "{line} in {fields:?}");
        }
        assert_eq!(fields.len(), wanted.len() + 1, "{fields:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_redirect_within_the_server_is_followed_with_the_body() -> TestResult {
    let bench = Bench::start().await?;
    let request = modern(7, "");
    let mut client = bench.client(&request).await?;
    let mut peer = bench.peer().await?;
    let body = peer.body.clone();
    peer.say(answer("307 Temporary Redirect", "Location: /mcp/\r\n", "")).await?;
    peer.request().await?;
    assert_eq!((peer.first_line(), &peer.body), ("POST /mcp/ HTTP/1.1", &body));
    peer.say(answer("200 OK", "", "{}")).await?;
    assert_eq!(client.answer().await?.body, b"{}");
    Ok(())
}

#[tokio::test]
async fn method_and_query_pass_beside_the_query_of_the_operator() -> TestResult {
    let bench = Bench::start_with("/deep/mcp?key=1", UpstreamAuth::Forward, |_| {}).await?;
    for (method, path, line) in [
        ("GET", "/mcp?a=%20&b", "GET /deep/mcp?key=1&a=%20&b HTTP/1.1"),
        ("DELETE", "/mcp", "DELETE /deep/mcp?key=1 HTTP/1.1"),
        ("GET", "/mcp/", "GET /deep/mcp?key=1 HTTP/1.1"),
    ] {
        let said = answer("405 Method Not Allowed", "Connection: close\r\n", "");
        let (peer, got) = bench.exchange(&bare(method, path, ""), &said).await?;
        assert_eq!((peer.first_line(), got.status()), (line, "405"));
    }
    let other = bench.client(&bare("GET", "/mcp/other", "")).await?.answer().await?;
    assert_eq!(other.status(), "404");
    assert!(bench.nothing_came().await);
    Ok(())
}

async fn asked_with(auth: UpstreamAuth) -> Result<Peer, Failure> {
    let bench = Bench::start_with("/mcp", auth, |_| {}).await?;
    let own = modern(1, "Authorization: Bearer mine\r\n");
    Ok(bench.exchange(&own, &answer("200 OK", "", "{}")).await?.0)
}

#[tokio::test]
async fn the_credential_is_the_clients_unless_the_operator_set_another() -> TestResult {
    let seen = asked_with(UpstreamAuth::Forward).await?;
    assert_eq!(seen.field("authorization"), Some("Bearer mine"));
    let seen = asked_with(UpstreamAuth::Value(HeaderValue::from_static("Bearer ours"))).await?;
    assert_eq!(seen.field("authorization"), Some("Bearer ours"));
    assert!(!seen.head.contains("mine"));
    assert_eq!(asked_with(UpstreamAuth::None).await?.field("authorization"), None);
    Ok(())
}
