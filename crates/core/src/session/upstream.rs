//! What comes from upstream: responses, progress, server requests, the end (design section 5).

use super::room::{Needed, Purpose};
use super::timer::Timer;
use super::{ServerRequest, Session};
use crate::effect::{Effect, EventKind, Note, Output};
use crate::id::{CallId, Seq, StreamId};
use crate::input::{Channel, FromUpstream};
use crate::ledger::{Phase, Settled};
use crate::message::{self, Kind, Message};
use crate::rejection::{LostAnswer, Reason, Rejection};
use crate::stream::{Release, StreamState};
use crate::token::Outcome;
use crate::tool::Class;

/// JSON-RPC errors that say that the call was never run: the claim is released (design section 5).
const NOT_RUN_CODES: [i64; 4] = [-32_700, -32_600, -32_601, -32_602];

impl Session {
    pub(super) fn handle_upstream(&mut self, event: FromUpstream, now_ms: u64, out: &mut Output) {
        match event {
            FromUpstream::Sent(call) => {
                if self.ledger.get(call).is_some_and(|call| call.phase == Phase::Claimed) {
                    self.move_call(call, Phase::Sent, out);
                }
            }
            FromUpstream::NotSent(call) => {
                self.not_sent(call, Reason::UpstreamUnavailable, now_ms, out);
            }
            FromUpstream::SessionGone(calls) => self.session_gone(&calls, now_ms, out),
            FromUpstream::Lost(call) => self.lose_running_call(call, now_ms, out),
            FromUpstream::Message { channel, message, cursor } => {
                self.stand_at(channel, cursor);
                match message.kind() {
                    Kind::Response | Kind::ErrorResponse => self.response(&message, now_ms, out),
                    Kind::Request => self.server_request(channel, &message, now_ms, out),
                    Kind::Notification => self.notification(channel, &message, now_ms, out),
                }
            }
            FromUpstream::Cursor { channel, cursor } => self.stand_at(channel, cursor),
            FromUpstream::Closed => self.upstream_closed(false, now_ms, out),
            FromUpstream::Reopened { continuation } => {
                self.set_continuation(continuation);
                self.upstream_reopened(now_ms, out);
            }
        }
    }

    fn response(&mut self, message: &Message, now_ms: u64, out: &mut Output) {
        let id = message.id_key().and_then(|key| key.as_u64()).map(CallId);
        let Some(call) = id.and_then(|id| self.ledger.get(id)) else {
            return out.effects.push(Effect::Note(Note::Ignored("response of no call")));
        };
        let id = call.id;
        let to = match call.phase {
            Phase::Claimed | Phase::Sent => Phase::Finished,
            Phase::Cancelled { result: false } => Phase::Cancelled { result: true },
            Phase::Finished | Phase::Cancelled { .. } | Phase::Unknown => {
                return out.effects.push(Effect::Note(Note::Ignored("response came twice")));
            }
        };
        self.learn(id, message);
        self.last_activity_ms = now_ms;
        let Some(call) = self.ledger.get_mut(id) else { return };
        if call.settled_by == Some(Settled::Superseded) {
            return out.effects.push(Effect::Note(Note::Ignored("response of a superseded call")));
        }
        let error_code = message.error_code();
        let not_run = error_code.is_some_and(|code| NOT_RUN_CODES.contains(&code));
        if matches!(to, Phase::Cancelled { .. }) && error_code.is_some() && !not_run {
            // Some servers answer what was cancelled with an error. That it was cancelled is known;
            // how far it had come by then, the error does not tell.
            return out.effects.push(Effect::Note(Note::Ignored("error for a cancelled call")));
        }
        let body = message.edit().id(&call.request_id.clone()).finish();
        let stream = call.stream;
        // Its row, if it has one, gets a copy.
        let copies = u64::from(call.key().is_some() && !not_run);
        let bytes = body.len() as u64;
        let needed = Needed::with_rows(bytes, bytes * copies);
        if stream.is_some() && !self.fit(Purpose::Answer, needed, Some(id), now_ms, out) {
            if to == Phase::Finished {
                self.lose_call(id, LostAnswer::LogFull, now_ms, out);
            }
            return;
        }
        if let Some(call) = self.ledger.get_mut(id) {
            call.ended_ms = Some(now_ms);
        }
        self.move_call(id, to, out);
        let outcome = if not_run {
            Outcome::Freed
        } else {
            Outcome::Finished { response: body.clone(), ended_ms: now_ms }
        };
        self.write_outcome(id, outcome, now_ms, out);
        if let Some(stream) = stream {
            self.answer(id, stream, body, out);
        } else if let Some(connection) = self.replies.remove(&id) {
            out.effects.push(Effect::Reply { connection, body });
        }
        if stream.is_none() {
            self.forget_json(id);
        } else if not_run {
            self.free(id);
        }
    }

