//! The tools but `charge`, and what all of them share.

use std::io::Write;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::arguments;
use super::call::Call;
use super::charge::Charge;
use super::message::{self, Failure, INTERNAL_ERROR, INVALID_PARAMS};
use super::server::Server;

/// Exit status of a crash that was ordered.
const EXIT_CRASHED: i32 = 3;

/// Longest wait of `slow`.
const SLOW_SECONDS_MAX: f64 = 86_400.0;

/// Most notifications of one `notify`.
const NOTIFICATIONS_MAX: u64 = 100_000;

/// What the tools remember; lost when the process ends.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) charges: AtomicU64,
    reads: AtomicU64,
    state: Mutex<Option<String>>,
}

/// One `tools/call` on its way.
pub(super) struct Execution {
    pub(super) server: Arc<Server>,
    pub(super) call: Arc<Call>,
    pub(super) tool_name: String,
    /// The arguments as the client wrote them.
    pub(super) arguments: Box<RawValue>,
    pub(super) progress_token: Option<Box<RawValue>>,
}

/// How an execution ended.
pub(super) enum Outcome {
    /// The tool has a result, good or bad.
    Result(ToolResult),
    /// The request itself fails.
    Failure(Failure),
    /// The call was cancelled: no response (2025-11-25 `basic/utilities/cancellation`).
    Silence,
}

/// A `CallToolResult`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolResult {
    content: Vec<TextContent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
}

#[derive(Serialize)]
struct TextContent {
    r#type: &'static str,
    text: String,
}

