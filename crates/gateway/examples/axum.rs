//! An axum application with an MCP endpoint written by hand, whose conversations are kept whole.
//!
//! The endpoint knows neither streams nor sessions nor Rejoin: it answers each POST with JSON, when
//! it is done. Behind the layer its answers are streams that can be resumed, and a call that is
//! sent again does not run again. `cargo run -p rejoin-gateway --example axum`.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use rejoin_gateway::RejoinLayer;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    announce(&listener)?;
    let endpoint = Router::new().route("/", post(answer)).with_state(Charges::default());

    // All there is to it: around the whole endpoint, never by `Router::layer`.
    let mcp = RejoinLayer::new()?.layer(endpoint);
    let shutdown = mcp.drain_on(async { drop(tokio::signal::ctrl_c().await) });
    let app = Router::new().route("/health", get(|| async { "well" })).nest_service("/mcp", mcp);
    rejoin_gateway::serve(listener, app, shutdown).await;
    Ok(())
}

/// Charges that were begun.
type Charges = Arc<AtomicU64>;

/// MCP in a few lines: one message in, at most one out.
async fn answer(State(charges): State<Charges>, body: Bytes) -> Response {
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let params = &message["params"];
    let outcome = match message["method"].as_str() {
        Some("initialize") => json!({ "result": {
            "protocolVersion": agreed(&params["protocolVersion"]),
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "charges", "version": "1.0.0" },
        } }),
        Some("ping") => json!({ "result": {} }),
        Some("tools/list") => json!({ "result": { "tools": [
            { "name": "charge", "inputSchema": { "type": "object" } },
            { "name": "count", "inputSchema": { "type": "object" } },
        ] } }),
        Some("tools/call") => match params["name"].as_str() {
            Some("charge") => charge(&charges, &params["arguments"]).await,
            Some("count") => said(charges.load(Ordering::SeqCst).to_string()),
            _ => json!({ "error": { "code": -32602, "message": "no such tool" } }),
        },
        _ => json!({ "error": { "code": -32601, "message": "no such method" } }),
    };
    let mut response = json!({ "jsonrpc": "2.0", "id": id });
    for (name, value) in outcome.as_object().into_iter().flatten() {
        response[name] = value.clone();
    }
    ([(CONTENT_TYPE, "application/json")], response.to_string()).into_response()
}

/// What it speaks, the newest first.
const REVISIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// The revision that was asked for if it is one of these, else the newest.
fn agreed(asked: &Value) -> &'static str {
    REVISIONS.into_iter().find(|revision| asked == revision).unwrap_or(REVISIONS[0])
}

async fn charge(charges: &Charges, arguments: &Value) -> Value {
    let number = charges.fetch_add(1, Ordering::SeqCst) + 1;
    let pause_ms = arguments["pause_ms"].as_u64().unwrap_or(5_000);
    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    said(format!("charge number {number}"))
}

fn said(text: String) -> Value {
    json!({ "result": { "content": [{ "type": "text", "text": text }] } })
}

fn announce(listener: &TcpListener) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "listening on http://{}/mcp", listener.local_addr()?)?;
    stdout.flush()
}
