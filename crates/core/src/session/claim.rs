//! From a verdict to the ledger: claims and supersedes (design sections 4 and 5).

use super::Session;
use super::post::request_id;
use super::safeguard::Safeguard;
use super::waiting::{Headers, Waiter};
use crate::effect::{Command, Effect, EventKind, Note, Output, ToUpstream};
use crate::id::{CallId, StreamId};
use crate::input::Request;
use crate::ledger::{Call, Phase, Settled};
use crate::message;
use crate::policy::{Decision, Verdict};
use crate::rejection::{LostAnswer, Reason};
use crate::stream::{Release, StreamState};
use crate::token::{ATTEMPT_META, EPOCH_META, Outcome, TOKEN_META};
use crate::tool::Class;

/// A read that waits until a task has ended, for hours perhaps: as a stream it can be kept alive
/// and resumed (spec 2025-11-25, tasks).
const BLOCKING_READ: &str = "tasks/result";

impl Session {
    /// Admits a POST: claims what runs, answers the rest, all on one stream or as one JSON body.
    pub(super) fn admit(
        &mut self,
        waiter: Waiter,
        decisions: Vec<Decision>,
        now_ms: u64,
        out: &mut Output,
    ) {
        if let ([decision], [request]) = (&decisions[..], &waiter.requests[..]) {
            if waiter.is_plain() && decision.verdict == Verdict::Record(None) {
                self.note_decision(waiter.connection.id, decision, None, out);
                return self.reply_foreign_record(&waiter, request, out);
            }
            if self.is_json(&waiter, 0, decision) {
                let call = self.claim(&waiter, request, decision, None, now_ms, out);
                self.replies.insert(call, waiter.connection.id);
                return;
            }
        }
        if waiter.stream.is_none() && !self.make_room(now_ms, out) {
            out.effects.push(Effect::Note(Note::NoRoom { limits: &["session_streams_max"] }));
            let rejections = self.refusals(&waiter, |_| Reason::UpstreamUnavailable);
            return self.refuse(waiter, rejections, now_ms, out);
        }
        let undo = self.prepare_undo(&waiter, &decisions, out);
        let mut claimed = Vec::new();
        let stream = self.answer_stream(&waiter, now_ms, out);
        let running =
            decisions.iter().any(|d| matches!(d.verdict, Verdict::Claim { .. } | Verdict::Pass));
        let count = decisions.len();
        let mut gated = false;
        for (index, (request, decision)) in waiter.requests.iter().zip(&decisions).enumerate() {
            let last = !running && index + 1 == count;
            match &decision.verdict {
                Verdict::Claim { supersede } => {
                    gated = true;
                    for &call in supersede {
                        self.supersede(call, request, now_ms, out);
                    }
                    let call = self.claim(&waiter, request, decision, Some(stream), now_ms, out);
                    claimed.push(call);
                }
                Verdict::Pass => {
                    let call = self.claim(&waiter, request, decision, Some(stream), now_ms, out);
                    claimed.push(call);
                }
                Verdict::Record(_) | Verdict::Collect(_) => {
                    self.note_decision(waiter.connection.id, decision, decision.original, out);
                    gated |=
                        self.answer_record(&waiter, index, decision, stream, last, now_ms, out);
                }
                Verdict::Reject(reason) => {
                    self.note_refusal(waiter.connection.id, decision, request, out);
                    let rejection = self.rejected(request, *reason, decision.original, now_ms, out);
                    self.append(stream, EventKind::Response, last, rejection.body(), out);
                }
                other => debug_assert!(false, "{other:?} waits or attaches"),
            }
        }
        if let Some(state) = self.streams.get_mut(&stream) {
            state.owes = gated;
        }
        // Its own connection is asked again by nobody who waited already when it proved itself.
        for other in self.waiting.values_mut() {
            if other.proven.contains(&waiter.connection.id) {
                other.alive.extend(claimed.iter().copied());
            }
        }
        let opened = waiter.stream.is_none().then_some(stream);
        self.undo = undo.map(|undo| undo.with(claimed, opened));
    }

    /// True if a request is answered as one JSON body: a read that asked for no progress and has
    /// no token. Such an answer is never owed (design section 3).
    pub(super) fn is_json(&self, waiter: &Waiter, index: usize, decision: &Decision) -> bool {
        let Some(request) = waiter.requests.get(index).filter(|_| waiter.is_plain()) else {
            return false;
        };
        let class = self.tools.classify(&request.message, &self.start.settings);
        let superseding =
            matches!(&decision.verdict, Verdict::Claim { supersede } if !supersede.is_empty());
        matches!(class, Class::Ungated | Class::Read)
            && matches!(decision.verdict, Verdict::Claim { .. } | Verdict::Pass)
            && !superseding
            && request.token.is_none()
            && request.message.method() != Some(BLOCKING_READ)
            && request.message.progress_token_raw().is_none_or(|raw| raw == b"null")
    }

    /// The stream that answers a POST: the one whose headers are out, or a new one.
    fn answer_stream(&mut self, waiter: &Waiter, now_ms: u64, out: &mut Output) -> StreamId {
        if let Some(stream) = waiter.stream {
            debug_assert!(waiter.headers != Headers::Unsent);
            if let Some(held) = self.streams.get_mut(&stream) {
                // Those of its calls come as they are claimed.
                held.request_ids.clear();
            }
            self.move_stream(stream, StreamState::Live, now_ms, out);
            return stream;
        }
        self.open_answer(waiter, StreamState::Live, now_ms, out)
    }

