//! A server as anybody writes one with rmcp: nothing in here knows Rejoin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Map, Value, json};

/// Steps of a charge that says nothing of them.
const STEPS: u64 = 10;
/// Pause between two steps of a charge that says nothing of it.
const PAUSE_MS: u64 = 500;

/// Charges money, slowly: what must not happen twice. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charges {
    executed: Arc<AtomicU64>,
}

impl Charges {
    /// Charges that were begun.
    pub(crate) fn executed(&self) -> u64 {
        self.executed.load(Ordering::SeqCst)
    }

    async fn charge(
        &self,
        arguments: &Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> String {
        let number = self.executed.fetch_add(1, Ordering::SeqCst) + 1;
        let choice =
            |name: &str, default| arguments.get(name).and_then(Value::as_u64).unwrap_or(default);
        let (steps, pause_ms) = (choice("steps", STEPS), choice("pause_ms", PAUSE_MS));
        for step in 1..=steps {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            if let Some(token) = context.meta.get_progress_token() {
                let progress = f64::from(u32::try_from(step).unwrap_or(u32::MAX));
                let progress = ProgressNotificationParam::new(token, progress);
                // Whether anybody still listens does not matter to a charge.
                let _told = context.peer.notify_progress(progress).await.is_ok();
            }
        }
        format!("charge number {number}")
    }
}

impl ServerHandler for Charges {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = |schema: Value| schema.as_object().cloned().unwrap_or_default();
        let number = json!({ "type": "integer", "minimum": 0 });
        let properties = json!({ "amount": number, "steps": number, "pause_ms": number });
        let charge = schema(json!({ "type": "object", "properties": properties }));
        let tools = vec![
            Tool::new("charge", "Charges an amount, step by step", charge),
            Tool::new("count", "How many charges were begun", schema(json!({ "type": "object" }))),
        ];
        Ok(ListToolsResult { tools, ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = match &*request.name {
            "charge" => self.charge(&request.arguments.unwrap_or_default(), &context).await,
            "count" => self.executed().to_string(),
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}
