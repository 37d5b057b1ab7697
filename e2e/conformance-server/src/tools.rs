//! The tools that do things while they run.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientResult,
    ErrorData, ProgressNotificationParam, ServerNotification, ServerRequest,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use crate::handler::{Change, Conformance, result, typed};
use crate::{catalog, input};

/// Between two messages of a tool.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a client that was cut off has to come back before there is an answer.
const CUT: Duration = Duration::from_millis(1_200);
/// What a client that was cut off is told to wait.
const RETRY: Duration = Duration::from_millis(500);
/// rmcp numbers the streams of a session; the suite's session has fewer.
const STREAMS_MAX: u64 = 32;

/// The result of a call, with this content.
pub(crate) fn answer(content: &[Value]) -> Result<CallToolResponse, ErrorData> {
    let answer: CallToolResult = result(json!({ "content": content }))?;
    Ok(answer.into())
}

/// Any tool but those of [`input`].
pub(crate) async fn call(
    server: &Conformance,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let arguments = request.arguments.unwrap_or_default();
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let done = || answer(&[catalog::text("Done.")]);
    match &*request.name {
        "test_simple_text" => {
            answer(&[catalog::text("This is a simple text response for testing.")])
        }
        "test_image_content" => answer(&[catalog::image()]),
        "test_audio_content" => answer(&[catalog::audio()]),
        "test_embedded_resource" => answer(&[catalog::embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )]),
        "test_multiple_content_types" => {
            let data = json!({ "test": "data", "value": 123 }).to_string();
            answer(&[
                catalog::text("Multiple content types test:"),
                catalog::image(),
                catalog::embedded("test://mixed-content-resource", "application/json", &data),
            ])
        }
        "test_error_handling" => {
            let text = catalog::text("This tool intentionally returns an error for testing");
            let answer: CallToolResult = result(json!({ "content": [text], "isError": true }))?;
            Ok(answer.into())
        }
        "test_tool_with_logging" | "test_logging_tool" => {
            log(context).await?;
            done()
        }
        "test_tool_with_progress" => {
            progress(context).await?;
            done()
        }
        "test_reconnection" => {
            cut(server, context).await;
            done()
        }
        "test_sampling" => sample(argument("prompt"), context).await,
        "test_elicitation" => elicit_user(argument("message"), context).await,
        "test_elicitation_sep1034_defaults" => elicit(&defaults(), context).await,
        "test_elicitation_sep1330_enums" => elicit(&enums(), context).await,
        "test_missing_capability" => {
            if context.client_capabilities().is_none_or(|able| able.sampling.is_none()) {
                let needed = ClientCapabilities::builder().enable_sampling().build();
                return Err(ErrorData::missing_required_client_capability(needed));
            }
            done()
        }
        "test_streaming_elicitation" => {
            progress(context).await?;
            let asked = input::question("What is your name?", "name", "string");
            Ok(input::required(json!({ "user_name": asked }), None)?.into())
        }
        "test_trigger_tool_change" => change(server, Change::Tools),
        "test_trigger_prompt_change" => change(server, Change::Prompts),
        "test_custom_header" => answer(&[catalog::text(argument("region"))]),
        "json_schema_2020_12_tool" => done(),
        other => Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
    }
}

fn change(server: &Conformance, change: Change) -> Result<CallToolResponse, ErrorData> {
    // That nobody listens is no error.
    let listeners = server.changes.send(change).unwrap_or(0);
    answer(&[catalog::text(&format!("Told {listeners} subscribers."))])
}

/// Three messages; since 2026-07-28 only to a client that asked for them.
async fn log(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let is_silent = context.meta.protocol_version().is_some() && context.meta.log_level().is_none();
    for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        if !is_silent {
            let message: ServerNotification = typed(json!({
                "method": "notifications/message",
                "params": { "level": "info", "data": text },
            }))?;
            context.peer.send_notification(message).await.map_err(failed)?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn progress(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    for step in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let step = ProgressNotificationParam::new(token, step).with_total(100.0);
            context.peer.notify_progress(step).await.map_err(failed)?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Ends the streams of the client's session, of which there is one: that of this call.
async fn cut(server: &Conformance, context: &RequestContext<RoleServer>) {
    tokio::time::sleep(PAUSE).await;
    let parts = context.extensions.get::<http::request::Parts>();
    let session =
        parts.and_then(|parts| parts.headers.get("mcp-session-id")).and_then(|id| id.to_str().ok());
    let sessions = server.sessions.sessions.read().await;
    if let Some(handle) = session.and_then(|id| sessions.get(id)) {
        for stream in 0..STREAMS_MAX {
            // Numbers that are not in use are refused.
            let _closed = handle.close_sse_stream(stream, Some(RETRY)).await.is_ok();
        }
    }
    drop(sessions);
    tokio::time::sleep(CUT).await;
}

async fn sample(
    prompt: &str,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let request = json!({
        "method": "sampling/createMessage",
        "params": {
            "messages": [{ "role": "user", "content": catalog::text(prompt) }],
            "maxTokens": 100,
        },
    });
    let result = ask(request, context).await?;
    let text = result["content"]["text"].as_str().unwrap_or_default();
    answer(&[catalog::text(&format!("LLM response: {text}"))])
}

async fn elicit_user(
    message: &str,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let schema = json!({
        "username": { "type": "string", "description": "User's response" },
        "email": { "type": "string", "description": "User's email address" },
    });
    let result = ask(elicitation(message, &schema, &["username", "email"]), context).await?;
    let (action, content) = (&result["action"], &result["content"]);
    answer(&[catalog::text(&format!("User response: action={action}, content={content}"))])
}

async fn elicit(
    properties: &Value,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let result = ask(elicitation("Please fill this in", properties, &[]), context).await?;
    let action = result["action"].as_str().unwrap_or_default();
    let content = &result["content"];
    answer(&[catalog::text(&format!("Elicitation completed: action={action}, content={content}"))])
}

fn elicitation(message: &str, properties: &Value, required: &[&str]) -> Value {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({
        "method": "elicitation/create",
        "params": { "mode": "form", "message": message, "requestedSchema": schema },
    })
}

/// A field of each type, with what it is when the user does not fill it in.
fn defaults() -> Value {
    let states = ["active", "inactive", "pending"];
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": states, "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

/// The five ways to offer a choice.
fn enums() -> Value {
    let options = ["option1", "option2", "option3"];
    let titled = |noun: &str| {
        let numbers = [("value1", "First"), ("value2", "Second"), ("value3", "Third")];
        let entry = |(value, title)| json!({ "const": value, "title": format!("{title} {noun}") });
        numbers.map(entry)
    };
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
    })
}

/// Asks the client something and waits for its answer.
async fn ask(request: Value, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
    let request: ServerRequest = typed(request)?;
    let result: ClientResult = context.peer.send_request(request).await.map_err(failed)?;
    serde_json::to_value(result).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
