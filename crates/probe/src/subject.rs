//! The tool that is called, and how a call of it looks when nothing breaks.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::limits::{
    CALL_MAX_MS, LASTING_MIN_MS, QUICK_MAX_MS, QUOTED_CHARS_MAX, STEPS_MIN, TOOL_PAGES_MAX,
    TOOLS_TRIED_MAX, TRIAL_MAX_MS, ms,
};
use crate::reading::{Reading, Until};
use crate::session::{Session, Trouble, request};
use crate::visible::beginning;

/// A tool with arguments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it is called with.
    pub arguments: Value,
}

/// Why there is no tool to call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The exchange failed.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// There is no list of tools.
    #[error("the server does not list its tools ({0}), and the probe needs one to call")]
    NoList(String),
    /// There are no tools.
    #[error("the server has no tools, and the probe needs one to call")]
    NoTools,
    /// There is no such tool.
    #[error("the server has no tool `{0}`: name one of its tools/list with --tool")]
    NoSuchTool(String),
    /// It is not annotated read-only.
    #[error(
        "`{0}` is not annotated read-only (readOnlyHint), and the probe calls it many times: \
         if that is safe here, say so with --allow-effects"
    )]
    Effects(String),
    /// None is safe to call.
    #[error(
        "no tool is annotated read-only (readOnlyHint) and can be called without arguments of \
         yours: name one that is safe to run many times with --tool, --args and --allow-effects"
    )]
    NoSafeTool,
    /// It cannot be called.
    #[error("an undisturbed call of `{tool}` failed: {what}; give it arguments with --args")]
    Fails {
        /// The tool.
        tool: String,
        /// What came.
        what: String,
    },
}

/// How calls of a tool look when nothing breaks.
#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    /// The tool.
    pub tool: Tool,
    /// How long a call takes.
    pub duration_ms: u64,
    /// The progress it reports.
    pub steps: Vec<f64>,
    /// Whether two calls reported the same progress.
    pub steady: bool,
    /// Whether the answers of two calls differ, so that an answer tells which execution it is of.
    pub distinct: bool,
    /// Whether the events of its answer have ids, so that it can be resumed.
    pub ids: bool,
}

/// One call of a tool, told from all others of the run by its token.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its JSON-RPC id.
    pub id: Value,
    /// Its progress token.
    pub token: Value,
    /// The request.
    pub message: Value,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Call {
    /// A call with an id of its own, and the id as its token, as stock clients do it.
    pub fn new(tool: &Tool) -> Self {
        Self::with(tool, NEXT.fetch_add(1, Ordering::Relaxed).into())
    }

    /// A call with this id.
    pub fn with(tool: &Tool, id: Value) -> Self {
        let token = id.clone();
        let params = json!({
            "name": tool.name,
            "arguments": tool.arguments,
            "_meta": { "progressToken": token },
        });
        let message = request(id.clone(), "tools/call", &params);
        Self { id, token, message }
    }

    /// Gives it a progress token that is not its id.
    pub fn set_token(&mut self, token: &str) {
        self.token = token.into();
        self.message["params"]["_meta"]["progressToken"] = token.into();
    }
}

impl Subject {
    /// Whether a call lasts long enough to be interrupted for sure.
    pub fn lasts(&self) -> bool {
        self.duration_ms >= LASTING_MIN_MS
    }

    /// Whether the tail of an interrupted call can be judged.
    pub fn has_tail(&self) -> bool {
        self.lasts() && self.steps.len() >= STEPS_MIN
    }

    /// As it may be shown: without what a server put into it of what is secret.
    pub(crate) fn masked(&self, mask: impl Fn(&str) -> String) -> Self {
        let name = mask(&self.tool.name);
        let arguments = mask(&self.tool.arguments.to_string());
        let arguments = serde_json::from_str(&arguments).unwrap_or(Value::Null);
        Self { tool: Tool { name, arguments }, ..self.clone() }
    }

    /// In words: what is called, and how it behaves.
    pub fn told(&self) -> String {
        format!(
            "{} {}: {} ms, {} progress events{}, {}",
            beginning(&self.tool.name, QUOTED_CHARS_MAX),
            beginning(&self.tool.arguments.to_string(), QUOTED_CHARS_MAX),
            self.duration_ms,
            self.steps.len(),
            if self.steady { "" } else { " (not always the same)" },
            if self.ids { "with event ids" } else { "without event ids" },
        )
    }

