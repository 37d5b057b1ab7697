//! An rmcp client that loses no answer, and runs no call twice, when its connection breaks.
//!
//! `cargo run -p rejoin-client --features rmcp --example rmcp_client -- URL [TOOL [ARGUMENTS]]`
//! calls a tool of the server at URL, and prints its progress and its result; try it with the URL
//! that `rejoin serve` prints. All that this file knows of Rejoin is the line with `transport`.

use std::error::Error;
use std::process::ExitCode;

use rmcp::model::{CallToolRequestParams, ProgressNotificationParam};
use rmcp::service::{NotificationContext, RoleClient, ServiceError};
use rmcp::{ClientHandler, ServiceExt as _};

/// Prints what a call says of itself.
struct Printer;

impl ClientHandler for Printer {
    async fn on_progress(
        &self,
        told: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        println!("progress {}", told.progress);
    }
}

// rmcp handles each notification in a task of its own: one thread keeps their order.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().ok_or("usage: rmcp_client URL [TOOL [ARGUMENTS]]")?;
    let tool = words.next().unwrap_or_else(|| "charge".to_owned());
    let arguments = words.next().unwrap_or_else(|| r#"{ "amount": 5, "events": 20 }"#.to_owned());
    let call = CallToolRequestParams::new(tool).with_arguments(serde_json::from_str(&arguments)?);

    let transport = rejoin_client::rmcp::transport(url)?.on_notice(|notice| eprintln!("{notice}"));
    let client = Printer.serve(transport).await?;
    let ended = client.call_tool(call).await;
    // Ends the session.
    client.cancel().await?;

    match ended {
        Ok(result) => println!("result {}", serde_json::to_string(&result)?),
        // Every error of a call says whether it may have run.
        Err(ServiceError::McpError(error)) => {
            println!("error {}", serde_json::to_string(&error)?);
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}