    /// A call that is answered as JSON is over: nothing remembers it.
    pub(super) fn forget_json(&mut self, id: CallId) {
        self.ledger.remove(id);
        self.changed_calls.insert(id);
    }

    /// Appends the response of a call to its stream; the stream ends with its last one. The late
    /// result of a cancelled call may come behind that end: kept for its record, never sent.
    pub(super) fn answer(
        &mut self,
        call: CallId,
        stream: StreamId,
        body: bytes::Bytes,
        out: &mut Output,
    ) {
        let ended = self.streams.get(&stream).is_some_and(|stream| stream.last.is_some());
        let last = !ended && !self.stream_runs(stream, call);
        let seq = self.append(stream, EventKind::Response, last, body, out);
        if let Some(call) = self.ledger.get_mut(call) {
            call.result = Some((stream, seq));
        }
    }

    /// True if another call than this one still runs for a stream.
    pub(super) fn stream_runs(&self, stream: StreamId, but: CallId) -> bool {
        let Some(stream) = self.streams.get(&stream) else { return false };
        let mut others = stream.calls.iter().filter(|&&id| id != but);
        others.any(|&id| self.ledger.get(id).is_some_and(|call| call.phase.is_in_flight()))
    }

    /// Learns what later decisions and a respawn need from an answer.
    fn learn(&mut self, id: CallId, message: &Message) {
        self.row_changed |= self.upstream.settings.answered(id, message.result().is_some());
        let Some(call) = self.ledger.get(id) else { return };
        if call.method == "tools/list"
            && let Some(result) = message.result()
        {
            self.row_changed |= self.tools.learn(result);
        }
    }

    /// The claim is released: the call is no repeat's original any more, its token is free.
    pub(super) fn free(&mut self, id: CallId) {
        if let Some(call) = self.ledger.get_mut(id) {
            call.settled_by = Some(Settled::Freed);
            let params = call.params;
            self.changed_calls.insert(id);
            self.ledger.forget_params(params, id);
            self.ledger.forget_key(id);
        }
    }

    /// Upstream provably never saw the call.
    fn not_sent(&mut self, id: CallId, reason: Reason, now_ms: u64, out: &mut Output) {
        let Some(call) = self.ledger.get(id) else { return };
        match call.phase {
            // Bytes may have left, and still the server can say that it never took the call.
            Phase::Claimed | Phase::Sent => {}
            Phase::Cancelled { result: false } => {
                // Cancelled before a byte left: nobody need wonder about its outcome.
                self.write_outcome(id, Outcome::Freed, now_ms, out);
                return self.free(id);
            }
            _ => return,
        }
        let (stream, request_id) = (call.stream, call.request_id.clone());
        let rejection = Rejection {
            reason,
            request_id,
            hint: None,
            send_again: true,
            retry_after_ms: self.limits().retry_ms,
            original_ended_ms: None,
        };
        self.write_outcome(id, Outcome::Freed, now_ms, out);
        self.move_call(id, Phase::Finished, out);
        if let Some(stream) = stream {
            self.answer(id, stream, rejection.body(), out);
            self.free(id);
            self.owe_less(stream, now_ms, out);
        } else {
            if let Some(connection) = self.replies.remove(&id) {
                let rejections = vec![rejection];
                out.effects.push(Effect::Refuse { connection, rejections, batch: false });
            }
            self.forget_json(id);
        }
    }

