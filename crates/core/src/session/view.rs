//! What an operator sees of a session (`rejoin sessions`, the admin page).

use serde::Serialize;

use super::Session;
use crate::id::{CallId, StreamId};

/// A session at one moment. Nothing secret is in it.
#[derive(Clone, Debug, Serialize)]
pub struct SessionView {
    /// Its streams.
    pub streams: Vec<StreamView>,
    /// Its calls.
    pub calls: Vec<CallView>,
    /// POSTs that wait.
    pub waiting: usize,
    /// Replays whose gate is closed.
    pub replays: usize,
    /// True if its server is gone and will be started again when needed.
    pub upstream_down: bool,
}

/// One stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamView {
    /// Its number.
    pub id: StreamId,
    /// Name of its state.
    pub state: &'static str,
    /// Event ids of its cursors.
    pub produced: String,
    /// Last event handed over.
    pub sent: String,
    /// Last event confirmed.
    pub acked: String,
    /// True if a connection carries it.
    pub attached: bool,
    /// True once it was dropped or resumed.
    pub scarred: bool,
    /// Bytes of its events.
    pub bytes: u64,
}

/// One call.
#[derive(Clone, Debug, Serialize)]
pub struct CallView {
    /// Its number.
    pub id: CallId,
    /// Its method.
    pub method: String,
    /// Its tool.
    pub tool: Option<String>,
    /// Name of its phase.
    pub phase: &'static str,
    /// The stream that carries its answer.
    pub stream: Option<StreamId>,
}

impl Session {
    /// The session as it is now.
    pub fn view(&self) -> SessionView {
        let text = |stream, seq| self.event_id(stream, seq).to_string();
        let streams = self.streams.values().map(|stream| StreamView {
            id: stream.id,
            state: stream.state.name(),
            produced: text(stream.id, stream.cursors.produced),
            sent: text(stream.id, stream.cursors.sent),
            acked: text(stream.id, stream.cursors.acked),
            attached: stream.connection.is_some(),
            scarred: stream.scarred,
            bytes: stream.bytes,
        });
        let calls = self.ledger.iter().map(|call| CallView {
            id: call.id,
            method: call.method.clone(),
            tool: call.tool.clone(),
            phase: call.phase.name(),
            stream: call.stream,
        });
        SessionView {
            streams: streams.collect(),
            calls: calls.collect(),
            waiting: self.waiting.len(),
            replays: self.replays.len(),
            upstream_down: self.upstream.down,
        }
    }
}
