//! Tools of `rejoin tool-server` on a server of the Rust SDK, over Streamable HTTP.
//!
//! `rmcp-tools COUNT_FILE [PORT]`; it prints `listening on URL` and ends with its standard
//! input. It serves both eras: 2025-11-25 with sessions, 2026-07-28 without. Names and arguments
//! are those of the built-in server; the file gets one line for each execution of `charge`.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt as _;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientResult, ErrorData,
    InputRequiredResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, ServerRequest, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

type Context = RequestContext<RoleServer>;
type Answer = Result<CallToolResponse, ErrorData>;

/// The name by which a client of 2026-07-28 brings its answer back.
const SAID: &str = "said";

/// The server; clones count in the same file.
#[derive(Clone)]
struct Tools {
    count_file: PathBuf,
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn answer(text: &str, is_error: bool) -> Answer {
    let content = json!([{ "type": "text", "text": text }]);
    let result = json!({ "resultType": "complete", "content": content, "isError": is_error });
    let result: CallToolResult = serde_json::from_value(result).map_err(failed)?;
    Ok(result.into())
}

impl Tools {
    /// One line per execution, synced to disk.
    fn count(&self, amount: u64) -> std::io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.count_file)?;
        writeln!(file, "charge {}", json!({ "amount": amount }))?;
        file.sync_data()
    }

    async fn charge(&self, arguments: &Map<String, Value>, context: &Context) -> Answer {
        let number = |name: &str| arguments.get(name).and_then(Value::as_u64).unwrap_or(0);
        let amount = number("amount");
        let bytes = usize::try_from(number("event_bytes")).map_err(failed)?;
        self.count(amount).map_err(failed)?;
        for event in 1..=number("events") {
            // No timer without an interval: the least that one waits is a millisecond.
            let pause = async {
                match number("interval_ms") {
                    0 => tokio::task::yield_now().await,
                    interval => tokio::time::sleep(Duration::from_millis(interval)).await,
                }
            };
            tokio::select! {
                () = pause => {}
                () = context.ct.cancelled() => return Err(failed("cancelled")),
            }
            if let Some(token) = context.meta.get_progress_token() {
                let progress = f64::from(u32::try_from(event).map_err(failed)?);
                let mut progress = ProgressNotificationParam::new(token, progress);
                progress.message = Some(".".repeat(bytes));
                // Whether anybody still listens does not matter to a charge.
                let _told = context.peer.notify_progress(progress).await.is_ok();
            }
        }
        let fails = arguments.get("fail").and_then(Value::as_bool).unwrap_or(false);
        let verb = if fails { "could not charge" } else { "charged" };
        answer(&format!("{verb} {amount}"), fails)
    }
}

/// Asks the client once: by a request in its session, or since 2026-07-28 by the call's result.
/// None when the answer comes with the call sent again.
async fn ask(
    question: Value,
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<Result<Value, InputRequiredResult>, ErrorData> {
    if let Some(said) = request.input_responses.as_ref().and_then(|said| said.get(SAID)) {
        return serde_json::to_value(said).map(Ok).map_err(failed);
    }
    if context.meta.protocol_version().is_some() {
        let asked = serde_json::from_value(json!({ SAID: question })).map_err(failed)?;
        return Ok(Err(InputRequiredResult::new(Some(asked), None)));
    }
    let question: ServerRequest = serde_json::from_value(question).map_err(failed)?;
    let said: ClientResult = context.peer.send_request(question).await.map_err(failed)?;
    serde_json::to_value(said).map(Ok).map_err(failed)
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({ "type": "object" }).as_object().cloned().unwrap_or_default();
        let tools = [
            ("charge", "Charges an account. Two executions charge twice."),
            ("get", "Reads, changes nothing, and answers at once."),
            ("ask", "Asks the client's user a question."),
            ("sample", "Asks the client's model."),
        ];
        let hints = |name| ToolAnnotations::new().read_only(name == "get");
        let tools = tools
            .map(|(name, does)| Tool::new(name, does, schema.clone()).annotate(hints(name)))
            .to_vec();
        Ok(ListToolsResult { tools, ..ListToolsResult::default() })
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: Context) -> Answer {
        let arguments = request.arguments.clone().unwrap_or_default();
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let (question, at) = match &*request.name {
            "charge" => return self.charge(&arguments, &context).await,
            "get" => return answer("The account is open.", false),
            "ask" => {
                let properties = json!({ "answer": { "type": "string" } });
                let form = json!({ "type": "object", "properties": properties });
                let message = text("question");
                let params = json!({ "mode": "form", "message": message, "requestedSchema": form });
                (json!({ "method": "elicitation/create", "params": params }), "/content/answer")
            }
            "sample" => {
                let content = json!({ "type": "text", "text": text("prompt") });
                let messages = json!([{ "role": "user", "content": content }]);
                let params = json!({ "messages": messages, "maxTokens": 200 });
                (json!({ "method": "sampling/createMessage", "params": params }), "/content/text")
            }
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        match ask(question, &request, &context).await? {
            Ok(said) => answer(&said.pointer(at).unwrap_or(&said).to_string(), false),
            Err(required) => Ok(required.into()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let count_file = std::env::args_os().nth(1).ok_or("usage: rmcp-tools COUNT_FILE [PORT]")?;
    let port = std::env::args().nth(2).map_or(Ok(0), |port| port.parse::<u16>())?;
    let tools = Tools { count_file: count_file.into() };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(std::io::stdout(), "listening on http://{}/mcp", listener.local_addr()?)?;
    let service = StreamableHttpService::new(
        move || Ok(tools.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    // Without this each answer waits for the client's delayed acknowledgement, 40 ms.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let app = Router::new().route_service("/mcp", service);
    let mut rest = Vec::new();
    let mut input = tokio::io::stdin();
    // A stream that nobody closes must not hold up the end.
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = input.read_to_end(&mut rest) => {}
    }
    std::process::exit(0)
}