    /// A 404 in place of answers: these calls did not run, and the server's state is lost. A call
    /// that must not run twice is told so, and no other need be (design section 5, "State lost").
    fn session_gone(&mut self, calls: &[CallId], now_ms: u64, out: &mut Output) {
        let mut told = false;
        for &id in calls {
            let call = self.ledger.get(id).filter(|call| call.phase.is_in_flight());
            let is_effectful = call.is_some_and(|call| call.class == Class::Effectful);
            let is_told = is_effectful && !self.start.settings.upstream_is_stateless;
            told |= is_told;
            let reason = if is_told { Reason::StateLost } else { Reason::UpstreamUnavailable };
            self.not_sent(id, reason, now_ms, out);
        }
        self.upstream_closed(told, now_ms, out);
    }

    /// A stream owes nothing for calls that were freed before a byte of them went upstream.
    fn owe_less(&mut self, id: StreamId, now_ms: u64, out: &mut Output) {
        let ledger = &self.ledger;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let owes = |&other: &CallId| {
            ledger.get(other).is_some_and(|call| {
                call.class != Class::Ungated && call.settled_by != Some(Settled::Freed)
            })
        };
        if stream.calls.iter().any(owes) {
            return;
        }
        stream.owes = false;
        self.changed_streams.insert(id);
        if stream.connection.is_none() {
            self.move_stream(id, StreamState::Released(Release::NotRun), now_ms, out);
        }
    }

    fn notification(&mut self, channel: Channel, message: &Message, now_ms: u64, out: &mut Output) {
        if message.method() == Some("notifications/progress") {
            return self.progress_of_call(message, now_ms, out);
        }
        if message.method() == Some("notifications/cancelled") {
            return self.server_cancels(message, now_ms, out);
        }
        self.hear(channel, now_ms);
        let stream = self.stream_of_notification(channel);
        self.log(stream, EventKind::Notification, message.bytes().clone(), now_ms, out);
    }

    /// Progress goes to the stream of the call whose token it carries, under the client's token.
    fn progress_of_call(&mut self, message: &Message, now_ms: u64, out: &mut Output) {
        let id = message.progress_of().and_then(|key| key.as_u64()).map(CallId);
        let call = id.and_then(|id| self.ledger.get_mut(id));
        let Some(call) = call.filter(|call| call.phase.is_in_flight()) else {
            return out.effects.push(Effect::Note(Note::Ignored("progress of no running call")));
        };
        call.heard_ms = now_ms;
        let (Some(token), Some(stream)) = (call.progress_token.clone(), call.stream) else {
            return out.effects.push(Effect::Note(Note::Ignored("progress nobody asked for")));
        };
        let body = message.edit().progress_of(&token).finish();
        self.log(stream, EventKind::Notification, body, now_ms, out);
    }

    /// A request of the server. Its id is minted, since a respawned server starts over.
    fn server_request(
        &mut self,
        channel: Channel,
        message: &Message,
        now_ms: u64,
        out: &mut Output,
    ) {
        let stream = self.stream_of_request(channel);
        self.hear(channel, now_ms);
        self.last_server_request += 1;
        let number = self.last_server_request;
        let upstream_id = message.id().map(bytes::Bytes::copy_from_slice).unwrap_or_default();
        let body = message.edit().id(number.to_string().as_bytes()).finish();
        let Some(seq) = self.log(stream, EventKind::ServerRequest, body, now_ms, out) else {
            return self.refuse_server_request(&upstream_id, out);
        };
        let request = ServerRequest { upstream_id, stream, seq, answered: false };
        self.server_requests.insert(number, request);
        self.server_requests_changed();
        self.bound_server_requests(out);
        let at_ms = now_ms + self.limits().server_request_max_ms;
        self.timers.insert((at_ms, Timer::ServerRequest(number)));
    }

    /// Answered server requests are remembered so that a resume does not ask twice; not for ever.
    /// Beyond the bound the oldest goes, and is refused if nobody answered it.
    fn bound_server_requests(&mut self, out: &mut Output) {
        if self.server_requests.len() <= self.limits().session_streams_max {
            return;
        }
        let answered = self.server_requests.iter().find(|(_, request)| request.answered);
        let oldest = answered.or_else(|| self.server_requests.first_key_value());
        let Some(number) = oldest.map(|(&number, _)| number) else { return };
        let request = self.server_requests.remove(&number).filter(|request| !request.answered);
        if let Some(request) = request {
            self.refuse_server_request(&request.upstream_id, out);
        }
    }

