//! Events: what they carry goes to the host once, in their order, under the host's own ids.
use bytes::Bytes;
use rejoin_core::message::{self, Incoming, Kind, Message};
use rejoin_core::sse::{Event, Mark};

use super::call::CallKey;
use super::queue::Note;
use super::resume::unreadable;
use super::track::Track;
use super::{ExchangeId, Machine, Output, Purpose, StreamKey};

/// JSON-RPC error code of a request that could not be taken.
const INTERNAL_ERROR: i64 = -32_603;

impl Machine {
    pub(super) fn event(&mut self, id: ExchangeId, purpose: Purpose, event: &Event) {
        let stream = match purpose {
            Purpose::Call(key) | Purpose::Resume(key) => {
                if let Some(call) = self.calls.get_mut(&key) {
                    call.heard_ms = self.now_ms;
                }
                StreamKey::Call(key)
            }
            Purpose::Standalone => {
                self.standalone.heard(self.now_ms);
                StreamKey::Standalone
            }
            Purpose::Reopen => return self.pass_on(StreamKey::Standalone, event.data.clone()),
            _ => return,
        };
        let generation = self.exchanges.get(&id).map(|exchange| exchange.generation);
        let (limits, now_ms) = (self.settings.limits.clone(), self.now_ms);
        let Some(track) = self.track(stream) else { return };
        track.take(event, &limits);
        let (resumed, cursor) = (track.resumed, track.cursor.clone());
        if let Some(super::track::Replay::Quiet { quiet_ms, .. }) = &mut track.replay {
            *quiet_ms = now_ms.saturating_add(limits.replay_quiet_ms);
        }
        let is_bare = event.data.trim_ascii().is_empty();
        // Some servers count the events of each stream anew.
        let mark = event.id.as_ref().map(|id| {
            let scope = format!("{stream:?} {generation:?} ");
            Mark::of(&[scope.as_bytes(), id].concat(), &event.data)
        });
        let is_new = is_bare || mark.is_none_or(|mark| self.seen.note(mark));
        if !is_bare && event.is_message() && (is_new || !resumed) {
            self.pass_on(stream, event.data.clone());
        }
        // Only what was processed is confirmed.
        if self.session.continuity.is_some() && generation == Some(self.session.generation) {
            self.confirm(stream, cursor.filter(|_| event.id.is_some()));
        }
        if let Some(track) = self.track(stream) {
            if !is_bare && is_new {
                track.heard(now_ms, &limits);
            }
            track.reached(event);
        }
    }

    fn track(&mut self, stream: StreamKey) -> Option<&mut Track> {
        match stream {
            StreamKey::Standalone => Some(&mut self.standalone.track),
            StreamKey::Call(key) => self.calls.get_mut(&key).map(|call| &mut call.track),
        }
    }

    fn confirm(&mut self, stream: StreamKey, id: Option<String>) {
        let Some(id) = id else { return };
        self.acks.insert(stream, id);
        let acks_max = self.limits().acks_max;
        while self.acks.len() > acks_max {
            // The newest streams are those that are asked about.
            self.acks.pop_first();
        }
    }

    fn pass_on(&mut self, stream: StreamKey, data: Bytes) {
        let read = message::parse(data.clone(), self.limits().json_depth_max);
        if let StreamKey::Call(key) = stream {
            let error = read.as_ref().err().filter(|_| may_be_answer(&data));
            let unreadable = error.map(|error| (self.now_ms, unreadable(error)));
            if let Some(call) = self.calls.get_mut(&key) {
                call.unreadable = unreadable;
            }
        }
        match read {
            Ok(Incoming::One(message)) => self.take_message(stream, &message),
            Ok(Incoming::Batch(messages)) => {
                for message in &messages {
                    self.take_message(stream, message);
                }
            }
            Err(error) => self.dropped(format!("a message of the server: {error}")),
        }
    }

    /// A message of the server, whatever it came on.
    pub(super) fn take_message(&mut self, stream: StreamKey, message: &Message) {
        match message.kind() {
            Kind::Response | Kind::ErrorResponse => self.take_answer(stream, message),
            Kind::Request => self.take_request(message),
            Kind::Notification => self.take_notification(stream, message),
        }
    }

    fn take_answer(&mut self, stream: StreamKey, message: &Message) {
        if let StreamKey::Call(key) = stream
            && let Some(call) = self.calls.get(&key).filter(|call| call.is_subscription())
            && message.id_key().as_ref() == Some(&call.host_key)
        {
            return self.call_answered(key, message);
        }
        let Some(wire) = message.id_key().and_then(|id| id.as_u64()) else {
            // Which call is meant is said by the answer that it stands in.
            if let StreamKey::Call(key) = stream {
                self.call_refused_unnamed(key, message);
            }
            return;
        };
        if self.session.reopen_wire == Some(wire) {
            return self.reopen_answered(message);
        }
        if let Some(key) = self.wires.get(&wire).copied() {
            self.call_answered(key, message);
        }
    }

