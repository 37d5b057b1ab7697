//! A server in this process whose calls go on when the test says so.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rejoin_gateway::upstream::{Channel, Command, Event, OpenError, Opened, Opening, Upstream};
use rejoin_testkit::call::Call;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

/// Messages in one queue of the server.
const QUEUE: usize = 64;

/// Every call sends `before` progress notifications, waits for the gate if it is to, and sends
/// `after` more and its answer. Each progress carries `pad` bytes.
///
/// Clones are the same server.
#[derive(Clone, Default)]
pub(crate) struct Tool(Arc<Shared>);

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Value>>,
    gate: watch::Sender<bool>,
}

/// A call of it.
pub(crate) fn call(id: u64, before: u64, after: u64) -> Call {
    Call::new(id, "step", json!({"number": id, "before": before, "after": after, "waits": true}))
}

/// A call that does not wait, with answers of so many bytes.
pub(crate) fn flood(id: u64, steps: u64, pad: usize) -> Call {
    let arguments = json!({"number": id, "before": steps, "after": 0, "pad": pad});
    Call::new(id, "step", arguments)
}

impl Tool {
    /// How often the call with this number ran.
    pub(crate) fn runs(&self, number: u64) -> usize {
        let is_run = |message: &&Value| message["params"]["arguments"]["number"] == number;
        self.0.seen.lock().unwrap().iter().filter(is_run).count()
    }

    /// How often it was sent `method`.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.0.seen.lock().unwrap().iter().filter(|message| message["method"] == method).count()
    }

    /// Lets every call go on.
    pub(crate) fn open_gate(&self) {
        self.0.gate.send_replace(true);
    }
}

#[async_trait]
impl Upstream for Tool {
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError> {
        let message: Value = serde_json::from_slice(&opening.initialize).unwrap();
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "step", "version": "1"},
        }});
        let (commands, commanded) = mpsc::channel(QUEUE);
        let (happened, events) = mpsc::channel(QUEUE);
        tokio::spawn(converse(self.clone(), commanded, happened));
        Ok(Opened {
            answer: answer.to_string().into(),
            commands,
            events,
            continuation: None,
            pressure: None,
        })
    }

    fn name(&self) -> &str {
        "step"
    }
}

async fn converse(
    tool: Tool,
    mut commanded: mpsc::Receiver<Command>,
    happened: mpsc::Sender<Event>,
) {
    while let Some(command) = commanded.recv().await {
        let (call, message) = match command {
            Command::Call { call, message } => (Some(call), message),
            Command::Cancel { message, .. } | Command::Send { message } => (None, message),
            Command::Headers(_) => continue,
            Command::End | Command::Leave => break,
        };
        let message: Value = serde_json::from_slice(&message).unwrap();
        tool.0.seen.lock().unwrap().push(message.clone());
        let Some(call) = call else { continue };
        let (tool, happened) = (tool.clone(), happened.clone());
        tokio::spawn(async move {
            let arguments = &message["params"]["arguments"];
            let number = |name: &str| arguments[name].as_u64().unwrap_or_default();
            let pad = "x".repeat(number("pad") as usize);
            let tell = async |channel, message: Value| {
                let message = message.to_string().into();
                // The session may be over.
                let _told = happened.send(Event::Message { channel, message, cursor: None }).await;
            };
            let progress = async |step: u64| {
                let token = &message["params"]["_meta"]["progressToken"];
                let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": step, "message": pad}});
                tell(Channel::Call(call), progress).await;
            };
            let _told = happened.send(Event::Sent { call }).await;
            for step in 1..=number("before") {
                progress(step).await;
            }
            if arguments["waits"] == true {
                tool.0.gate.subscribe().wait_for(|is_open| *is_open).await.unwrap();
            }
            for step in 1..=number("after") {
                progress(number("before") + step).await;
            }
            let text = format!("did {arguments}");
            let answer = json!({"jsonrpc": "2.0", "id": message["id"],
                "result": {"content": [{"type": "text", "text": text}]}});
            tell(Channel::Call(call), answer).await;
        });
    }
}
