//! The tools behind the gateway: `charge`, which must not run twice, and `look`, which may. What
//! one call does stands in its arguments.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::history::{Exec, History, Key, RequestId, What};

/// A tool waits so long for its client, longer than the gateway does.
const ANSWER_MAX: Duration = Duration::from_secs(90);

/// So often a server says something of its own, and so many times.
const NOTE_PAUSE: Duration = Duration::from_millis(3_700);
pub const NOTES: u32 = 12;

/// What tells a server that its client is ready, before any call.
pub const READY: &str = "notifications/initialized";

/// Where a request says which one it is, for the history: the gateway passes it on as it is.
pub const REQUEST_META: &str = "simulation/request";

/// What a request says of itself there.
pub fn request_meta(client: usize, request: RequestId) -> String {
    format!("{client}/{request}")
}

/// The client and its request; nobody's, if that does not stand there any more.
fn whose(request: &Value) -> (usize, RequestId) {
    let meta = request["params"]["_meta"][REQUEST_META].as_str().unwrap_or_default();
    let parts = meta.split_once('/');
    let whose = parts.and_then(|(client, id)| Some((client.parse().ok()?, id.parse().ok()?)));
    whose.unwrap_or((usize::MAX, 0))
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Twins have the same.
    pub key: Key,
    /// It takes so long.
    pub ms: u64,
    /// Messages of progress meanwhile.
    pub steps: u32,
    /// Bytes of each message beside what it says.
    pub bytes: usize,
    /// It must not run twice.
    pub charge: bool,
    /// It asks its client something first.
    pub asks: bool,
}

impl Work {
    /// The tool's name.
    pub fn tool(&self) -> &'static str {
        if self.charge { "charge" } else { "look" }
    }

    /// The arguments that say it.
    pub fn arguments(&self) -> Value {
        let Self { key, ms, steps, bytes, asks, .. } = self;
        json!({ "key": key, "ms": ms, "steps": steps, "bytes": bytes, "asks": asks })
    }

    fn of(params: &Value) -> Self {
        let number = |name: &str| params["arguments"][name].as_u64().unwrap_or_default();
        Self {
            key: number("key") as Key,
            ms: number("ms"),
            steps: number("steps") as u32,
            bytes: number("bytes") as usize,
            charge: params["name"] == "charge",
            asks: params["arguments"]["asks"] == true,
        }
    }
}

/// All executions of a run.
#[derive(Clone)]
pub struct Tools {
    history: History,
    next: Arc<Mutex<Exec>>,
    /// Executions that wait for their clients.
    waiting: Arc<Mutex<BTreeMap<String, oneshot::Sender<()>>>>,
    /// What was said in each session.
    notes: Arc<Mutex<BTreeMap<usize, u32>>>,
}

impl Tools {
    pub fn new(history: History) -> Self {
        Self {
            history,
            next: Arc::new(Mutex::new(1)),
            waiting: Arc::default(),
            notes: Arc::default(),
        }
    }

    /// Something that the server says of its own in a session; after each pause.
    pub async fn note(&self, session: usize) -> String {
        sleep(NOTE_PAUSE).await;
        let note = {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            let note = notes.entry(session).or_default();
            *note += 1;
            *note
        };
        self.history.record(What::Noted { session, note });
        let params = json!({ "level": "info", "data": format!("<note {session}/{note}>") });
        let method = "notifications/message";
        json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
    }

    /// The server is told that a call is not wanted any more; returns the call's id there.
    pub fn cancelled(&self, session: usize, message: &Value) -> u64 {
        // No call has the number 0.
        let call = message["params"]["requestId"].as_u64().unwrap_or_default();
        self.history.record(What::CancelTold { session, call });
        call
    }

    /// A call comes to a server that was told that its client is ready, or not.
    pub fn called(&self, session: usize, is_ready: bool) {
        if !is_ready {
            self.history.record(What::Unready { session });
        }
    }

    /// The server is told that its session is over.
    pub fn ended(&self, session: usize) {
        self.history.record(What::EndTold { session });
    }

    /// A client, or the gateway in its place, has answered what a tool asked.
    pub fn answered(&self, message: &Value) {
        if message.get("method").is_some() {
            return;
        }
        let id = message["id"].as_str().unwrap_or_default();
        let exec = id.strip_prefix("ask-").and_then(|exec| exec.parse().ok()).unwrap_or_default();
        let meant = message["result"]["content"]["exec"].as_u64().map(|exec| exec as Exec);
        self.history.record(What::AnswerTold { exec, meant });
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(waiting) = waiting {
            // It may be over.
            let _heard = waiting.send(()).is_ok();
        }
    }

    /// Asks the client of an execution, and waits for its answer for as long as that may take.
    async fn ask(&self, exec: Exec, out: &mpsc::Sender<String>) {
        let id = format!("ask-{exec}");
        let (waiting, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), waiting);
        let params = json!({ "message": format!("<ask {exec}>"), "requestedSchema": {} });
        let method = "elicitation/create";
        let asked = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        if out.send(asked.to_string()).await.is_ok() {
            // Without an answer it goes on all the same.
            let _in_time = timeout(ANSWER_MAX, answer).await.is_ok();
        }
    }

    /// Runs a `tools/call`. Each message of progress goes to `out`; returns the response.
    pub async fn run(&self, session: usize, request: &Value, out: mpsc::Sender<String>) -> String {
        let work = Work::of(&request["params"]);
        let exec = self.begin(session, &work, request);
        let token = &request["params"]["_meta"]["progressToken"];
        if work.asks {
            self.ask(exec, &out).await;
        }
        let pause = Duration::from_millis(work.ms / u64::from(work.steps + 1));
        let filling = "x".repeat(work.bytes);
        let mut stop = Stop { tools: self, exec, is_done: false };
        for step in 1..=work.steps {
            sleep(pause).await;
            let message = format!("{filling}<step {exec}/{step}>");
            let params = json!({ "progressToken": token, "progress": step, "message": message });
            let method = "notifications/progress";
            let said = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            if !token.is_null() && out.send(said.to_string()).await.is_err() {
                break;
            }
        }
        sleep(pause).await;
        stop.is_done = true;
        self.history.record(What::Produced { exec, steps: work.steps });
        // At the end: where it is, all of it is.
        let text = format!("{filling}<ran {exec}>");
        let length = json!({ "bytes": work.bytes });
        let result = json!({ "content": [{ "type": "text", "text": text }],
            "structuredContent": length });
        json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string()
    }

    fn begin(&self, session: usize, work: &Work, request: &Value) -> Exec {
        let exec = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            *next += 1;
            *next - 1
        };
        let (key, charge) = (work.key, work.charge);
        let call = request["id"].as_u64().unwrap_or_default();
        let (client, request) = whose(request);
        let executed = What::Executed { exec, key, session, charge, client, request, call };
        self.history.record(executed);
        exec
    }
}

/// Tells of an execution that is given up.
struct Stop<'a> {
    tools: &'a Tools,
    exec: Exec,
    is_done: bool,
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.tools.history.record(What::Stopped { exec: self.exec });
        }
    }
}