    /// Calls a tool twice without breaking anything.
    ///
    /// # Errors
    /// See [`ChoiceError`].
    pub async fn calibrate(session: &Session, tool: &Tool) -> Result<Self, ChoiceError> {
        let first = undisturbed(session, tool, CALL_MAX_MS).await?;
        let second = undisturbed(session, tool, CALL_MAX_MS).await?;
        let duration = first.took.max(second.took).as_millis();
        let values = |reading: &Reading| -> Vec<f64> {
            reading.steps().iter().map(|step| step.progress).collect()
        };
        let result = |reading: &Reading| {
            reading.messages().find_map(|message| message.get("result")).cloned()
        };
        let with_ids = |reading: &Reading| {
            let mut messages = reading.heard.iter().filter(|heard| heard.message.is_some());
            reading.event_stream && messages.all(|heard| heard.id.is_some())
        };
        Ok(Self {
            tool: tool.clone(),
            duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
            steady: values(&first) == values(&second),
            distinct: result(&first) != result(&second),
            ids: with_ids(&first) && with_ids(&second),
            steps: values(&first),
        })
    }
}

async fn undisturbed(
    session: &Session,
    tool: &Tool,
    limit_ms: u64,
) -> Result<Reading, ChoiceError> {
    let fails = |what: String| {
        let name = beginning(&session.masked(&tool.name), QUOTED_CHARS_MAX);
        ChoiceError::Fails { tool: name, what: session.masked(&what) }
    };
    let call = Call::new(tool);
    let mut exchange = session.post(&call.message).await.map_err(Trouble::from)?;
    let until = Until::response(&call.id).within(ms(limit_ms));
    let reading = Reading::of(&mut exchange, until).await.map_err(Trouble::from)?;
    let Some(response) = reading.response(&call.id) else {
        let told = reading.error().unwrap_or_else(|| reading.ending());
        return Err(fails(told));
    };
    if response.get("error").is_some() {
        return Err(fails(reading.error().unwrap_or_default()));
    }
    if response["result"]["isError"] == true {
        return Err(fails("its result says that it failed (isError)".to_owned()));
    }
    Ok(reading)
}

/// The tools of a server, of all pages of its list.
///
/// # Errors
/// The exchange failed, or there is no list, or it is empty.
pub(crate) async fn tools(session: &Session) -> Result<Vec<Value>, ChoiceError> {
    let (mut all, mut params) = (Vec::new(), json!({}));
    for page in 0..TOOL_PAGES_MAX {
        let id = json!(format!("tools-{page}"));
        let list = session.post(&request(id.clone(), "tools/list", &params)).await;
        let mut exchange = list.map_err(Trouble::from)?;
        let reading = Reading::of(&mut exchange, Until::response(&id)).await;
        let reading = reading.map_err(Trouble::from)?;
        let response = reading.response(&id);
        let Some(tools) = response.and_then(|response| response["result"]["tools"].as_array())
        else {
            let told = reading.error().unwrap_or_else(|| reading.ending());
            return Err(ChoiceError::NoList(session.masked(&told)));
        };
        all.extend(tools.iter().cloned());
        match response.map(|response| &response["result"]["nextCursor"]) {
            Some(Value::String(cursor)) => params = json!({ "cursor": cursor }),
            _ => break,
        }
    }
    if all.is_empty() {
        return Err(ChoiceError::NoTools);
    }
    Ok(all)
}

/// The named tool, if it may be called.
///
/// # Errors
/// See [`ChoiceError`].
pub(crate) fn named(
    tools: &[Value],
    tool: &Tool,
    allow_effects: bool,
) -> Result<Tool, ChoiceError> {
    let found = tools.iter().find(|one| one["name"] == tool.name.as_str());
    let found = found.ok_or_else(|| ChoiceError::NoSuchTool(tool.name.clone()))?;
    if !is_read_only(found) && !allow_effects {
        return Err(ChoiceError::Effects(tool.name.clone()));
    }
    Ok(tool.clone())
}

