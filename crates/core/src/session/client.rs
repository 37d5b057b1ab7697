//! What a client sends besides calls: notifications, answers to the server, acks, DELETE.

use bytes::Bytes;

use super::Session;
use crate::effect::{Effect, EventKind, Note, Output, ToUpstream};
use crate::id::{CallId, EventId, Seq, StreamId};
use crate::ledger::{Phase, Settled};
use crate::message::{self, IdKey, Message};
use crate::stream::{Release, Stream, StreamState};
use crate::token::Outcome;

/// JSON-RPC error code of a JSON answer whose call the client itself cancelled.
const CANCELLED_CODE: i64 = -32_800;

/// A slice would keep the whole batch that the message came in for as long as the message is kept.
fn copy(message: &Message) -> Bytes {
    Bytes::copy_from_slice(message.bytes())
}

impl Session {
    pub(super) fn handle_notification(&mut self, message: &Message, now_ms: u64, out: &mut Output) {
        self.last_activity_ms = now_ms;
        match message.method() {
            Some("notifications/cancelled") => self.cancel_by_id(message, now_ms, out),
            Some("notifications/initialized") => {
                let bytes = copy(message);
                self.upstream.initialized = Some(bytes.clone());
                self.row_changed = true;
                self.pass_on(bytes, out);
            }
            _ => self.pass_on(copy(message), out),
        }
    }

    /// A server that is gone asks again for what it needs: nothing is started for a notification.
    fn pass_on(&mut self, bytes: Bytes, out: &mut Output) {
        if !self.upstream.down {
            out.effects.push(Effect::Upstream(ToUpstream::Send(bytes)));
        }
    }

    /// An id that matches several running calls cancels none (design section 5, "Cancel").
    fn cancel_by_id(&mut self, message: &Message, now_ms: u64, out: &mut Output) {
        let Some(key) = message.cancels() else { return };
        let running = self.ledger.running();
        let calls: Vec<_> =
            running.filter(|call| call.request_key == key).map(|call| call.id).collect();
        let named = |id: Option<IdKey>| id.as_ref() == Some(&key);
        let held: Vec<_> = self
            .waiting
            .values()
            .filter(|waiter| waiter.requests.iter().any(|r| named(r.message.id_key())))
            .map(|waiter| waiter.connection.id)
            .collect();
        match (&calls[..], &held[..]) {
            ([call], []) => self.cancel(*call, Some(message), now_ms, out),
            ([], [connection]) => self.withdraw(*connection, now_ms, out),
            ([], []) => out.effects.push(Effect::Note(Note::Ignored("cancel of no call"))),
            _ => out.effects.push(Effect::Note(Note::Ignored("cancel of several calls"))),
        }
    }

    /// Cancels a running call: forwarded under the upstream id, its stream closed at once.
    fn cancel(&mut self, id: CallId, message: Option<&Message>, now_ms: u64, out: &mut Output) {
        match message {
            Some(message) => {
                let number = id.0.to_string();
                let message = message.edit().cancelled_id(number.as_bytes()).finish();
                out.effects.push(Effect::Upstream(ToUpstream::Cancel { call: id, message }));
            }
            None => self.cancel_upstream(id, out),
        }
        self.mark_lost(id, now_ms);
        self.move_call(id, Phase::Cancelled { result: false }, out);
        self.write_outcome(id, Outcome::Cancelled, now_ms, out);
        let Some(call) = self.ledger.get(id) else { return };
        let text = "Cancelled by the client.";
        let body = message::error_response(Some(&call.request_id), CANCELLED_CODE, text, None);
        match call.stream {
            Some(stream) if self.is_all_cancelled(stream) => {
                let to = StreamState::Released(Release::Cancelled);
                self.move_stream(stream, to, now_ms, out);
                self.finish_connection(stream, out);
            }
            Some(stream) if !self.stream_runs(stream, id) => {
                // Other calls of the batch have answers: the stream must end with them.
                self.append(stream, EventKind::Response, true, body, out);
            }
            Some(_) => {}
            None => {
                if let Some(connection) = self.replies.remove(&id) {
                    out.effects.push(Effect::Reply { connection, body });
                }
                self.forget_json(id);
            }
        }
    }

    fn is_all_cancelled(&self, stream: StreamId) -> bool {
        let cancelled = |&id: &CallId| {
            self.ledger.get(id).is_none_or(|call| matches!(call.phase, Phase::Cancelled { .. }))
        };
        let silent = |stream: &Stream| stream.response_bytes == 0;
        self.streams.get(&stream).is_some_and(|s| silent(s) && s.calls.iter().all(cancelled))
    }

