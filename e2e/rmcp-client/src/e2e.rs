//! Drives the Rust SDK's client through the steps of one scenario (see `../../README.md`):
//! `e2e-rmcp-client URL CONTROL_URL < steps.json`.
//!
//! Prints one JSON line for each thing the application sees.

// The SDK calls sampling deprecated; servers still ask for it.
#![allow(deprecated)]

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientCapabilities,
    ClientConfig, ClientRequest, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorData,
    Implementation, JsonObject, ProgressNotificationParam, ProgressToken, SamplingCapability,
    SamplingContent, SamplingMessage, ServerResult,
};
use rmcp::service::{
    NotificationContext, Peer, PeerRequestOptions, RequestContext, RoleClient, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ServiceExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify, watch};

const POLL: Duration = Duration::from_millis(20);
const WAIT: Duration = Duration::from_secs(20);

type Failure = Box<dyn Error + Send + Sync>;

/// One step; which fields it needs depends on what it does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Step {
    r#do: String,
    call: String,
    tool: String,
    arguments: JsonObject,
    count: usize,
    seconds: f64,
    timeout_seconds: Option<f64>,
}

/// One tool call under way.
#[derive(Debug)]
struct Call {
    name: String,
    progress: AtomicUsize,
    cancelled: Notify,
    is_settled: watch::Sender<bool>,
}

impl Call {
    async fn settled(&self) -> Result<(), Failure> {
        self.is_settled.subscribe().wait_for(|is_settled| *is_settled).await?;
        Ok(())
    }
}

/// The calls, by the token that their progress bears.
type Tokens = Arc<Mutex<HashMap<ProgressToken, Arc<Call>>>>;

/// What the application answers and notes.
#[derive(Clone)]
struct Application {
    tokens: Tokens,
}

impl ClientHandler for Application {
    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let first = params.messages.into_iter().next().map(|message| message.content);
        let prompt = match first {
            Some(SamplingContent::Single(block)) => block.as_text().map(|text| text.text.clone()),
            _ => None,
        };
        saw(&json!({ "saw": "sampling", "prompt": prompt }));
        let message = SamplingMessage::assistant_text("sampled by e2e");
        Ok(CreateMessageResult::new(message, "e2e".to_owned()))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = params
        else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        saw(&json!({ "saw": "elicitation", "message": message }));
        let names = requested_schema.property_order.unwrap_or_default();
        let mut answer = ElicitResult::new(ElicitationAction::Accept);
        answer.content = names.first().map(|name| json!({ name: "answered by e2e" }));
        Ok(answer)
    }

    async fn on_progress(
        &self,
        note: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if let Some(call) = self.tokens.lock().await.get(&note.progress_token) {
            call.progress.fetch_add(1, Ordering::SeqCst);
            saw(&json!({
                "saw": "progress", "call": call.name,
                "progress": note.progress, "total": note.total,
            }));
        }
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.sampling = Some(SamplingCapability::default());
        capabilities.elicitation = Some(ElicitationCapability::default());
        ClientConfig::new(capabilities, Implementation::new("rejoin-e2e-rmcp", "1.0.0"))
    }
}

struct Driver {
    peer: Peer<RoleClient>,
    control: String,
    tokens: Tokens,
    calls: HashMap<String, Arc<Call>>,
}

