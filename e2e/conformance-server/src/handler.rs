//! The parts of the protocol that are not tool calls.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData,
    GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, RequestStateCodec,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::{catalog, input, tools};

/// Changes that a subscriber may be behind.
const CHANGES_MAX: usize = 64;

/// A list that changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Tools,
    Prompts,
}

/// The server. Clones share their subscribers.
#[derive(Clone)]
pub(crate) struct Conformance {
    /// rmcp's sessions, to end a stream in the midst of a call.
    pub(crate) sessions: Arc<LocalSessionManager>,
    /// Who listens for changes of lists.
    pub(crate) changes: broadcast::Sender<Change>,
    /// Seals what clients are to bring back.
    pub(crate) seal: RequestStateCodec,
    tools: Arc<Vec<Tool>>,
}

impl Conformance {
    /// A server whose sessions are these.
    pub(crate) fn new(sessions: Arc<LocalSessionManager>) -> Result<Self, ErrorData> {
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        let seal = RequestStateCodec::try_new(*b"a key of tests, and of tests only")
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let tools = Arc::new(typed(catalog::tools())?);
        Ok(Self { sessions, changes, seal, tools })
    }
}

/// A value of the protocol from its JSON, which is how the suites describe it.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// As [`typed`], for a result: since 2026-07-28 it says that it is complete. rmcp takes that away
/// from results for older clients.
pub(crate) fn result<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    value["resultType"] = json!("complete");
    typed(value)
}

impl ServerHandler for Conformance {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("conformance-server", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult { tools: self.tools.to_vec(), ..ListToolsResult::default() })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name.starts_with("test_input_required_result_") {
            return input::call(self, &request, &context);
        }
        tools::call(self, request, &context).await
    }

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        result(catalog::prompts())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == "test_input_required_result_prompt" {
            return input::prompt(&request);
        }
        let arguments = request.arguments.unwrap_or_default();
        let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let contents = match &*request.name {
            "test_simple_prompt" => vec![catalog::text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments" => {
                let (one, two) = (argument("arg1"), argument("arg2"));
                vec![catalog::text(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
            }
            "test_prompt_with_embedded_resource" => vec![
                catalog::embedded(
                    argument("resourceUri"),
                    "text/plain",
                    "Embedded resource content for testing.",
                ),
                catalog::text("Please process the embedded resource above."),
            ],
            "test_prompt_with_image" => {
                vec![catalog::image(), catalog::text("Please analyze the image above.")]
            }
            other => return Err(ErrorData::invalid_params(format!("no prompt {other}"), None)),
        };
        let message = |content| json!({ "role": "user", "content": content });
        let messages: Vec<Value> = contents.into_iter().map(message).collect();
        Ok(GetPromptResponse::Complete(result(json!({ "messages": messages }))?))
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        result(catalog::resources())
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        result(catalog::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let Some(contents) = catalog::resource(&uri) else {
            return Err(ErrorData::resource_not_found(
                "Resource not found",
                Some(json!({ "uri": uri })),
            ));
        };
        let read: ReadResourceResult = result(json!({ "contents": [contents] }))?;
        Ok(ReadResourceResponse::Complete(read))
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let begun = request.argument.value;
        let values: Vec<&str> = ["paris", "park", "party"]
            .into_iter()
            .filter(|value| value.starts_with(&*begun))
            .collect();
        result(json!({ "completion": { "values": values, "hasMore": false } }))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let wanted = subscription.accepted();
            let sink = subscription.sink();
            let sent = match change {
                Ok(Change::Tools) if wanted.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                Ok(Change::Prompts) if wanted.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => Ok(()),
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
            if sent.is_err() {
                return Ok(());
            }
        }
    }
}
