//! A host on the Rust SDK that starts a server over stdio, and calls its tools (see
//! `../../proofs/bridge.py`): `bridge-rmcp-client COMMAND... < plan.json`.
//!
//! Prints one JSON line for each call, when all have ended or the plan's time is over.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject, ProgressNotificationParam,
    ProgressToken, ServerResult,
};
use rmcp::service::{NotificationContext, Peer, PeerRequestOptions, RoleClient, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, ServiceExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Mutex;

type Failure = Box<dyn Error + Send + Sync>;

/// What to call.
#[derive(Debug, Deserialize)]
struct Plan {
    /// How many calls run at the same time.
    at_once: usize,
    /// A call that takes longer hangs.
    call_seconds: f64,
    /// All calls together.
    seconds: f64,
    calls: Vec<Planned>,
}

#[derive(Debug, Deserialize)]
struct Planned {
    tool: String,
    arguments: JsonObject,
}

/// What the application saw of the calls, by their place in the plan.
#[derive(Debug, Default)]
struct Seen {
    /// Which call a progress token belongs to.
    tokens: HashMap<ProgressToken, usize>,
    progress: HashMap<usize, Vec<f64>>,
    late: HashMap<usize, usize>,
    ended: HashMap<usize, Value>,
}

#[derive(Clone, Default)]
struct Application(Arc<Mutex<Seen>>);

impl ClientHandler for Application {
    async fn on_progress(
        &self,
        note: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let mut seen = self.0.lock().await;
        let Some(&call) = seen.tokens.get(&note.progress_token) else { return };
        seen.progress.entry(call).or_default().push(note.progress);
        if seen.ended.contains_key(&call) {
            *seen.late.entry(call).or_default() += 1;
        }
    }
}

/// One call, and how it ended.
async fn call(
    peer: &Peer<RoleClient>,
    application: &Application,
    number: usize,
    planned: Planned,
    limit: Duration,
) {
    let params = CallToolRequestParams::new(planned.tool).with_arguments(planned.arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let options = PeerRequestOptions::with_timeout(limit);
    let sent = {
        // Held until the token is known, so that no progress comes before it.
        let mut seen = application.0.lock().await;
        let sent = peer.send_request_with_option(request, options).await;
        if let Ok(handle) = &sent {
            seen.tokens.insert(handle.progress_token.clone(), number);
        }
        sent
    };
    let answer = match sent {
        Ok(handle) => handle.await_response().await,
        Err(error) => Err(error),
    };
    let ended = match answer {
        Ok(ServerResult::CallToolResult(result)) => {
            let meta = serde_json::to_value(&result.meta).unwrap_or_default();
            json!({
                "result": result.structured_content, "content": result.content,
                "is_error": result.is_error == Some(true),
                "recorded": meta.get("dev.rejoin/recorded").is_some(),
            })
        }
        Ok(other) => json!({ "error": { "message": format!("{other:?}") } }),
        Err(ServiceError::Timeout { .. }) => json!({ "hung": true }),
        Err(ServiceError::McpError(error)) => json!({ "error": error }),
        Err(error) => json!({ "error": { "message": error.to_string() } }),
    };
    application.0.lock().await.ended.insert(number, ended);
}

async fn run(application: &Application, plan: Plan, command: Command) -> Result<(), Failure> {
    let client = application.clone().serve(TokioChildProcess::new(command)?).await?;
    let (peer, limit) = (client.peer(), Duration::try_from_secs_f64(plan.call_seconds)?);
    let calls = plan.calls.into_iter().enumerate();
    futures::stream::iter(calls)
        .for_each_concurrent(plan.at_once.max(1), |(number, planned)| {
            call(peer, application, number, planned, limit)
        })
        .await;
    client.cancel().await?;
    Ok(())
}

// On one thread the SDK hands notifications over in their order; on several it promises none.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let Some(program) = words.next() else {
        return Err("usage: bridge-rmcp-client COMMAND... < plan.json".into());
    };
    let mut command = Command::new(program);
    command.args(words);
    let plan: Plan = serde_json::from_reader(io::stdin())?;
    let (count, seconds) = (plan.calls.len(), Duration::try_from_secs_f64(plan.seconds)?);
    let application = Application::default();
    let outcome = tokio::time::timeout(seconds, run(&application, plan, command)).await;
    let mut seen = application.0.lock().await;
    for number in 0..count {
        let mut line = seen.ended.remove(&number).unwrap_or_else(|| json!({ "hung": true }));
        line["call"] = json!(number);
        line["progress"] = json!(seen.progress.remove(&number).unwrap_or_default());
        line["late"] = json!(seen.late.remove(&number).unwrap_or(0));
        writeln!(io::stdout().lock(), "{line}")?;
    }
    match outcome {
        Ok(ended) => ended,
        Err(_) => Ok(()),
    }
}
