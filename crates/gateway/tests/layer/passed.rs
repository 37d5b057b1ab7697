//! What has no session passes the layer (docs/protocol.md, section 9).

use http::Request as Asking;
use http_body_util::BodyExt as _;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Connection, Request};
use serde_json::json;

use crate::support::{Bench, LISTENERS, text};

const REVISION: &str = "2026-07-28";

/// A call of a revision without sessions, as rmcp wants it.
fn call(bench: &Bench, tool: &str) -> Request {
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": tool,
        "arguments": { "steps": 1_000, "pause_ms": 20 },
        "_meta": {
            "progressToken": "own",
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    } });
    Request::new("POST", "/mcp")
        .header("Host", &bench.address.to_string())
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .header("Mcp-Protocol-Version", REVISION)
        .header("Mcp-Method", "tools/call")
        .header("Mcp-Name", tool)
        .body(message.to_string())
}

/// Exchanges that are passed through now.
async fn running(bench: &Bench) -> Result<bool, Failure> {
    let request = Asking::get("/metrics").header("Host", "localhost").body(())?;
    let page = bench.service.gateway().admin(request).await.into_body().collect().await;
    let page = String::from_utf8(page?.to_bytes().into())?;
    Ok(!page.contains("rejoin_passed_exchanges_running 0"))
}

#[tokio::test]
async fn a_call_without_session_is_the_services_own_and_ends_with_its_client() -> TestResult {
    for listener in LISTENERS {
        let bench = Bench::start(listener).await?;
        let mut connection = Connection::open(bench.address).await?;
        connection.request(&call(&bench, "count")).await?;
        let head = connection.head().await?;
        assert_eq!((head.status, head.header("mcp-session-id")), (200, None), "{head:?}");
        assert_eq!(text(&connection.response().await?), "0");

        let mut connection = Connection::open(bench.address).await?;
        connection.request(&call(&bench, "charge")).await?;
        let progress = connection.message().await?.message().unwrap_or_default();
        assert_eq!(progress["params"]["progressToken"], "own", "not one that Rejoin minted");
        assert!(running(&bench).await?);
        connection.cut_rst()?;
        until::<_, Failure>("the end of the call", WAIT, async || {
            Ok((!running(&bench).await?).then_some(()))
        })
        .await?;
        assert!(bench.sessions.sessions.read().await.is_empty());
    }
    Ok(())
}
