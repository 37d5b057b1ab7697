//! The server's state, and what each message from the client does to it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, Value};

use super::call::{Answer, AnswerWait, Call, Running};
use super::catalog;
use super::count::CountFile;
use super::message::{
    self, Failure, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND,
    PARSE_ERROR, RequestKey,
};
use super::output::Output;
use super::tools::{Execution, Memory, Outcome, Tool};

/// The protocol revisions spoken, oldest first; the last one is offered for any other.
const REVISIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

/// Calls that may run at the same time; one beyond is refused, unexecuted.
const CALLS_MAX: usize = 512;

/// Stack of a call's thread.
const CALL_STACK_BYTES: usize = 256 * 1024;

/// Names of the logging levels, the least severe first (2025-11-25 `server/utilities/logging`).
const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// One server process: one client, its calls, and the memory the tools share.
pub(super) struct Server {
    pub(super) output: Output,
    pub(super) count_file: Option<CountFile>,
    pub(super) memory: Memory,
    client: Mutex<ClientFacts>,
    calls: Mutex<HashMap<RequestKey, Arc<Call>>>,
    running: Running,
    questions: Mutex<HashMap<u64, Arc<Call>>>,
    question_id_next: AtomicU64,
}

/// What the client said about itself.
#[derive(Clone, Copy, Debug, Default)]
struct ClientFacts {
    elicitation: bool,
    sampling: bool,
    /// Index into [`LOG_LEVELS`] of the least severe level it wants.
    log_level: usize,
}

impl Server {
    pub(super) fn new(output: Output, count_file: Option<CountFile>) -> Self {
        Self {
            output,
            count_file,
            memory: Memory::default(),
            client: Mutex::default(),
            calls: Mutex::default(),
            running: Running::default(),
            questions: Mutex::default(),
            // From 0, as the client counts too: ids of the two directions are unrelated.
            question_id_next: AtomicU64::new(0),
        }
    }

    /// Handles one line: a message, or a batch of them.
    pub(super) fn handle_line(self: &Arc<Self>, text: &[u8]) {
        let batch: Result<Vec<&RawValue>, _> = match text.first() {
            // Revision 2025-03-26 has batches; the responses need not be one.
            Some(b'[') => serde_json::from_slice(text),
            _ => serde_json::from_slice(text).map(|message| vec![message]),
        };
        match batch {
            Ok(messages) => messages.into_iter().for_each(|message| self.handle(message)),
            Err(error) => self.fail(None, &Failure::new(PARSE_ERROR, format!("no JSON: {error}"))),
        }
    }

    /// Ends: what runs may finish until the grace is over.
    pub(super) fn finish(&self, grace: Duration) {
        self.running.wait_none(Instant::now() + grace);
        self.output.try_flush();
    }

