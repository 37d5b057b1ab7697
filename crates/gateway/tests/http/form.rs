//! 400, 403, 404, 405, 406, 413, 415: the form of a request.

use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Connection, Request};
use serde_json::{Value, json};

use crate::support::{Bench, Greeting, request};

const PING: &str = r#"{"jsonrpc":"2.0","id":"own","method":"ping"}"#;

#[tokio::test]
async fn every_wrong_form_has_its_status_code_and_the_requests_own_id() -> TestResult {
    let bench = Bench::start().await?;
    let post = || bench.post(PING);
    let get = || bench.bare("GET");
    let (own, none) = (json!("own"), Value::Null);
    let rows: Vec<(&str, Request, u16, i64, &Value)> = vec![
        ("media type", post().header("Content-Type", "text/plain"), 415, -32600, &none),
        ("no media type", post().without("Content-Type"), 415, -32600, &none),
        ("json only", post().header("Accept", "application/json"), 406, -32600, &none),
        ("no accept", post().without("Accept"), 406, -32600, &none),
        ("foreign host", post().header("Host", "evil.example"), 403, -32600, &none),
        ("no host", post().without("Host"), 400, -32600, &none),
        ("user in host", post().header("Host", "evil@127.0.0.1"), 400, -32600, &none),
        ("foreign origin", post().header("Origin", "http://evil.example"), 403, -32600, &none),
        ("null origin", post().header("Origin", "null"), 403, -32600, &none),
        ("not json", bench.post("{"), 400, -32700, &none),
        ("empty", bench.post(""), 400, -32700, &none),
        ("no version", bench.post(r#"{"id":"own","method":"ping"}"#), 400, -32600, &own),
        ("null id", bench.post(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#), 400, -32600, &none),
        ("no session", post(), 400, -32600, &own),
        ("bad session id", post().header("Mcp-Session-Id", "a b"), 400, -32600, &own),
        ("unknown session", post().header("Mcp-Session-Id", "abc"), 404, -32600, &own),
        ("put", bench.bare("PUT"), 405, -32600, &none),
        ("head", bench.bare("OPTIONS"), 405, -32600, &none),
        ("get json", get().header("Accept", "application/json"), 406, -32600, &none),
        ("get without session", get(), 400, -32600, &none),
        ("get of an unknown session", get().header("Mcp-Session-Id", "abc"), 404, -32600, &none),
        ("get from a foreign host", get().header("Host", "evil.example"), 403, -32600, &none),
        ("get from a foreign page", get().header("Origin", "http://a.b"), 403, -32600, &none),
        ("delete without session", bench.bare("DELETE"), 400, -32600, &none),
        (
            "delete from a foreign page",
            bench.bare("DELETE").header("Origin", "null"),
            403,
            -32600,
            &none,
        ),
    ];
    for (name, request, status, code, id) in rows {
        let answer = bench.ask(&request).await?;
        assert_eq!((answer.status(), answer.error()), (status, (code, id.clone())), "{name}");
    }
    assert_eq!(bench.server.seen(), [] as [Value; 0]);
    Ok(())
}

#[tokio::test]
async fn the_endpoint_is_known_with_and_without_a_slash_and_nothing_else_is() -> TestResult {
    let bench = Bench::start().await?;
    for (path, status) in
        [("/mcp", 400), ("/mcp/", 400), ("/", 404), ("/mcp/x", 404), ("/mcpx", 404)]
    {
        let request = Request::new("GET", path)
            .header("Host", "localhost")
            .header("Accept", "text/event-stream");
        assert_eq!(bench.ask(&request).await?.status(), status, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn clients_that_lose_their_session_on_an_error_status_get_200_for_requests() -> TestResult {
    let bench = Bench::start().await?;
    let as_python = |request: Request| request.header("User-Agent", "python-httpx/0.28.1");
    let no_session = bench.ask(&as_python(bench.post(PING))).await?;
    assert_eq!((no_session.status(), no_session.error()), (200, (-32600, json!("own"))));
    let unknown = as_python(bench.post(PING)).header("Mcp-Session-Id", "abc");
    assert_eq!(bench.ask(&unknown).await?.status(), 404);
    assert_eq!(bench.ask(&as_python(bench.bare("GET"))).await?.status(), 400);
    Ok(())
}

#[tokio::test]
async fn a_revision_that_the_session_cannot_speak_is_refused() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    for (revision, status) in [("2025-11-25", 200), ("2025-03-26", 200), ("1999-01-01", 400)] {
        let ping = session.post_request(&request(1, "ping"));
        let answer = bench.ask(&ping.header("Mcp-Protocol-Version", revision)).await?;
        assert_eq!(answer.status(), status, "{revision}");
        let delete = session.http("DELETE").header("Mcp-Protocol-Version", "1999-01-01");
        assert_eq!(bench.ask(&delete).await?.status(), 400);
    }
    Ok(())
}

#[tokio::test]
async fn a_client_of_both_eras_is_led_to_initialize() -> TestResult {
    let bench = Bench::start().await?;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover",
        "params": {"_meta": meta}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "echo", "_meta": meta}});
    let newer = "2026-07-28";
    for request in [
        bench.post(discover.to_string()),
        bench.post(discover.to_string()).header("Mcp-Protocol-Version", newer),
        bench.post(request(1, "server/discover").to_string()),
        bench.post(call.to_string()),
        bench.post(request(1, "tools/list").to_string()).header("Mcp-Protocol-Version", newer),
    ] {
        let answer = bench.ask(&request).await?;
        // Neither -32020 to -32022 nor 404 with -32601: those would mean "stay in the newer era".
        assert_eq!((answer.status(), answer.error()), (400, (-32600, json!(1))));
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains("initialize"), "{message}");
    }
    Ok(())
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_declared_or_not() -> TestResult {
    let bench = Bench::start_with(Greeting::Agrees, |limits| limits.body_bytes_max = 1_000).await?;
    let session = bench.session().await?;
    let long = session.post_request(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping",
        "params": {"padding": "x".repeat(1_000)}}));
    assert_eq!(bench.ask(&long).await?.status(), 413);
    let mut chunked = Connection::open(bench.address).await?;
    let head = session.post_request(&json!(null)).header("Transfer-Encoding", "chunked").body("");
    chunked.request(&head).await?;
    chunked.send(format!("400\r\n{}\r\n0\r\n\r\n", "x".repeat(0x400)).as_bytes()).await?;
    assert_eq!(chunked.head().await?.status, 413);
    Ok(())
}

#[tokio::test]
async fn a_body_that_is_cut_off_never_has_an_effect() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}});
    let whole = session.post_request(&call).to_bytes();
    let declared = session.post_request(&call).header("Content-Length", "500");
    for cut in [1, 2, 10, whole.len() - 5] {
        let mut reset = Connection::open(bench.address).await?;
        reset.send(&whole[..whole.len() - cut]).await?;
        reset.cut_rst()?;
        let mut ended = Connection::open(bench.address).await?;
        // A whole message, but not the whole body.
        ended.request(&declared).await?;
        ended.half_close().await?;
        let _whatever = ended.rest().await.is_ok();
    }
    assert_eq!(session.post(&request(2, "ping")).await?.response().await?["id"], 2);
    assert_eq!(bench.server.runs("echo"), 0);
    Ok(())
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up_and_its_connection_ended() -> TestResult {
    let set = |limits: &mut rejoin_core::limits::Limits| limits.request_body_max_ms = 50;
    let bench = Bench::start_with(Greeting::Agrees, set).await?;
    let mut slow = Connection::open(bench.address).await?;
    slow.request(&bench.post("{").header("Content-Length", "10")).await?;
    let head = slow.head().await?;
    assert_eq!((head.status, head.header("connection")), (408, Some("close")));
    slow.clean_rest().await?;
    Ok(())
}

#[tokio::test]
async fn connections_are_counted_while_they_last() -> TestResult {
    let bench = Bench::start().await?;
    let mut kept = Connection::open(bench.address).await?;
    kept.request(&bench.bare("GET")).await?;
    kept.plain_body().await?;
    kept.request(&bench.bare("GET")).await?;
    kept.plain_body().await?;
    assert_eq!(bench.metric("rejoin_connections").await?, Some(1.0));
    drop(kept);
    until("the end of the connection", WAIT, async || {
        let open = bench.metric("rejoin_connections").await?;
        Ok::<_, Failure>((open == Some(0.0)).then_some(()))
    })
    .await
}
