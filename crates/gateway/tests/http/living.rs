//! A server in this process with a life of its own: it can be crashed, it knows who subscribed, it
//! runs tasks, and it says something when the test wants it to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::settings::Settings;
use rejoin_gateway::upstream::{
    CallId, Channel, CloseReason, Command, Event, OpenError, Opened, Opening, Upstream,
};
use rejoin_testkit::failure::Failure;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::support::serve;

const QUEUE: usize = 64;
/// The task that every task-augmented call is answered with.
pub(crate) const TASK: &str = "task-1";

/// What one process of the server was sent, and the way to speak for it.
struct Process {
    seen: Vec<Value>,
    events: mpsc::Sender<Event>,
}

/// The server; a session of it is a process, which a later one replaces.
#[derive(Default)]
pub(crate) struct Living {
    processes: Mutex<Vec<Process>>,
    /// Lets one call go on that waits: a slow one, or one for a task's result.
    pub(crate) go_on: Notify,
}

impl Living {
    /// How often the processes were sent `method`, in all.
    pub(crate) fn count(&self, method: &str) -> usize {
        let processes = self.processes.lock().unwrap();
        let all = processes.iter().flat_map(|process| &process.seen);
        all.filter(|message| message["method"] == method).count()
    }

    /// How often a tool ran.
    pub(crate) fn runs(&self, tool: &str) -> usize {
        let processes = self.processes.lock().unwrap();
        let all = processes.iter().flat_map(|process| &process.seen);
        all.filter(|message| message["params"]["name"] == tool).count()
    }

    /// How many processes there were.
    pub(crate) fn processes(&self) -> usize {
        self.processes.lock().unwrap().len()
    }

    /// The latest process says that a resource changed, if it was subscribed there; whether it was.
    pub(crate) async fn update(&self, uri: &str, channel: Channel) -> bool {
        let (events, subscribed) = {
            let processes = self.processes.lock().unwrap();
            let process = processes.last().unwrap();
            let wanted = |message: &Value| {
                message["method"] == "resources/subscribe" && message["params"]["uri"] == uri
            };
            (process.events.clone(), process.seen.iter().any(wanted))
        };
        let message = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated",
            "params": {"uri": uri}});
        if subscribed {
            events
                .send(Event::Message { channel, message: bytes(&message), cursor: None })
                .await
                .unwrap();
        }
        subscribed
    }

    /// The latest process ends.
    pub(crate) async fn crash(&self) {
        let events = self.processes.lock().unwrap().last().unwrap().events.clone();
        let reason = CloseReason::Exited { code: 3 };
        events.send(Event::Closed { reason }).await.unwrap();
    }

    async fn converse(self: Arc<Self>, mut commands: mpsc::Receiver<Command>, place: usize) {
        while let Some(command) = commands.recv().await {
            let (call, message) = match command {
                Command::Call { call, message } => (Some(call), message),
                Command::Cancel { message, .. } | Command::Send { message } => (None, message),
                Command::Headers(_) => continue,
                Command::End | Command::Leave => break,
            };
            let message: Value = serde_json::from_slice(&message).unwrap();
            let events = {
                let mut processes = self.processes.lock().unwrap();
                processes[place].seen.push(message.clone());
                processes[place].events.clone()
            };
            tokio::spawn(Arc::clone(&self).answer(call, message, events));
        }
        let events = self.processes.lock().unwrap()[place].events.clone();
        let _crashed_before = events.send(Event::Closed { reason: CloseReason::Ended }).await;
    }

    async fn answer(
        self: Arc<Self>,
        call: Option<CallId>,
        message: Value,
        events: mpsc::Sender<Event>,
    ) {
        if let Some(call) = call {
            let _session_over = events.send(Event::Sent { call }).await;
        }
        let Some(id) = message.get("id") else { return };
        let tool = &message["params"]["name"];
        let result = match message["method"].as_str().unwrap_or_default() {
            "tools/call" if tool == "hang" => return,
            "tools/call" => {
                if tool == "slow" {
                    self.go_on.notified().await;
                }
                match message["params"]["task"].is_object() {
                    true => json!({"task": {"taskId": TASK, "status": "working", "ttl": 60_000}}),
                    false => json!({}),
                }
            }
            "tasks/get" => json!({"taskId": TASK, "status": "working", "ttl": 60_000}),
            "tasks/result" => {
                self.go_on.notified().await;
                json!({"content": [{"type": "text", "text": "done"}]})
            }
            _ => json!({}),
        };
        let channel = call.map_or(Channel::Unknown, Channel::Call);
        let answer = bytes(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        let _session_over =
            events.send(Event::Message { channel, message: answer, cursor: None }).await;
    }
}

fn bytes(message: &Value) -> Bytes {
    message.to_string().into()
}

/// The server as one upstream.
#[derive(Default)]
pub(crate) struct Face(pub(crate) Arc<Living>);

#[async_trait]
impl Upstream for Face {
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError> {
        let message: Value = serde_json::from_slice(&opening.initialize).unwrap();
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "resources": {"subscribe": true}, "tasks": {}},
            "serverInfo": {"name": "living", "version": "1"},
        }});
        let (commands, commanded) = mpsc::channel(QUEUE);
        let (happened, events) = mpsc::channel(QUEUE);
        let place = {
            let mut processes = self.0.processes.lock().unwrap();
            processes.push(Process { seen: vec![message], events: happened });
            processes.len() - 1
        };
        tokio::spawn(Arc::clone(&self.0).converse(commanded, place));
        Ok(Opened { answer: bytes(&answer), commands, events, continuation: None, pressure: None })
    }

    fn name(&self) -> &str {
        "living"
    }
}

/// A gateway on a socket in front of that server; it ends with the test.
pub(crate) struct Place {
    pub(crate) server: Arc<Living>,
    pub(crate) address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Place {
    /// With a grace of 0.4 s.
    pub(crate) async fn start() -> Result<Self, Failure> {
        let mut settings = Settings::default();
        settings.limits.retry_ms = 100;
        settings.limits.owed_grace_ms = Some(400);
        settings.limits.hold_max_ms = 3_000;
        let server = Arc::new(Living::default());
        let upstream = Arc::new(Face(Arc::clone(&server)));
        let (_gateway, address, serving) = serve(upstream, settings).await?;
        Ok(Self { server, address, serving })
    }
}