    /// Row 18: into the ledger, then upstream.
    fn claim(
        &mut self,
        waiter: &Waiter,
        request: &Request,
        decision: &Decision,
        stream: Option<StreamId>,
        now_ms: u64,
        out: &mut Output,
    ) -> CallId {
        let id = self.ledger.next_id();
        let message = &request.message;
        let raw = |bytes: &[u8]| bytes::Bytes::copy_from_slice(bytes);
        let class = self.tools.classify(message, &self.start.settings);
        let call = Call {
            id,
            request_id: request_id(request),
            request_key: message.id_key().unwrap_or_else(|| message::IdKey::text("")),
            progress_token: message.progress_token_raw().filter(|raw| *raw != b"null").map(raw),
            method: message.method().unwrap_or_default().to_owned(),
            tool: message.tool_name().map(str::to_owned),
            class,
            params: message.canonical_params_hash(),
            body: waiter.body,
            // What is never gated is never a repeat: a token on it means nothing.
            token: request.token.filter(|_| class != Class::Ungated).map(|token| token.key),
            scope: self.scope_row(request, now_ms),
            phase: Phase::Claimed,
            stream,
            ran_on: None,
            result: None,
            claimed_ms: now_ms,
            heard_ms: now_ms,
            ended_ms: None,
            lost_ms: None,
            settled_by: None,
            upstream_cursor: None,
        };
        let asks_progress = call.progress_token.is_some();
        let request_id = call.request_id.clone();
        self.write_claim(&call, request, out);
        self.note_decision(waiter.connection.id, decision, Some(id), out);
        self.ledger.insert(call);
        if let Some(stream) = stream.and_then(|id| self.streams.get_mut(&id)) {
            stream.calls.push(id);
            stream.request_ids.push(request_id);
            self.changed_streams.insert(stream.id);
        }
        self.changed_calls.insert(id);
        out.batch.durable |= !self.lacks(Safeguard::DurableClaim);
        self.row_changed |= self.upstream.settings.ask(id, message);
        let number = id.0.to_string();
        let mut edit = message.edit().id(number.as_bytes());
        if asks_progress {
            edit = edit.progress_token(number.as_bytes());
        }
        let bytes = edit.remove_meta(&[TOKEN_META, ATTEMPT_META, EPOCH_META]).finish();
        let asked_by = (!waiter.batch).then_some(waiter.connection.id);
        self.send_upstream(ToUpstream::Call { call: id, message: bytes, asked_by }, out);
        if class != Class::Ungated {
            out.effects.push(Effect::Note(Note::Executed(id)));
        }
        id
    }

    /// Row 6: the original is cancelled and released in the new claim's own commit, so that
    /// conditions 1 and 2 hold. A batch's stream stays while it is owed for other calls.
    fn supersede(&mut self, id: CallId, by: &Request, now_ms: u64, out: &mut Output) {
        let Some(call) = self.ledger.get_mut(id) else { return };
        if call.settled_by == Some(Settled::Superseded) {
            return;
        }
        call.settled_by = Some(Settled::Superseded);
        let call = call.clone();
        self.changed_calls.insert(id);
        if call.phase.is_in_flight() {
            self.cancel_upstream(id, out);
            self.move_call(id, Phase::Cancelled { result: false }, out);
        }
        if call.token.is_some() && call.token != by.token.map(|token| token.key) {
            // The new claim does not take its row over.
            let outcome = match call.phase {
                Phase::Unknown => Outcome::Unknown,
                _ => Outcome::Cancelled,
            };
            if call.phase != Phase::Finished {
                self.write_outcome(id, outcome, now_ms, out);
            }
        }
        self.release_scope(id, now_ms, out);
        self.ledger.forget_params(call.params, id);
        let Some(stream) = call.stream else { return };
        let runs = self.stream_runs(stream, id);
        let answered = call.result.is_some() || call.phase == Phase::Unknown;
        if !answered && self.streams.get(&stream).is_some_and(|stream| stream.last.is_none()) {
            let body = LostAnswer::Superseded.body(&call.request_id);
            self.append(stream, EventKind::Response, !runs, body, out);
        }
        if !runs && self.is_all_settled(stream) {
            self.move_stream(stream, StreamState::Released(Release::Superseded), now_ms, out);
        }
    }

    /// Tells upstream to stop a call, under the id that upstream knows.
    pub(super) fn cancel_upstream(&mut self, call: CallId, out: &mut Output) {
        let params = format!("{{\"requestId\":{call},\"reason\":\"superseded or cancelled\"}}");
        let message = message::notification("notifications/cancelled", Some(params.as_bytes()));
        out.effects.push(Effect::Upstream(ToUpstream::Cancel { call, message }));
    }

    /// Ends the connection of a stream without a last event.
    pub(super) fn finish_connection(&mut self, stream: StreamId, out: &mut Output) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if let Some(connection) = state.connection.take() {
            let command = Command::Finish { retry_ms: None };
            out.effects.push(Effect::Command(connection.id, command));
            self.carried.remove(&connection.id);
            self.open_gate(connection.id);
        }
    }
}
