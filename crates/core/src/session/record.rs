//! Recorded answers: read from the log, re-addressed, marked (design section 5, rows 5 and 11).

use bytes::Bytes;

use super::post::request_id;
use super::waiting::{Wait, Waiter};
use super::{Session, mark};
use crate::effect::{Effect, EventKind, Note, Output};
use crate::id::{CallId, ConnectionId, Seq, StreamId};
use crate::input::Request;
use crate::ledger::Phase;
use crate::policy::{Decision, Verdict};
use crate::rejection::Reason;
use crate::stream::{Release, StreamState};
use crate::token::Outcome;

impl Session {
    /// Asks for the recorded answers that the decisions need; true if all are there.
    pub(super) fn load_records(
        &mut self,
        waiter: &mut Waiter,
        decisions: &[Decision],
        out: &mut Output,
    ) -> bool {
        for (index, decision) in decisions.iter().enumerate() {
            let (Verdict::Record(Some(call)) | Verdict::Collect(call)) = decision.verdict else {
                continue;
            };
            if waiter.loaded.iter().any(|(at, id, _)| (*at, *id) == (index, call)) {
                continue;
            }
            let connection = waiter.connection.id;
            match self.ledger.get(call).and_then(|call| call.result) {
                Some((stream, seq)) => {
                    waiter.loaded.push((index, call, None));
                    out.effects.push(Effect::Load { connection, stream, seq });
                    return false;
                }
                None => waiter.loaded.push((index, call, None)),
            }
        }
        true
    }

    /// A recorded answer was read: decide the POST again, with it at hand.
    pub(super) fn handle_loaded(
        &mut self,
        connection: ConnectionId,
        payload: Option<Bytes>,
        now_ms: u64,
        out: &mut Output,
    ) {
        if self.waiting.get(&connection).is_none_or(|waiter| waiter.wait != Wait::Record) {
            return;
        }
        let Some(mut waiter) = self.take_waiter(connection) else { return };
        if let Some((_, _, loaded)) = waiter.loaded.last_mut() {
            *loaded = payload;
        }
        let held_ms = waiter.held_since_ms.map(|since_ms| now_ms.saturating_sub(since_ms));
        self.judge(waiter, now_ms, out);
        if let Some(waited_ms) = held_ms
            && !self.waiting.contains_key(&connection)
        {
            out.effects.push(Effect::Note(Note::WaitEnded { connection, waited_ms }));
        }
    }

    /// Answers one request with the record of its original. The call moves to this POST's stream;
    /// only its old stream is released, so losing this connection loses nothing. A record that is
    /// no longer kept is a refusal: the call did run. True if it was a record.
    #[allow(clippy::too_many_arguments, reason = "one request of a POST in its context")]
    pub(super) fn answer_record(
        &mut self,
        waiter: &Waiter,
        index: usize,
        decision: &Decision,
        stream: StreamId,
        last: bool,
        now_ms: u64,
        out: &mut Output,
    ) -> bool {
        let request = &waiter.requests[index];
        let Some(id) = decision.original else {
            let record = self.row_answer(request, None);
            let found = record.is_some();
            let body = record.unwrap_or_else(|| {
                self.reject(request, Reason::OutcomeUnknown, None, now_ms).body()
            });
            self.append(stream, EventKind::Response, last, body, out);
            return found;
        };
        out.effects.push(Effect::Note(Note::RepeatPrevented(id)));
        let loaded = waiter.loaded.iter().find(|(at, call, _)| (*at, *call) == (index, id));
        let payload = loaded.and_then(|(_, _, payload)| payload.clone());
        let ended_ms = self.ledger.get(id).and_then(|call| call.ended_ms).unwrap_or(now_ms);
        let origin = request.token.and_then(|_| self.progress_origin(id));
        let mark = mark::Mark { ended_ms, origin: origin.as_deref() };
        let body = payload.and_then(|payload| mark::record(payload, request, &mark));
        // Its row may keep the answer longer than the session's log.
        let Some(body) = body.or_else(|| self.row_answer(request, Some(id))) else {
            let body = self.reject(request, Reason::OutcomeUnknown, Some(id), now_ms).body();
            self.append(stream, EventKind::Response, last, body, out);
            return false;
        };
        let seq = self.append(stream, EventKind::Response, last, body, out);
        self.move_call_here(id, request, (stream, seq), now_ms, out);
        true
    }

