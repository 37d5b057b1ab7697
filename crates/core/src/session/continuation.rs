//! What lets the server's side of a session outlive the process: how its upstream goes on with it,
//! and how far what the server says was taken (design section 4, "Continued").

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::timer::Timer;
use super::{ServerRequest, Session};
use crate::effect::{Effect, Note, Output, ToUpstream};
use crate::id::{Seq, StreamId};
use crate::input::Channel;
use crate::ledger::{Call, Phase};

/// Open requests of a server that its session's row holds, the newest: it is written for each.
const OPEN_REQUESTS_MAX: usize = 64;
/// Bytes of the longest id of such a request.
const REQUEST_ID_BYTES_MAX: usize = 256;

/// What an upstream needs to go on with a session that another process opened. Only the upstream
/// that wrote it understands it. It may hold the server's session id, so `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Continuation(Arc<str>);

impl Continuation {
    /// Wraps what the upstream wrote.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// What the upstream wrote. Never log it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Continuation(..)")
    }
}

/// Where a stream of the server stands: what its upstream needs to have the server bring what
/// followed, and nothing that was taken. Only that upstream understands it.
pub type UpstreamCursor = Arc<str>;

/// A request of the server that waits for its client's answer, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRequest {
    /// Its number, as the client knows it.
    pub number: u64,
    /// The server's own id of it, raw.
    #[serde(with = "crate::text")]
    pub upstream_id: bytes::Bytes,
    /// The stream that carries it.
    pub stream: StreamId,
    /// Its event.
    pub seq: Seq,
}

impl Session {
    /// The server was opened, or is gone (`None`). What is known of an older one is void.
    pub(super) fn set_continuation(&mut self, continuation: Option<Continuation>) {
        if self.upstream.continuation == continuation {
            return;
        }
        self.upstream.continuation = continuation;
        self.row_changed = true;
        self.stand_at(Channel::Standalone, None);
    }

    /// Notes where a stream of the server stands: durable together with what came up to there, so
    /// that nothing is asked for twice or skipped after a restart.
    pub(super) fn stand_at(&mut self, channel: Channel, cursor: Option<UpstreamCursor>) {
        match channel {
            Channel::Call(id) => {
                let call = self.ledger.get_mut(id).filter(|call| call.phase.is_in_flight());
                if let Some(call) = call.filter(|call| call.upstream_cursor != cursor) {
                    call.upstream_cursor = cursor;
                    self.changed_calls.insert(id);
                }
            }
            Channel::Standalone => {
                let stream = self.streams.get_mut(&StreamId::STANDALONE);
                if let Some(stream) = stream.filter(|stream| stream.upstream_cursor != cursor) {
                    stream.upstream_cursor = cursor;
                    self.changed_streams.insert(StreamId::STANDALONE);
                }
            }
            Channel::Unknown => {}
        }
    }

    /// Requests of the server came, were answered or are over: what a restart must know of them.
    pub(super) fn server_requests_changed(&mut self) {
        self.row_changed |= self.upstream.continuation.is_some();
    }

    /// Requests of the server that wait for an answer, if that can reach it after a restart.
    pub(super) fn open_requests(&self) -> Vec<OpenRequest> {
        if self.upstream.continuation.is_none() {
            return Vec::new();
        }
        let is_open = |request: &ServerRequest| {
            !request.answered && request.upstream_id.len() <= REQUEST_ID_BYTES_MAX
        };
        let open = self.server_requests.iter().rev().filter(|(_, request)| is_open(request));
        let row = |(&number, request): (&u64, &ServerRequest)| {
            let ServerRequest { upstream_id, stream, seq, .. } = request.clone();
            OpenRequest { number, upstream_id, stream, seq }
        };
        open.take(OPEN_REQUESTS_MAX).map(row).collect()
    }

    /// Takes over what an earlier process was asked; its client gets its time again.
    pub(super) fn restore_requests(&mut self, rows: Vec<OpenRequest>, now_ms: u64) {
        let at_ms = now_ms + self.limits().server_request_max_ms;
        for OpenRequest { number, upstream_id, stream, seq } in rows {
            let request = ServerRequest { upstream_id, stream, seq, answered: false };
            self.server_requests.insert(number, request);
            self.timers.insert((at_ms, Timer::ServerRequest(number)));
        }
    }

    /// True if a call of an earlier process goes on: its server's stream of it can be picked up.
    pub(super) fn goes_on(&self, call: &Call) -> bool {
        let stream = call.stream.and_then(|id| self.streams.get(&id));
        self.upstream.continuation.is_some()
            && call.phase == Phase::Sent
            && call.upstream_cursor.is_some()
            && stream.is_some_and(|stream| stream.last.is_none())
    }

    /// After a restart: has the upstream go on where the earlier process was, and sends nothing
    /// again. What does not go on is told as lost.
    pub(super) fn continue_upstream(&mut self, now_ms: u64, out: &mut Output) {
        let Some(continuation) = self.upstream.continuation.clone() else { return };
        let mut calls = Vec::new();
        for call in self.ledger.running().filter(|call| self.goes_on(call)) {
            calls.extend(call.upstream_cursor.clone().map(|cursor| (call.id, cursor)));
        }
        for (id, _) in &calls {
            if let Some(call) = self.ledger.get_mut(*id) {
                // While nobody listened, it was not silent.
                call.heard_ms = now_ms;
            }
        }
        let standalone = self.streams.get(&StreamId::STANDALONE);
        let standalone = standalone.and_then(|stream| stream.upstream_cursor.clone());
        let is_initialized = self.upstream.initialized.is_some();
        out.effects.push(Effect::Note(Note::UpstreamMoved("continuing")));
        out.effects.push(Effect::Upstream(ToUpstream::Continue {
            continuation,
            is_initialized,
            calls,
            standalone,
        }));
    }
}