impl ToolResult {
    pub(super) fn text(text: impl Into<String>) -> Self {
        let content = vec![TextContent { r#type: "text", text: text.into() }];
        Self { content, structured_content: None, is_error: false }
    }

    pub(super) fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// With one more block of text.
    pub(super) fn and_text(mut self, text: String) -> Self {
        self.content.push(TextContent { r#type: "text", text });
        self
    }

    /// With the same said in JSON.
    pub(super) fn structured(self, value: &impl Serialize) -> Self {
        Self { structured_content: to_raw_value(value).ok(), ..self }
    }
}

/// A tool with its arguments, both known to be good.
pub(super) enum Tool {
    Charge(Charge),
    Slow(Duration),
    Get,
    Echo,
    Ask(String),
    Sample(String),
    State(Option<String>),
    Crash,
    Notify(u64),
}

impl Tool {
    /// The tool of this name, if it exists and the arguments fit.
    pub(super) fn parse(name: &str, arguments: &RawValue) -> Result<Self, Failure> {
        match name {
            "charge" => Ok(Self::Charge(Charge::parse(arguments)?)),
            "slow" => Self::parse_slow(arguments),
            "get" => Ok(Self::Get),
            "echo" if arguments.get().starts_with('{') => Ok(Self::Echo),
            "echo" => Err(bad_arguments("echo", "`arguments` must be an object")),
            "ask" => parse_arguments("ask", arguments).map(|asked: Ask| Self::Ask(asked.question)),
            "sample" => {
                parse_arguments("sample", arguments).map(|asked: Sample| Self::Sample(asked.prompt))
            }
            "state" => {
                parse_arguments("state", arguments).map(|asked: State| Self::State(asked.set))
            }
            "crash" => Ok(Self::Crash),
            "notify" => {
                let Notify { count } = parse_arguments("notify", arguments)?;
                check_max("notify", "count", count, NOTIFICATIONS_MAX).map(Self::Notify)
            }
            _ => {
                let text =
                    format!("there is no tool named {name:?}: tools/list names those there are");
                Err(Failure::new(INVALID_PARAMS, text))
            }
        }
    }

    fn parse_slow(arguments: &RawValue) -> Result<Self, Failure> {
        let Slow { seconds } = parse_arguments("slow", arguments)?;
        let time = Duration::try_from_secs_f64(seconds).ok();
        time.filter(|time| time.as_secs_f64() <= SLOW_SECONDS_MAX).map(Self::Slow).ok_or_else(
            || bad_arguments("slow", &format!("seconds must be from 0 to {SLOW_SECONDS_MAX}")),
        )
    }

    /// Runs the tool; counted before anything else happens.
    pub(super) fn run(&self, execution: &Execution) -> Outcome {
        if let Some(file) = &execution.server.count_file
            && let Err(error) = file.add(&execution.tool_name, execution.arguments.get())
        {
            let text = format!("not run: the execution could not be counted: {error}");
            return Outcome::Failure(Failure::new(INTERNAL_ERROR, text));
        }
        match self {
            Self::Charge(charge) => charge.run(execution),
            Self::Slow(time) => execution.slow(*time),
            Self::Get => Outcome::Result(execution.get()),
            Self::Echo => Outcome::Result(
                ToolResult::text(execution.arguments.get()).structured(&execution.arguments),
            ),
            Self::Ask(question) => execution.ask(question),
            Self::Sample(prompt) => execution.sample(prompt),
            Self::State(set) => Outcome::Result(execution.state(set.as_deref())),
            Self::Crash => execution.crash(),
            Self::Notify(count) => Outcome::Result(execution.notify(*count)),
        }
    }
}

#[derive(Deserialize)]
struct Slow {
    seconds: f64,
}

#[derive(Deserialize)]
struct Ask {
    question: String,
}

#[derive(Deserialize)]
struct Sample {
    prompt: String,
}

#[derive(Deserialize)]
struct State {
    set: Option<String>,
}

#[derive(Deserialize)]
struct Notify {
    count: u64,
}

impl Execution {
    /// Ends the process in the middle of the call. What was sent before stays sent.
    pub(super) fn crash(&self) -> ! {
        self.server.output.try_flush();
        process::exit(EXIT_CRASHED)
    }

    fn slow(&self, time: Duration) -> Outcome {
        if self.call.wait(time) {
            return Outcome::Silence;
        }
        Outcome::Result(ToolResult::text(format!("waited {} seconds", time.as_secs_f64())))
    }

    fn get(&self) -> ToolResult {
        let read = self.server.memory.reads.fetch_add(1, Ordering::Relaxed) + 1;
        // Ten digits, always: the answer's size must not depend on how often it was asked for.
        ToolResult::text(format!("The account is open. Read number {read:010}."))
            .structured(&json!({ "reads": read }))
    }

    fn state(&self, set: Option<&str>) -> ToolResult {
        let mut state = self.server.memory.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = set {
            *state = Some(value.to_owned());
        }
        ToolResult::text(state.as_deref().unwrap_or("(nothing was set in this process)"))
            .structured(&json!({ "value": *state }))
    }

    fn notify(&self, count: u64) -> ToolResult {
        let output = &self.server.output;
        let wanted = self.server.logs("info");
        for k in (1..=count).take_while(|_| wanted) {
            let data = format!("note {k} of {count}");
            let params = json!({ "level": "info", "logger": "rejoin-tool-server", "data": data });
            output.gather(&message::notification("notifications/message", &params));
        }
        output.send(&message::notification("notifications/tools/list_changed", &json!({})));
        let sent = if wanted { count } else { 0 };
        ToolResult::text(format!("sent {sent} log messages and one tools/list_changed"))
            .structured(&json!({ "sent": sent }))
    }

    /// Sends progress, if the client asked for it; `more` says that more follows at once.
    pub(super) fn progress(&self, line: &mut Vec<u8>, step: &Progress, more: bool) {
        let Some(token) = &self.progress_token else {
            return;
        };
        let Progress { number, total, message_bytes } = *step;
        line.clear();
        // Written by hand: this line is the only one sent by the ten thousand. A `Vec` takes all.
        let _ = write!(
            line,
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\
             \"progressToken\":{token},\"progress\":{number},\"total\":{total},\"message\":\"",
            token = token.get(),
        );
        let message_start = line.len();
        let _ = write!(line, "event {number}");
        line.resize(line.len().max(message_start + message_bytes), b'.');
        line.extend_from_slice(b"\"}}\n");
        if more { self.server.output.gather(line) } else { self.server.output.send(line) }
    }
}

/// One progress event.
pub(super) struct Progress {
    pub(super) number: u64,
    pub(super) total: u64,
    /// The message is padded to this length.
    pub(super) message_bytes: usize,
}

pub(super) fn parse_arguments<'a, T: Deserialize<'a>>(
    tool: &str,
    arguments: &'a RawValue,
) -> Result<T, Failure> {
    serde_json::from_str(arguments.get()).map_err(|error| {
        let problem = arguments::problem(tool, arguments.get());
        bad_arguments(tool, &problem.unwrap_or_else(|| error.to_string()))
    })
}

pub(super) fn check_max(tool: &str, name: &str, value: u64, max: u64) -> Result<u64, Failure> {
    if value <= max {
        return Ok(value);
    }
    Err(bad_arguments(tool, &format!("{name} must be at most {max}")))
}

fn bad_arguments(tool: &str, problem: &str) -> Failure {
    Failure::new(INVALID_PARAMS, format!("not run: {tool}: {problem}"))
}
