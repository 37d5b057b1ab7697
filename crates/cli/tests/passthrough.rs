//! The binary in front of a server that is a raw socket: what has no session goes to it as it is.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rejoin_testkit::deadline::{WAIT, within};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::raw::{Connection, End, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn gateway(more: &[&str]) -> Result<Server, Failure> {
    let anywhere = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    Ok(Server::start(env!("CARGO_BIN_EXE_rejoin"), [&anywhere, more].concat())?)
}

/// A request of the newer revision.
fn modern(id: u64) -> Request {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "t", "_meta": meta}});
    Request::new("POST", "/mcp")
        .header("Host", "localhost")
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .header("MCP-Protocol-Version", "2026-07-28")
        .header("Authorization", "Bearer mine")
        .body(body.to_string())
}

/// The next request at the server, up to this text.
async fn peer(listener: &TcpListener, last: &str) -> Result<(TcpStream, String), Failure> {
    let (mut stream, _) = within("a connection to the server", WAIT, listener.accept()).await??;
    let mut input = Vec::new();
    while !String::from_utf8_lossy(&input).contains(last) {
        if within("the request", WAIT, stream.read_buf(&mut input)).await?? == 0 {
            return Err(Failure::new("the connection ended before the request came"));
        }
    }
    Ok((stream, String::from_utf8(input)?))
}

#[tokio::test]
async fn a_newer_request_passes_with_the_operators_credential_and_the_end_waits_for_it()
-> TestResult {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let folder = tempfile::tempdir()?;
    let token = folder.path().join("token");
    std::fs::write(&token, "Bearer ours")?;
    let auth = format!("file:{}", token.display());
    let mut gateway = gateway(&["--upstream", &url, "--upstream-auth", &auth]).await?;
    let address = gateway.address("listens", WAIT).await?;
    let mut client = Connection::open(address).await?;
    client.request(&modern(7)).await?;
    let (mut stream, request) = peer(&listener, "tools/call").await?;
    assert!(request.contains("\"id\":7") && request.contains("authorization: Bearer ours\r\n"));
    assert!(!request.contains("mine"), "{request}");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    let first = "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";
    stream.write_all(format!("{head}{first}").as_bytes()).await?;
    assert_eq!(client.event().await?.data.as_deref(), Some("1"));
    // A pid is a positive i32 on Linux.
    kill(Pid::from_raw(gateway.pid() as i32), Signal::SIGTERM)?;
    gateway.log_line("a second signal ends at once", WAIT).await?;
    stream.write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n").await?;
    assert_eq!(client.event().await?.data.as_deref(), Some("2"));
    assert_eq!(client.clean_rest().await?, End::LastChunk);
    assert!(gateway.ended(WAIT).await?.success());
    Ok(())
}

#[tokio::test]
async fn a_stdio_server_has_no_such_requests_and_its_client_is_led_to_initialize() -> TestResult {
    let mut gateway = gateway(&[]).await?;
    let mut client = Connection::open(gateway.address("listens", WAIT).await?).await?;
    client.request(&modern(7)).await?;
    let head = client.head().await?;
    let answer: Value = serde_json::from_slice(&client.plain_body().await?)?;
    assert_eq!(
        (head.status, &answer["id"], &answer["error"]["code"]),
        (400, &json!(7), &json!(-32600))
    );
    let message = answer["error"]["message"].to_string();
    assert!(message.contains("2025-11-25") && message.contains("initialize"), "{message}");
    Ok(())
}
