//! A server in this process whose calls take some seconds of virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rejoin_gateway::upstream::{
    CallId, Channel, CloseReason, Command, Event, OpenError, Opened, Opening, Upstream,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Progress of each call; its result comes a second after the last of it.
pub(crate) const PROGRESS: u64 = 5;
const STEP: Duration = Duration::from_secs(1);
const QUEUE: usize = 64;
/// Bytes of text in each progress message, and in each result.
const TEXT_BYTES: usize = 400;

/// Counts the calls that it ran.
#[derive(Default)]
pub(crate) struct Tools {
    executions: Arc<AtomicU64>,
}

impl Tools {
    pub(crate) fn executions(&self) -> u64 {
        self.executions.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Upstream for Tools {
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError> {
        let message: Value = serde_json::from_slice(&opening.initialize).unwrap();
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "churn", "version": "1"},
        }});
        let (commands, commanded) = mpsc::channel(QUEUE);
        let (happened, events) = mpsc::channel(QUEUE);
        tokio::spawn(converse(commanded, happened, Arc::clone(&self.executions)));
        Ok(Opened {
            answer: answer.to_string().into(),
            commands,
            events,
            pressure: None,
            continuation: None,
        })
    }

    fn name(&self) -> &str {
        "churn"
    }
}

async fn converse(
    mut commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<Event>,
    executions: Arc<AtomicU64>,
) {
    while let Some(command) = commands.recv().await {
        match command {
            Command::Call { call, message } => {
                executions.fetch_add(1, Ordering::Relaxed);
                let message = serde_json::from_slice(&message).unwrap();
                tokio::spawn(run(call, message, events.clone()));
            }
            Command::End | Command::Leave => break,
            Command::Cancel { .. } | Command::Send { .. } | Command::Headers(_) => {}
        }
    }
    // The driver may have gone before.
    let _gone = events.send(Event::Closed { reason: CloseReason::Ended }).await;
}

/// Runs a call. Whoever listened may leave at any time.
async fn run(call: CallId, message: Value, events: mpsc::Sender<Event>) {
    let _gone = events.send(Event::Sent { call }).await;
    let (token, text) = (&message["params"]["_meta"]["progressToken"], "x".repeat(TEXT_BYTES));
    for progress in 1..=PROGRESS {
        sleep(STEP).await;
        let message = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": progress, "message": text}});
        let (channel, message) = (Channel::Call(call), message.to_string().into());
        let _gone = events.send(Event::Message { channel, message, cursor: None }).await;
    }
    sleep(STEP).await;
    let result = json!({"content": [{"type": "text", "text": text}]});
    let message = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let (channel, message) = (Channel::Call(call), message.to_string().into());
    let _gone = events.send(Event::Message { channel, message, cursor: None }).await;
}
