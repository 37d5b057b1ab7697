//! A server that lives and dies with the gateway, like one on standard input and output.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_gateway::upstream::{
    CallId, Channel, CloseReason, Command, Event, OpenError, Opened, Opening, Upstream,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::history::{History, What};
use crate::random::Random;
use crate::tool::{NOTES, READY, Tools};

/// Messages that wait each way.
const QUEUE_MAX: usize = 64;

/// The servers of all sessions. Clones are the same.
#[derive(Clone)]
pub struct Children {
    tools: Tools,
    history: History,
    random: Arc<Mutex<Random>>,
    /// Counts the deaths.
    deaths: Arc<watch::Sender<u64>>,
    /// Those that live.
    living: Arc<AtomicUsize>,
}

impl Children {
    pub fn new(tools: Tools, history: History, random: Random) -> Self {
        let deaths = Arc::new(watch::Sender::new(0));
        Self {
            tools,
            history,
            random: Arc::new(Mutex::new(random)),
            deaths,
            living: Arc::default(),
        }
    }

    /// How many live.
    pub fn living(&self) -> usize {
        self.living.load(Ordering::Relaxed)
    }

    /// All that run die.
    pub fn die(&self) {
        self.history.record(What::ServerDied);
        self.deaths.send_modify(|count| *count += 1);
    }

    fn percent(&self, percent: u64) -> bool {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).percent(percent)
    }
}

/// The number of a client's session, which its `initialize` says.
pub fn session_of(initialize: &[u8]) -> usize {
    let message: Value = serde_json::from_slice(initialize).unwrap_or_default();
    let name = message["params"]["clientInfo"]["name"].as_str().unwrap_or_default();
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// The answer to `initialize`.
pub fn hello(initialize: &[u8]) -> String {
    let message: Value = serde_json::from_slice(initialize).unwrap_or_default();
    let revision = &message["params"]["protocolVersion"];
    let result = json!({
        "protocolVersion": revision,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "simulated", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string()
}

#[async_trait]
impl Upstream for Children {
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError> {
        let mut deaths = self.deaths.subscribe();
        deaths.mark_unchanged();
        sleep(Duration::from_millis(20)).await;
        let (commands, commanded) = mpsc::channel(QUEUE_MAX);
        let (events, happening) = mpsc::channel(QUEUE_MAX);
        let session = session_of(&opening.initialize);
        let child = Child {
            children: self.clone(),
            session,
            events,
            running: HashMap::new(),
            is_ready: false,
        };
        tokio::spawn(child.live(commanded, deaths));
        let answer = Bytes::from(hello(&opening.initialize));
        Ok(Opened { answer, continuation: None, commands, events: happening, pressure: None })
    }

    fn name(&self) -> &str {
        "simulated"
    }
}

struct Child {
    children: Children,
    session: usize,
    events: mpsc::Sender<Event>,
    running: HashMap<CallId, AbortHandle>,
    /// It was told that its client is ready.
    is_ready: bool,
}

impl Child {
    async fn live(
        mut self,
        mut commanded: mpsc::Receiver<Command>,
        mut deaths: watch::Receiver<u64>,
    ) {
        let mut tools = JoinSet::new();
        tools.spawn(say(self.children.tools.clone(), self.session, self.events.clone()));
        self.children.living.fetch_add(1, Ordering::Relaxed);
        let reason = loop {
            tokio::select! {
                biased;
                _ = deaths.changed() => break CloseReason::Exited { code: 1 },
                Some(_) = tools.join_next() => {}
                command = commanded.recv() => match command {
                    Some(Command::Leave) => break CloseReason::Ended,
                    None | Some(Command::End) => {
                        self.children.tools.ended(self.session);
                        break CloseReason::Ended;
                    }
                    Some(command) => self.obey(command, &mut tools).await,
                },
            }
        };
        self.children.living.fetch_sub(1, Ordering::Relaxed);
        tools.shutdown().await;
        // Whoever does not listen any more does not need to know.
        let _told = self.events.send(Event::Closed { reason }).await.is_ok();
    }

    async fn obey(&mut self, command: Command, tools: &mut JoinSet<()>) {
        match command {
            Command::Call { call, message } => {
                // As the contract says: before anything else of that call.
                let _told = self.events.send(Event::Sent { call }).await.is_ok();
                self.children.tools.called(self.session, self.is_ready);
                let task = tools.spawn(serve(
                    self.children.tools.clone(),
                    self.session,
                    call,
                    message,
                    self.events.clone(),
                ));
                self.running.insert(call, task);
            }
            Command::Cancel { call, message } => {
                let message = serde_json::from_slice(&message).unwrap_or_default();
                self.children.tools.cancelled(self.session, &message);
                // Half of the servers stop; the others answer all the same.
                if self.children.percent(50)
                    && let Some(task) = self.running.remove(&call)
                {
                    task.abort();
                }
            }
            Command::Send { message } => {
                let message: Value = serde_json::from_slice(&message).unwrap_or_default();
                self.is_ready |= message["method"] == READY;
                self.children.tools.answered(&message);
            }
            _ => {}
        }
    }
}

/// What it says of its own.
async fn say(tools: Tools, session: usize, events: mpsc::Sender<Event>) {
    for _ in 0..NOTES {
        let message = Bytes::from(tools.note(session).await);
        let event = Event::Message { channel: Channel::Unknown, message, cursor: None };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

async fn serve(
    tools: Tools,
    session: usize,
    call: CallId,
    message: Bytes,
    events: mpsc::Sender<Event>,
) {
    let request: Value = serde_json::from_slice(&message).unwrap_or_default();
    let (out, mut said) = mpsc::channel(QUEUE_MAX);
    let passing = async {
        while let Some(message) = said.recv().await {
            let message = Bytes::from(message);
            let event = Event::Message { channel: Channel::Unknown, message, cursor: None };
            if events.send(event).await.is_err() {
                return;
            }
        }
    };
    let answering = async {
        match request["method"].as_str() {
            Some("tools/call") => tools.run(session, &request, out).await,
            _ => json!({ "jsonrpc": "2.0", "id": request["id"], "result": {} }).to_string(),
        }
    };
    let (response, ()) = tokio::join!(answering, passing);
    let message = Bytes::from(response);
    let event = Event::Message { channel: Channel::Call(call), message, cursor: None };
    // A session that is over wants no answer.
    let _told = events.send(event).await.is_ok();
}