    /// The client's answer to a server request: it proves that the request arrived (design
    /// section 3), and goes upstream under the server's own id. A second answer is swallowed.
    pub(super) fn handle_response(&mut self, message: &Message, now_ms: u64, out: &mut Output) {
        self.last_activity_ms = now_ms;
        let number = message.id_key().and_then(|key| key.as_u64());
        let request = number.and_then(|number| self.server_requests.get_mut(&number));
        let Some(request) = request.filter(|request| !request.answered) else {
            return out.effects.push(Effect::Note(Note::Ignored("answer to no server request")));
        };
        request.answered = true;
        let (stream, seq) = (request.stream, request.seq);
        let bytes = message.edit().id(&request.upstream_id.clone()).finish();
        self.server_requests_changed();
        out.effects.push(Effect::Upstream(ToUpstream::Send(bytes)));
        self.acknowledge(stream, seq, now_ms, out);
    }

    pub(super) fn handle_acknowledgement(
        &mut self,
        ids: &[EventId],
        now_ms: u64,
        out: &mut Output,
    ) {
        for id in ids {
            let id = self.kept_part(*id);
            if self.known(id).is_some() {
                self.present_cursor();
                self.acknowledge(id.stream, id.seq, now_ms, out);
            }
        }
    }

    /// The client says how far it got: it is one that resumes.
    pub(super) fn present_cursor(&mut self) {
        self.row_changed |= !self.presented_cursor;
        self.presented_cursor = true;
    }

    /// Moves `acked`, with all that follows: proof of the last event, the replay gate, the grace.
    pub(super) fn acknowledge(&mut self, id: StreamId, seq: Seq, now_ms: u64, out: &mut Output) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.cursors.acknowledge(seq) {
            stream.detached_before_ms = 0;
            stream.detached_since_ms = stream.detached_since_ms.map(|_| now_ms);
            self.changed_streams.insert(id);
        }
        let released = matches!(stream.state, StreamState::Released(_) | StreamState::Held);
        if stream.is_proved() && !released {
            self.move_stream(id, StreamState::Proved, now_ms, out);
        } else {
            self.arm_stream(id, now_ms);
        }
        let drained = |replay: &super::Replay| replay.stream == id && seq >= replay.until;
        let open: Vec<_> =
            self.replays.iter().filter(|(_, replay)| drained(replay)).map(|(&c, _)| c).collect();
        for connection in open {
            self.open_gate(connection);
        }
    }

    /// DELETE: running calls are cancelled, streams end; token records stay (design section 5).
    pub(super) fn handle_delete(&mut self, now_ms: u64, out: &mut Output) {
        let waiting: Vec<_> = self.waiting.keys().copied().collect();
        for connection in waiting {
            self.withdraw(connection, now_ms, out);
        }
        let running: Vec<_> = self.ledger.running().map(|call| call.id).collect();
        for call in running {
            self.cancel(call, None, now_ms, out);
        }
        let streams: Vec<_> = self.streams.keys().copied().collect();
        for stream in streams {
            self.finish_connection(stream, out);
        }
        self.end(out);
    }

    /// `rejoin sessions release`: an operator ends every refusal that a call causes.
    pub(super) fn handle_release(&mut self, id: CallId, now_ms: u64, out: &mut Output) {
        let Some(call) = self.ledger.get_mut(id) else { return };
        call.settled_by = Some(Settled::ByHand);
        let (params, stream) = (call.params, call.stream);
        let has_result = matches!(call.phase, Phase::Finished | Phase::Cancelled { result: true });
        self.changed_calls.insert(id);
        self.ledger.forget_params(params, id);
        self.release_scope(id, now_ms, out);
        if !has_result {
            // Its token would be refused for as long as nobody knows the outcome.
            self.write_outcome(id, Outcome::Freed, now_ms, out);
            self.ledger.forget_key(id);
        }
        if let Some(stream) = stream.filter(|&stream| self.is_all_settled(stream)) {
            self.move_stream(stream, StreamState::Released(Release::ByHand), now_ms, out);
        }
        self.review_due = true;
    }

    /// True if nobody waits for any call of a stream; the others of a batch may still be owed.
    pub(super) fn is_all_settled(&self, id: StreamId) -> bool {
        let settled = |&call: &CallId| {
            self.ledger.get(call).is_none_or(|c| c.settled_by.is_some() || c.stream != Some(id))
        };
        self.streams.get(&id).is_some_and(|stream| stream.calls.iter().all(settled))
    }
}