    /// The server takes a request back: its client is told under the id that it knows.
    fn server_cancels(&mut self, message: &Message, now_ms: u64, out: &mut Output) {
        let Some(key) = message.cancels() else { return };
        let found = self.server_requests.iter().find(|(_, request)| {
            !request.answered
                && message::IdKey::from_json(&request.upstream_id).is_ok_and(|id| id == key)
        });
        let Some((&number, request)) = found else { return };
        let stream = request.stream;
        let body = message.edit().cancelled_id(number.to_string().as_bytes()).finish();
        if let Some(request) = self.server_requests.get_mut(&number) {
            request.answered = true;
        }
        self.server_requests_changed();
        self.log(stream, EventKind::Notification, body, now_ms, out);
    }

    /// Appends an event under the quotas; `None`: it was dropped. The stream of a call says so.
    fn log(
        &mut self,
        stream: StreamId,
        kind: EventKind,
        payload: bytes::Bytes,
        now_ms: u64,
        out: &mut Output,
    ) -> Option<Seq> {
        if self.streams.get(&stream).is_none_or(|stream| stream.last.is_some()) {
            out.effects.push(Effect::Note(Note::Ignored("event of an ended stream")));
            return None;
        }
        let unowed = stream == StreamId::STANDALONE;
        let purpose = if unowed { Purpose::Unowed } else { Purpose::Progress };
        if !self.fit(purpose, Needed::log(payload.len() as u64), None, now_ms, out) {
            if !unowed && kind == EventKind::Notification {
                self.drop_progress(stream, out);
            }
            out.effects.push(Effect::Note(Note::Ignored("event that the log has no room for")));
            return None;
        }
        Some(self.append(stream, kind, false, payload, out))
    }

    /// The server is gone: what was sent and not answered is unknown, and is never sent again.
    fn upstream_closed(&mut self, is_told: bool, now_ms: u64, out: &mut Output) {
        self.upstream.down = true;
        self.set_continuation(None);
        self.upstream.lost_untold = !is_told && !self.start.settings.upstream_is_stateless;
        // What the gone server asked is answered by nobody, and is not asked again on a resume.
        for request in self.server_requests.values_mut() {
            request.answered = true;
        }
        out.effects.push(Effect::Note(Note::UpstreamMoved("closed")));
        let lost: Vec<_> =
            self.ledger.running().filter(|c| c.phase == Phase::Sent).map(|call| call.id).collect();
        for id in lost {
            self.lose_call(id, LostAnswer::OutcomeUnknown, now_ms, out);
        }
    }

    fn lose_running_call(&mut self, id: CallId, now_ms: u64, out: &mut Output) {
        if self.ledger.get(id).is_some_and(|call| call.phase.is_in_flight()) {
            self.lose_call(id, LostAnswer::OutcomeUnknown, now_ms, out);
        }
    }

    /// Nothing tells the outcome of a call: its stream ends with an error that says so.
    pub(super) fn lose_call(&mut self, id: CallId, why: LostAnswer, now_ms: u64, out: &mut Output) {
        let Some(call) = self.ledger.get(id) else { return };
        let (stream, body) = (call.stream, why.body(&call.request_id));
        self.mark_lost(id, now_ms);
        self.move_call(id, Phase::Unknown, out);
        self.write_outcome(id, Outcome::Unknown, now_ms, out);
        if let Some(stream) = stream {
            let ended = self.streams.get(&stream).is_none_or(|stream| stream.last.is_some());
            let last = !self.stream_runs(stream, id);
            if !ended {
                self.append(stream, EventKind::Response, last, body, out);
            }
        } else {
            if let Some(connection) = self.replies.remove(&id) {
                out.effects.push(Effect::Reply { connection, body });
            }
            self.forget_json(id);
        }
    }

    /// The server runs again: what it offers may have changed.
    fn upstream_reopened(&mut self, now_ms: u64, out: &mut Output) {
        out.effects.push(Effect::Note(Note::UpstreamMoved("reopened")));
        for list in ["tools", "prompts", "resources"] {
            let body = message::notification(&format!("notifications/{list}/list_changed"), None);
            self.log(StreamId::STANDALONE, EventKind::Notification, body, now_ms, out);
        }
    }
}