    fn handle(self: &Arc<Self>, text: &RawValue) {
        let object = text.get().starts_with('{');
        let message: Incoming<'_> = match serde_json::from_str(text.get()) {
            Ok(message) if object => message,
            Ok(_) => return self.fail(None, &Failure::new(INVALID_REQUEST, "not an object")),
            Err(error) => {
                let failure = Failure::new(INVALID_REQUEST, format!("not a message: {error}"));
                return self.fail(None, &failure);
            }
        };
        match (message.method.as_deref(), message.id) {
            (Some(method), Some(id)) => self.handle_request(method, id, message.params),
            (Some(method), None) => self.handle_notification(method, message.params),
            (None, Some(id)) => self.handle_response(id, message.result, message.error),
            (None, None) => {
                self.fail(None, &Failure::new(INVALID_REQUEST, "neither method nor id"));
            }
        }
    }

    fn handle_request(self: &Arc<Self>, method: &str, id: &RawValue, params: Option<&RawValue>) {
        let result = match method {
            "initialize" => self.initialize(params),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(catalog::tools()),
            "logging/setLevel" => self.set_log_level(params),
            "tools/call" => match self.start_call(id, params) {
                Ok(()) => return,
                Err(failure) => Err(failure),
            },
            _ => Err(Failure::new(METHOD_NOT_FOUND, format!("no method {method:?} here"))),
        };
        match result {
            Ok(result) => self.output.send(&message::response(id, &result)),
            Err(failure) => self.fail(Some(id), &failure),
        }
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        if method != "notifications/cancelled" {
            return;
        }
        let cancelled = params.and_then(|params| serde_json::from_str(params.get()).ok());
        if let Some(Cancelled { request_id }) = cancelled {
            // An unknown id is legal: the response may have crossed the cancel.
            if let Some(call) = lock(&self.calls).get(&RequestKey::of(request_id)) {
                call.cancel();
            }
        }
    }

    fn handle_response(&self, id: &RawValue, result: Option<&RawValue>, error: Option<&RawValue>) {
        let answer = match (result, error) {
            (_, Some(error)) => Answer::Error(error.to_owned()),
            (Some(result), None) => Answer::Result(result.to_owned()),
            (None, None) => Answer::Result(RawValue::NULL.to_owned()),
        };
        let question = id.get().parse().ok().and_then(|id: u64| lock(&self.questions).remove(&id));
        match question {
            Some(call) => call.answer(answer),
            None => eprintln!("rejoin tool-server: an answer nobody waits for, id {}", id.get()),
        }
    }

    fn initialize(&self, params: Option<&RawValue>) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Initialize {
            protocol_version: String,
            #[serde(default)]
            capabilities: HashMap<String, Value>,
        }
        let form = r#"{"protocolVersion": "2025-11-25", "capabilities": {}}"#;
        let asked: Initialize = parse("initialize", form, params)?;
        let mut client = lock(&self.client);
        client.elicitation = asked.capabilities.contains_key("elicitation");
        client.sampling = asked.capabilities.contains_key("sampling");
        let known = REVISIONS.iter().find(|revision| **revision == asked.protocol_version);
        Ok(json!({
            "protocolVersion": known.unwrap_or(&REVISIONS[REVISIONS.len() - 1]),
            "capabilities": { "tools": { "listChanged": true }, "logging": {} },
            "serverInfo": {
                "name": "rejoin-tool-server",
                "title": "Rejoin tool server",
                "version": env!("CARGO_PKG_VERSION"),
            },
            "instructions": "Tools to see what a broken connection does to a conversation. \
                `charge` has an effect and counts its executions; call it, cut the connection, \
                and look how often it ran.",
        }))
    }

    fn set_log_level(&self, params: Option<&RawValue>) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        struct SetLevel {
            level: String,
        }
        let asked: SetLevel = parse("logging/setLevel", r#"{"level": "info"}"#, params)?;
        let level = LOG_LEVELS.iter().position(|level| *level == asked.level).ok_or_else(|| {
            let levels = LOG_LEVELS.join(", ");
            Failure::new(INVALID_PARAMS, format!("no level {:?}; there are {levels}", asked.level))
        })?;
        lock(&self.client).log_level = level;
        Ok(json!({}))
    }

    fn start_call(
        self: &Arc<Self>,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct CallParams<'a> {
            name: String,
            #[serde(borrow)]
            arguments: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "_meta")]
            meta: Meta<'a>,
        }
        #[derive(Default, Deserialize)]
        struct Meta<'a> {
            #[serde(borrow, rename = "progressToken")]
            progress_token: Option<&'a RawValue>,
        }
        let form = r#"{"name": "charge", "arguments": {"amount": 5}}"#;
        let asked: CallParams<'_> = parse("tools/call", form, params)?;
        let arguments = match asked.arguments {
            Some(arguments) => arguments.to_owned(),
            None => empty_object(),
        };
        let tool = Tool::parse(&asked.name, &arguments)?;
        if !self.running.try_start(CALLS_MAX) {
            let text = format!("not run: {CALLS_MAX} calls are running already");
            return Err(Failure::new(INTERNAL_ERROR, text));
        }
        let call = Arc::new(Call::default());
        let execution = Execution {
            server: Arc::clone(self),
            call: Arc::clone(&call),
            tool_name: asked.name,
            arguments,
            progress_token: asked.meta.progress_token.map(ToOwned::to_owned),
        };
        lock(&self.calls).insert(RequestKey::of(id), call);
        let own_id = id.to_owned();
        let thread = thread::Builder::new().stack_size(CALL_STACK_BYTES);
        match thread.spawn(move || execute(&execution, &tool, &own_id)) {
            Ok(_) => Ok(()),
            Err(error) => {
                lock(&self.calls).remove(&RequestKey::of(id));
                self.running.end();
                Err(Failure::new(INTERNAL_ERROR, format!("not run: no thread: {error}")))
            }
        }
    }

    /// Asks the client and waits for its answer.
    pub(super) fn ask(
        &self,
        call: &Arc<Call>,
        method: &str,
        params: &Value,
        time_max: Duration,
    ) -> AnswerWait {
        let id = self.question_id_next.fetch_add(1, Ordering::Relaxed);
        lock(&self.questions).insert(id, Arc::clone(call));
        self.output.send(&message::request(id, method, params));
        let wait = call.wait_answer(time_max);
        if lock(&self.questions).remove(&id).is_some() {
            let params = json!({ "requestId": id, "reason": "the answer is not needed any more" });
            self.output.send(&message::notification("notifications/cancelled", &params));
        }
        wait
    }

    /// Whether the client said it can answer `elicitation/create`.
    pub(super) fn client_elicits(&self) -> bool {
        lock(&self.client).elicitation
    }

    /// Whether the client said it can answer `sampling/createMessage`.
    pub(super) fn client_samples(&self) -> bool {
        lock(&self.client).sampling
    }

    /// Whether the client wants log messages of this level.
    pub(super) fn logs(&self, level: &str) -> bool {
        let severity = LOG_LEVELS.iter().position(|known| *known == level);
        severity.is_some_and(|severity| severity >= lock(&self.client).log_level)
    }

    fn fail(&self, id: Option<&RawValue>, failure: &Failure) {
        self.output.send(&message::error_response(id, failure));
    }
}

fn execute(execution: &Execution, tool: &Tool, id: &RawValue) {
    let server = &execution.server;
    match tool.run(execution) {
        Outcome::Result(result) => server.output.send(&message::response(id, &result)),
        Outcome::Failure(failure) => server.fail(Some(id), &failure),
        // A cancelled call is not answered, but what it gathered before is sent.
        Outcome::Silence => server.output.flush(),
    }
    remove_own(&server.calls, &RequestKey::of(id), &execution.call);
    server.running.end();
}

/// Removes the entry unless another call has taken the same id meanwhile.
fn remove_own<K: Eq + Hash>(map: &Mutex<HashMap<K, Arc<Call>>>, key: &K, own: &Arc<Call>) {
    let mut map = lock(map);
    if map.get(key).is_some_and(|found| Arc::ptr_eq(found, own)) {
        map.remove(key);
    }
}

/// Reads the params of a method; `form` is an example of them.
fn parse<'a, T: Deserialize<'a>>(
    method: &str,
    form: &str,
    params: Option<&'a RawValue>,
) -> Result<T, Failure> {
    let refused = |problem: String| {
        Failure::new(INVALID_PARAMS, format!("{method}: {problem}: send params such as {form}"))
    };
    let params = params.ok_or_else(|| refused("the request has no `params`".to_owned()))?;
    serde_json::from_str(params.get()).map_err(|error| refused(error.to_string()))
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