/// A read-only tool that sends progress, or one that does not, and why that one.
///
/// # Errors
/// See [`ChoiceError`].
pub(crate) async fn choose(
    session: &Session,
    tools: &[Value],
    arguments: Option<&Value>,
) -> Result<Tool, ChoiceError> {
    let (mut quiet, mut failed) = (None, ChoiceError::NoSafeTool);
    for tool in candidates(tools, arguments) {
        match undisturbed(session, &tool, TRIAL_MAX_MS).await {
            Ok(reading) if reading.steps().len() >= STEPS_MIN => return Ok(tool),
            Ok(_) => quiet = quiet.or(Some(tool)),
            Err(error) => failed = error,
        }
    }
    quiet.ok_or(failed)
}

/// A read-only tool that answers at once, if there is one beside the one that is probed.
pub(crate) async fn quick(session: &Session, tools: &[Value], beside: &Tool) -> Option<Tool> {
    let others = candidates(tools, None).into_iter().filter(|tool| tool.name != beside.name);
    for tool in others {
        let read = undisturbed(session, &tool, QUICK_MAX_MS).await;
        if read.is_ok_and(|reading| reading.steps().is_empty()) {
            return Some(tool);
        }
    }
    None
}

/// Read-only tools to try, those first whose description promises that they last.
fn candidates(tools: &[Value], arguments: Option<&Value>) -> Vec<Tool> {
    let mut safe: Vec<&Value> = tools.iter().filter(|tool| is_read_only(tool)).collect();
    let promises = |tool: &Value| {
        let text = tool.to_string().to_lowercase();
        !["progress", "long", "slow", "steps"].iter().any(|word| text.contains(word))
    };
    safe.sort_by_key(|tool| promises(tool));
    let callable = safe.into_iter().filter_map(|tool| {
        let name = tool["name"].as_str()?.to_owned();
        let arguments = match arguments {
            Some(arguments) => arguments.clone(),
            None => invented(&tool["inputSchema"])?,
        };
        Some(Tool { name, arguments })
    });
    callable.take(TOOLS_TRIED_MAX).collect()
}

fn is_read_only(tool: &Value) -> bool {
    tool["annotations"]["readOnlyHint"] == true
}

/// The least that a schema requires; `None` if that cannot be made up.
fn invented(schema: &Value) -> Option<Value> {
    let mut arguments = Map::new();
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str()?;
        let property = &schema["properties"][name];
        let first = property["enum"].as_array().and_then(|values| values.first());
        let value = match (property.get("default").or(first), property["type"].as_str()) {
            (Some(value), _) => value.clone(),
            (None, Some("string")) => json!("probe"),
            (None, Some("integer" | "number")) => {
                property.get("minimum").cloned().unwrap_or_else(|| json!(1))
            }
            (None, Some("boolean")) => json!(false),
            _ => return None,
        };
        arguments.insert(name.to_owned(), value);
    }
    Some(Value::Object(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_read_only_tools_are_candidates_and_their_arguments_are_made_up() {
        let number = json!({ "type": "integer", "minimum": 3 });
        let tools = [
            json!({ "name": "erase" }),
            json!({ "name": "read", "annotations": { "readOnlyHint": true } }),
            json!({ "name": "odd", "annotations": { "readOnlyHint": true }, "inputSchema": {
                "required": ["x"], "properties": { "x": { "type": "object" } },
            } }),
            json!({ "name": "long", "annotations": { "readOnlyHint": true }, "inputSchema": {
                "required": ["n", "s"],
                "properties": { "n": number, "s": { "type": "string" } },
            } }),
        ];
        let found = candidates(&tools, None);
        let long = Tool { name: "long".to_owned(), arguments: json!({ "n": 3, "s": "probe" }) };
        assert_eq!(found, [long, Tool { name: "read".to_owned(), arguments: json!({}) }]);
    }

    #[test]
    fn a_tool_with_effects_needs_leave() {
        let tools = [json!({ "name": "erase" })];
        let tool = Tool { name: "erase".to_owned(), arguments: json!({}) };
        assert!(matches!(named(&tools, &tool, false), Err(ChoiceError::Effects(_))));
        assert!(named(&tools, &tool, true).is_ok());
        let other = Tool { name: "other".to_owned(), ..tool };
        assert!(matches!(named(&tools, &other, true), Err(ChoiceError::NoSuchTool(_))));
    }
}
