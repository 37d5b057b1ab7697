//! An rmcp server whose conversations are kept whole.
//!
//! `cargo run -p rejoin-gateway --example rmcp`, then call its tool `charge` with a client of your
//! choice, break the connection, and see: the client resumes with `Last-Event-ID` and gets the
//! rest, and a client that sends the call again instead is refused. `charges.rs` is the server;
//! nothing in it knows Rejoin. Which of rmcp's settings matter, and why: docs/embedding.md.

mod charges;

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use rejoin_gateway::RejoinLayer;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;

use charges::Charges;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    announce(&listener)?;

    // rmcp ends a session in which nothing moved for 5 minutes, even while a call runs in it.
    // Rejoin ends idle sessions itself, and never under a running call.
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = None;
    let charges = Charges::default();
    let service = StreamableHttpService::new(
        move || Ok(charges.clone()),
        Arc::new(sessions),
        StreamableHttpServerConfig::default(),
    );

    // All there is to it.
    let mcp = RejoinLayer::new()?.layer(service);
    let shutdown = mcp.drain_on(async { drop(tokio::signal::ctrl_c().await) });
    rejoin_gateway::serve(listener, mcp, shutdown).await;
    Ok(())
}

fn announce(listener: &TcpListener) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "listening on http://{}/mcp", listener.local_addr()?)?;
    stdout.flush()
}