impl Driver {
    async fn step(&mut self, step: Step) -> Result<(), Failure> {
        match step.r#do.as_str() {
            "list" => {
                let tools = self.peer.list_all_tools().await?;
                let names: Vec<_> = tools.iter().map(|tool| &tool.name).collect();
                saw(&json!({ "saw": "tools", "names": names }));
                Ok(())
            }
            "start" => self.start(step).await.map(drop),
            "call" => self.start(step).await?.settled().await,
            "join" => self.named(&step)?.settled().await,
            "cancel" => {
                self.named(&step)?.cancelled.notify_one();
                Ok(())
            }
            "await_progress" => {
                let call = self.named(&step)?;
                let deadline = Instant::now() + WAIT;
                while call.progress.load(Ordering::SeqCst) < step.count {
                    poll(deadline, "progress events").await?;
                }
                Ok(())
            }
            "await_cuts" => {
                let deadline = Instant::now() + WAIT;
                while self.cuts().await? < step.count {
                    poll(deadline, "cuts").await?;
                }
                Ok(())
            }
            "pause" => {
                tokio::time::sleep(Duration::try_from_secs_f64(step.seconds)?).await;
                Ok(())
            }
            other => Err(format!("no such step: {other}").into()),
        }
    }

    async fn start(&mut self, step: Step) -> Result<Arc<Call>, Failure> {
        let call = Arc::new(Call {
            name: step.call,
            progress: AtomicUsize::new(0),
            cancelled: Notify::new(),
            is_settled: watch::Sender::new(false),
        });
        self.calls.insert(call.name.clone(), Arc::clone(&call));
        let params = CallToolRequestParams::new(step.tool).with_arguments(step.arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut options = PeerRequestOptions::no_options();
        options.timeout = step.timeout_seconds.map(Duration::try_from_secs_f64).transpose()?;
        let (peer, tokens, started) =
            (self.peer.clone(), Arc::clone(&self.tokens), Arc::clone(&call));
        tokio::spawn(async move {
            let line = run(&peer, &tokens, &started, request, options).await;
            saw(&line);
            started.is_settled.send_replace(true);
        });
        Ok(call)
    }

    fn named(&self, step: &Step) -> Result<&Arc<Call>, Failure> {
        self.calls.get(&step.call).ok_or_else(|| format!("no such call: {}", step.call).into())
    }

    async fn cuts(&self) -> Result<usize, Failure> {
        let state = reqwest::get(format!("{}/state", self.control)).await?.bytes().await?;
        let state: Value = serde_json::from_slice(&state)?;
        Ok(state["cuts"].as_array().map_or(0, Vec::len))
    }
}

/// A call from its request to the line that tells how it ended.
async fn run(
    peer: &Peer<RoleClient>,
    tokens: &Tokens,
    call: &Arc<Call>,
    request: ClientRequest,
    options: PeerRequestOptions,
) -> Value {
    let handle = {
        // Held until the token is known, so that no progress comes before it.
        let mut tokens = tokens.lock().await;
        match peer.send_request_with_option(request, options).await {
            Ok(handle) => {
                tokens.insert(handle.progress_token.clone(), Arc::clone(call));
                handle
            }
            Err(error) => return failed(call, &error),
        }
    };
    let id = handle.id.clone();
    tokio::select! {
        answer = handle.await_response() => match answer {
            Ok(ServerResult::CallToolResult(result)) => json!({
                "saw": "result", "call": call.name,
                "error": result.is_error == Some(true), "content": result.content,
            }),
            Ok(other) => json!({
                "saw": "error", "call": call.name, "type": "UnexpectedResponse",
                "message": format!("{other:?}"),
            }),
            Err(error) => failed(call, &error),
        },
        () = call.cancelled.notified() => {
            let note = CancelledNotificationParam::new(Some(id), Some("cancelled by e2e".into()));
            match peer.notify_cancelled(note).await {
                Ok(()) => json!({
                    "saw": "error", "call": call.name, "type": "cancelled",
                    "message": "cancelled by e2e",
                }),
                Err(error) => failed(call, &error),
            }
        }
    }
}

fn failed(call: &Call, error: &ServiceError) -> Value {
    let shown = error.to_string();
    let mut line = json!({
        "saw": "error", "call": call.name, "type": "ServiceError", "message": shown,
    });
    if let ServiceError::McpError(error) = error {
        line["type"] = json!("McpError");
        line["code"] = json!(error.code.0);
        line["message"] = json!(error.message);
        line["data"] = json!(error.data);
        line["shown"] = json!(shown);
    }
    line
}

async fn poll(deadline: Instant, what: &str) -> Result<(), Failure> {
    if Instant::now() > deadline {
        return Err(format!("waited {} s in vain for {what}", WAIT.as_secs()).into());
    }
    tokio::time::sleep(POLL).await;
    Ok(())
}

fn saw(line: &Value) {
    // Nobody reads any more: there is nobody to tell it to either.
    let _ = writeln!(io::stdout().lock(), "{line}");
}

// On one thread the SDK hands notifications over in their order; on several it promises none.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(control)) = (args.next(), args.next()) else {
        return Err("usage: e2e-rmcp-client URL CONTROL_URL < steps.json".into());
    };
    let steps: Vec<Step> = serde_json::from_reader(io::stdin())?;
    let application = Application { tokens: Tokens::default() };
    let tokens = Arc::clone(&application.tokens);
    let client = application.serve(StreamableHttpClientTransport::from_uri(url)).await?;
    let mut driver = Driver { peer: client.peer().clone(), control, tokens, calls: HashMap::new() };
    for step in steps {
        driver.step(step).await?;
    }
    saw(&json!({ "saw": "end" }));
    client.cancel().await?;
    Ok(())
}
