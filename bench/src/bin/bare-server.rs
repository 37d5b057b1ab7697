//! The server that `load` measures: rmcp on axum with `TCP_NODELAY`.
//!
//! `bare-server PORT` as it is; `bare-server PORT memory`, `PORT calls DIR` or `PORT events DIR`
//! with Rejoin's layer around it; `bare-server stdio` on its standard input and output.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::serve::ListenerExt as _;
use rejoin_gateway::{LayerConfig, RejoinLayer};
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Context = RequestContext<RoleServer>;

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[derive(Clone)]
struct Tools;

impl Tools {
    /// As many progress events as asked for, as fast as they are taken.
    async fn stream(request: &CallToolRequestParams, context: &Context) -> Result<(), ErrorData> {
        let number = |name: &str| {
            request.arguments.as_ref().and_then(|all| all.get(name)).and_then(Value::as_u64)
        };
        let text = "x".repeat(usize::try_from(number("bytes").unwrap_or(0)).map_err(failed)?);
        let token = context.meta.get_progress_token();
        for event in 1..=number("events").unwrap_or(0) {
            if let Some(token) = token.clone() {
                let progress = f64::from(u32::try_from(event).map_err(failed)?);
                let param = ProgressNotificationParam::new(token, progress).with_message(&text);
                context.peer.notify_progress(param).await.map_err(failed)?;
            }
        }
        Ok(())
    }
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
        let reads = ToolAnnotations::new().read_only(true);
        let tools = vec![
            Tool::new("get", "Answers at once.", schema.clone()),
            Tool::new("look", "The same, and only reads.", schema.clone()).with_annotations(reads),
            Tool::new("stream", "Reports progress, then answers.", schema),
        ];
        Ok(ListToolsResult { tools, ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "stream" {
            Self::stream(&request, &context).await?;
        }
        let content = json!([{ "type": "text", "text": "The account is open." }]);
        let result = json!({ "resultType": "complete", "content": content, "isError": false });
        let result: CallToolResult = serde_json::from_value(result).map_err(failed)?;
        Ok(result.into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if arguments == ["stdio"] {
        Tools.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let port: u16 = arguments.first().ok_or("usage: bare-server PORT [LOG [DIR]]")?.parse()?;
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = None;
    let service = StreamableHttpService::new(
        || Ok(Tools),
        Arc::new(sessions),
        StreamableHttpServerConfig::default(),
    );
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let mut config = LayerConfig { name: "bench".to_owned(), ..LayerConfig::default() };
    config.settings.trust_annotations = true;
    match arguments[1..] {
        [] => {
            let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            axum::serve(listener, Router::new().fallback_service(service)).await?;
            return Ok(());
        }
        ["memory"] => {}
        [log @ ("calls" | "events"), directory] => {
            let durability = if log == "calls" { Durability::Calls } else { Durability::Events };
            let options = SqliteOptions::new(durability, &config.settings.limits);
            config.store = Some(Arc::new(SqliteStore::open(Path::new(directory), options)?));
        }
        _ => return Err(format!("no log is called {:?}", &arguments[1..]).into()),
    }
    let mcp = RejoinLayer::with(config)?.layer(service);
    rejoin_gateway::serve(listener, mcp, std::future::pending()).await;
    Ok(())
}
