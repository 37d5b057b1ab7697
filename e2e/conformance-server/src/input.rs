//! Calls of 2026-07-28 that end with questions, and are sent again with the answers.

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, GetPromptRequestParams, GetPromptResponse,
    InputRequiredResult, InputResponses,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use crate::catalog;
use crate::handler::{Conformance, result, typed};
use crate::tools::answer;

/// A question to the user for one text.
pub(crate) fn question(message: &str, field: &str, kind: &str) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "mode": "form",
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { field: { "type": kind } },
            "required": [field],
        },
    } })
}

fn sample(prompt: &str, tokens_max: u32) -> Value {
    json!({ "method": "sampling/createMessage", "params": {
        "messages": [{ "role": "user", "content": catalog::text(prompt) }],
        "maxTokens": tokens_max,
    } })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// What ends a call with questions.
pub(crate) fn required(
    requests: Value,
    state: Option<String>,
) -> Result<InputRequiredResult, ErrorData> {
    Ok(InputRequiredResult::new(Some(typed(requests)?), state))
}

/// The answers of a call that is sent again: all that were asked for, or none.
struct Answers<'a> {
    responses: Option<&'a InputResponses>,
}

impl<'a> Answers<'a> {
    /// The answer by this name, if it is one that was accepted.
    fn get(&self, name: &str) -> Option<&'a Value> {
        let answer = self.responses?.get(name)?;
        let is_refused =
            answer.get("action").is_some_and(|action| action.as_str() != Some("accept"));
        (answer.is_object() && !is_refused).then_some(answer)
    }

    /// What the user wrote into a field.
    fn field(&self, name: &str, field: &str) -> Option<&'a str> {
        self.get(name)?.get("content")?.get(field)?.as_str()
    }
}

/// A tool of this kind.
pub(crate) fn call(
    server: &Conformance,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let answers = Answers { responses: request.input_responses.as_ref() };
    let name_question = || question("What is your name?", "name", "string");
    let done = |text: &str| answer(&[catalog::text(text)]);
    match request.name.trim_start_matches("test_input_required_result_") {
        "elicitation" => match answers.field("user_name", "name") {
            Some(name) => done(&format!("Hello, {name}!")),
            None => Ok(required(json!({ "user_name": name_question() }), None)?.into()),
        },
        "sampling" => match answers.get("capital_question") {
            Some(sampled) => done(&sampled["content"].to_string()),
            None => {
                let asked = sample("What is the capital of France?", 100);
                Ok(required(json!({ "capital_question": asked }), None)?.into())
            }
        },
        "list_roots" => match answers.get("client_roots") {
            Some(listed) => done(&format!("Roots: {}", listed["roots"])),
            None => Ok(required(json!({ "client_roots": roots() }), None)?.into()),
        },
        "request_state" | "tampered_state" => {
            if opened(server, request)?.is_some() && answers.get("confirm").is_some() {
                return done("state-ok");
            }
            let asked = json!({ "confirm": question("Please confirm", "ok", "boolean") });
            Ok(required(asked, Some(server.seal.seal(b"confirm")))?.into())
        }
        "multiple_inputs" => {
            let names = ["user_name", "greeting", "client_roots"];
            let all = names.into_iter().all(|name| answers.get(name).is_some());
            if opened(server, request)?.is_some() && all {
                return done("All three arrived.");
            }
            let asked = json!({
                "user_name": name_question(),
                "greeting": sample("Generate a greeting", 50),
                "client_roots": roots(),
            });
            Ok(required(asked, Some(server.seal.seal(b"all")))?.into())
        }
        "multi_round" => multi_round(server, request, &answers),
        "capabilities" => capabilities(context),
        other => Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
    }
}

/// What a client brought back of what was sealed for it, or that somebody changed it.
fn opened(
    server: &Conformance,
    request: &CallToolRequestParams,
) -> Result<Option<Vec<u8>>, ErrorData> {
    let open = |state: &String| {
        server.seal.open(state).map_err(|error| ErrorData::invalid_params(error.to_string(), None))
    };
    request.request_state.as_ref().map(open).transpose()
}

fn multi_round(
    server: &Conformance,
    request: &CallToolRequestParams,
    answers: &Answers<'_>,
) -> Result<CallToolResponse, ErrorData> {
    let state = opened(server, request)?;
    match state.as_deref() {
        Some(b"step 1") if answers.field("step1", "name").is_some() => {
            let asked = question("Step 2: What is your favorite color?", "color", "string");
            Ok(required(json!({ "step2": asked }), Some(server.seal.seal(b"step 2")))?.into())
        }
        Some(b"step 2") if answers.field("step2", "color").is_some() => {
            answer(&[catalog::text("Both steps are done.")])
        }
        _ => {
            let asked = question("Step 1: What is your name?", "name", "string");
            Ok(required(json!({ "step1": asked }), Some(server.seal.seal(b"step 1")))?.into())
        }
    }
}

/// Asks for each thing that the client says it can do.
fn capabilities(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    let able = context.client_capabilities().unwrap_or_default();
    let mut asked = json!({});
    if able.elicitation.is_some() {
        asked["user_name"] = question("What is your name?", "name", "string");
    }
    if able.sampling.is_some() {
        asked["greeting"] = sample("Generate a greeting", 50);
    }
    if able.roots.is_some() {
        asked["client_roots"] = roots();
    }
    if asked == json!({}) {
        return answer(&[catalog::text("Nothing to ask.")]);
    }
    Ok(required(asked, None)?.into())
}

/// The prompt of this kind.
pub(crate) fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let answers = Answers { responses: request.input_responses.as_ref() };
    let Some(chosen) = answers.field("user_context", "context") else {
        let asked = question("What context should the prompt use?", "context", "string");
        return Ok(required(json!({ "user_context": asked }), None)?.into());
    };
    let content = catalog::text(&format!("Use this context: {chosen}"));
    let messages = json!({ "messages": [{ "role": "user", "content": content }] });
    Ok(GetPromptResponse::Complete(result(messages)?))
}