    fn take_request(&mut self, message: &Message) {
        let Some(id) = message.id() else { return };
        let is_full = self.asked.len() >= self.limits().asked_max;
        if is_full || id.len() > self.limits().asked_id_bytes_max {
            let text = if is_full {
                "the host has not answered many requests; it gets no more for now"
            } else {
                "the id of the request is longer than the client takes"
            };
            let body = message::error_response(Some(id), INTERNAL_ERROR, text, None);
            let mut note = Note::new(body, self.session.generation, self.limits());
            note.is_answer = true;
            note.repeatable = true;
            return self.add_note(note);
        }
        let number = self.number();
        let relayed = message.edit().id(number.to_string().as_bytes()).finish();
        self.asked.insert(number, Bytes::copy_from_slice(id));
        self.out.push(Output::Deliver(relayed));
    }

    fn take_notification(&mut self, stream: StreamKey, message: &Message) {
        match message.method().unwrap_or_default() {
            "notifications/progress" => self.take_progress(stream, message),
            "notifications/cancelled" => {
                let Some(id) = message.param("requestId") else { return };
                let number = self.asked.iter().find(|(_, asked)| *asked == id);
                let number = number.map(|(number, _)| *number);
                let Some(number) = number else { return };
                self.asked.remove(&number);
                let relayed = message.edit().cancelled_id(number.to_string().as_bytes()).finish();
                self.out.push(Output::Deliver(relayed));
            }
            method => {
                if method == "notifications/tools/list_changed" {
                    self.tools.forget();
                }
                self.out.push(Output::Deliver(message.bytes().clone()));
            }
        }
    }

    /// Progress goes to the host under the token that it gave, if the call still runs and it is
    /// this execution's. What comes on the stream of another call is left out, since the call's own
    /// brings it in its order: some servers replay the events of all streams on one (against spec
    /// RES-6).
    fn take_progress(&mut self, stream: StreamKey, message: &Message) {
        let Some(wire) = message.progress_of().and_then(|token| token.as_u64()) else { return };
        if let Some((_, token)) = self.tasks.iter().find(|(task, _)| *task == wire) {
            self.out.push(Output::Deliver(message.edit().progress_of(token).finish()));
        }
        let Some(key) = self.wires.get(&wire).copied() else { return };
        let is_same_execution = self.honours_token(key);
        let recorded_wait_ms = self.limits().recorded_wait_ms;
        let Some(call) = self.calls.get_mut(&key) else { return };
        let is_wanted = call.wires.iter().skip(call.progress_from).any(|known| *known == wire);
        call.heard_ms = self.now_ms;
        // A sign of the call: what was spent on sending it again is renewed, unless it would run
        // anew each time.
        if is_same_execution {
            call.resends = 0;
            call.backoff.reset();
        }
        let is_foreign = !matches!(stream, StreamKey::Standalone) && stream != StreamKey::Call(key);
        if is_foreign || !is_wanted || call.is_cancelled() {
            return;
        }
        let progress = message.param("progress").and_then(|raw| serde_json::from_slice(raw).ok());
        if let Some(token) = call.host_progress.clone()
            && call.takes_progress(stream, progress)
        {
            if let Some(recorded) = &mut call.recorded {
                recorded.until_ms = self.now_ms.saturating_add(recorded_wait_ms);
            } else if stream == StreamKey::Call(key) {
                call.read_to.clone_from(&call.track.cursor);
            }
            self.out.push(Output::Deliver(message.edit().progress_of(&token).finish()));
        }
    }

    /// The answer to a call, from whatever it came on.
    pub(super) fn call_answered(&mut self, key: CallKey, message: &Message) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        call.heard_ms = self.now_ms;
        call.may_have_run = true;
        if call.is_cancelled() {
            return self.settle(key);
        }
        match self.refusal(key, message) {
            // What was there before it is gone.
            Some(_) if self.tell_record(key) => {}
            Some(refusal) => self.refused(key, message, &refusal),
            None if self.keep_record(key, message) => {}
            None => self.finish(key, message),
        }
    }
}

/// Whether what cannot be read has what stands in an answer.
pub(super) fn may_be_answer(data: &[u8]) -> bool {
    [&b"\"result\""[..], b"\"error\""]
        .iter()
        .any(|name| data.windows(name.len()).any(|part| part == *name))
}