    /// The origin of the stream on which a call's progress still is, for who has none of it. A
    /// cancelled call's stream cannot be resumed.
    fn progress_origin(&self, id: CallId) -> Option<String> {
        let call = self.ledger.get(id)?;
        let stream = self.streams.get(&call.ran_on.or(call.stream)?)?;
        let is_cancelled = stream.state == StreamState::Released(Release::Cancelled);
        let has_progress = stream.progress_bytes() > 0 && !is_cancelled;
        has_progress.then(|| self.event_id(stream.id, Seq::ORIGIN).to_string())
    }

    fn move_call_here(
        &mut self,
        id: CallId,
        request: &Request,
        result: (StreamId, Seq),
        now_ms: u64,
        out: &mut Output,
    ) {
        self.move_call(id, Phase::Finished, out);
        let Some(call) = self.ledger.get_mut(id) else { return };
        if call.stream == Some(result.0) {
            // Two requests of one batch collect the same call: the first has moved it.
            return;
        }
        let old = call.stream.replace(result.0);
        call.ran_on = call.ran_on.or(old);
        call.result = Some(result);
        call.request_id = request_id(request);
        if let Some(key) = request.message.id_key() {
            call.request_key = key;
        }
        self.changed_calls.insert(id);
        let old_scar = self.release_collected(old, now_ms, out);
        if let Some(stream) = self.streams.get_mut(&result.0) {
            stream.calls.push(id);
            stream.request_ids.push(request_id(request));
            stream.scarred |= old_scar;
            self.changed_streams.insert(stream.id);
        }
    }

    /// Releases a collected call's old stream, unless other calls of a batch are still owed there.
    fn release_collected(
        &mut self,
        stream: Option<StreamId>,
        now_ms: u64,
        out: &mut Output,
    ) -> bool {
        let Some(id) = stream else { return false };
        let Some(old) = self.streams.get(&id) else { return false };
        let scarred = old.scarred;
        // The call itself lives elsewhere by now.
        if self.is_all_settled(id) && !matches!(old.state, StreamState::Released(_)) {
            self.move_stream(id, StreamState::Released(Release::Collected), now_ms, out);
        }
        scarred
    }

    /// A record of another session: no cursor, id or resumable header of the first is given.
    pub(super) fn reply_foreign_record(
        &mut self,
        waiter: &Waiter,
        request: &Request,
        out: &mut Output,
    ) {
        let connection = waiter.connection.id;
        match self.row_answer(request, None) {
            Some(body) => out.effects.push(Effect::Reply { connection, body }),
            None => {
                let rejections = self.refusals(waiter, |_| Reason::OutcomeUnknown);
                out.effects.push(Effect::Refuse { connection, rejections, batch: waiter.batch });
            }
        }
    }

    /// The answer in the row that a request was judged by: its token's, or that of the tokenless
    /// call that it repeats, be it `original` or, for `None`, one of another session.
    fn row_answer(&self, request: &Request, original: Option<CallId>) -> Option<Bytes> {
        let record = match &request.token {
            Some(_) => request.record.as_ref(),
            None => self.scope(request).and_then(|scope| scope.record.as_ref()).filter(|record| {
                match original {
                    Some(call) => record.owner == self.owner(call),
                    None => record.owner.session != self.start.session,
                }
            }),
        };
        match &record?.outcome {
            Outcome::Finished { response, ended_ms } => {
                let mark = mark::Mark { ended_ms: *ended_ms, origin: None };
                mark::record(response.clone(), request, &mark)
            }
            _ => None,
        }
    }
}
