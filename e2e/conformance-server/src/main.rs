//! The server that the official conformance suites are run against: rmcp, and nothing of Rejoin
//! unless `--layer` is given.
//!
//! `conformance-server [--layer] ADDRESS`; it prints `listening on URL` and serves until SIGTERM.

#![expect(deprecated, reason = "the suites ask for logging and sampling, which 2026-07-28 gave up")]

mod catalog;
mod handler;
mod input;
mod tools;

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::serve::ListenerExt as _;
use rejoin_gateway::RejoinLayer;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower_layer::Layer as _;

use handler::Conformance;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let with_layer = arguments.first().is_some_and(|first| first == "--layer");
    let address = arguments.pop().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address).await?;
    let mut terminated = signal(SignalKind::terminate())?;
    writeln!(std::io::stdout(), "listening on http://{}/mcp", listener.local_addr()?)?;

    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = None;
    let sessions = Arc::new(sessions);
    let server = Conformance::new(Arc::clone(&sessions))?;
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        sessions,
        StreamableHttpServerConfig::default(),
    );
    if with_layer {
        let mcp = RejoinLayer::new()?.layer(service);
        let shutdown = mcp.drain_on(async move {
            terminated.recv().await;
        });
        rejoin_gateway::serve(listener, mcp, shutdown).await;
        return Ok(());
    }
    // Without this each answer waits for the client's delayed acknowledgement, 40 ms.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let app = Router::new().route_service("/mcp", service);
    // A stream that nobody closes must not hold up the end.
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = terminated.recv() => {}
    }
    Ok(())
}
