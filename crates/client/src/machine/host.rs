//! Messages of the host: calls, notifications, and its answers to the server's requests.
use bytes::Bytes;
use rejoin_core::message::{self, Incoming, Kind, Message};

use super::call::{Call, CallKey, Era, State};
use super::queue::{Note, Queued};
use super::{Machine, Notice, Output};

impl Machine {
    pub(super) fn host_said(&mut self, bytes: Bytes) {
        if bytes.len() > self.limits().message_bytes_max {
            return self.dropped("a message of the host larger than message_bytes_max");
        }
        match message::parse(bytes, self.limits().json_depth_max) {
            Ok(Incoming::One(message)) => self.host_message(message),
            Ok(Incoming::Batch(messages)) => {
                for message in messages {
                    self.host_message(message);
                }
            }
            Err(error) => self.out.push(Output::Deliver(super::status::unreadable(&error))),
        }
    }

    fn host_message(&mut self, message: Message) {
        match message.kind() {
            Kind::Request => self.host_call(message),
            Kind::Notification => self.host_notification(message),
            Kind::Response | Kind::ErrorResponse => self.host_answer(&message),
        }
    }

    fn host_call(&mut self, message: Message) {
        let (Some(id), Some(host_key)) = (message.id(), message.id_key()) else { return };
        let limits = &self.settings.limits;
        let bytes = message.bytes().len();
        let call = Call::new(message.clone(), id, host_key.clone(), self.now_ms, limits);
        if self.hosts.contains_key(&host_key) {
            // Under the id it would be taken for the end of the call that runs.
            let what = "a call with this id is still running; give each its own";
            return self.refuse_as(b"null", &call, what);
        }
        if self.calls.len() >= limits.calls_max
            || self.pending_bytes.saturating_add(bytes) > limits.pending_bytes_max
        {
            return self.refuse(&call, "too many calls wait for their answers; let some end first");
        }
        if self.end_ms.is_some() {
            return self.refuse(&call, "the client is ending");
        }
        if call.is_initialize() && call.era == Era::Session {
            self.begin_session(&message);
        }
        let key = self.number();
        self.pending_bytes += bytes;
        self.hosts.insert(host_key, key);
        self.calls.insert(key, call);
        self.queue.push_back(Queued::Call(key));
    }

    fn host_notification(&mut self, message: Message) {
        match message.method().unwrap_or_default() {
            "notifications/cancelled" => return self.host_cancelled(&message),
            "notifications/initialized" => self.session.initialized = Some(message.bytes().clone()),
            _ => {}
        }
        let revision = match Era::of(&message) {
            Era::Alone(revision) => Some(revision),
            Era::Session => None,
        };
        let method = message.method().unwrap_or_default();
        // What the server must know before it sees what follows.
        let is_before_others = method != "notifications/progress";
        let repeatable =
            matches!(method, "notifications/initialized" | "notifications/roots/list_changed");
        let mut note = Note::new(message.bytes().clone(), self.session.generation, self.limits());
        note.is_initialized = method == "notifications/initialized";
        note.is_before_others = is_before_others;
        note.progress = message.progress_of().filter(|_| !is_before_others);
        note.repeatable = repeatable;
        note.revision = revision;
        self.add_note(note);
    }

    /// The host gave a call up: nothing of it is delivered any more (spec 1.4).
    fn host_cancelled(&mut self, message: &Message) {
        let key = message.cancels().and_then(|id| self.hosts.get(&id).copied());
        let Some(key) = key else { return };
        let Some(call) = self.calls.get_mut(&key) else { return };
        if call.is_initialize() {
            return;
        }
        call.cancelled_ms = Some(self.now_ms);
        self.hosts.remove(&call.host_key);
        let wires = call.wires.clone();
        let exchange = call.state.exchange();
        if call.era != Era::Session || wires.is_empty() || !call.may_have_arrived() {
            // Nothing knows of it; or the end of the connection is the cancel (spec 3.1).
            if let Some(exchange) = exchange {
                self.close(exchange);
            }
            return self.forget(key);
        }
        match call.state {
            // It may overtake the call, and would be in vain: it is told once more.
            State::Posted(_) => call.cancel = Some(message.clone()),
            State::Reading(_) | State::Whole(..) => {}
            _ => self.forget(key),
        }
        self.tell_cancelled(&wires, message);
    }

    fn tell_cancelled(&mut self, wires: &[u64], message: &Message) {
        for wire in wires {
            let body = message.edit().cancelled_id(wire.to_string().as_bytes()).finish();
            let mut note = Note::new(body, self.session.generation, self.limits());
            note.repeatable = true;
            self.add_note(note);
        }
    }

    /// The server has a call that was cancelled, or has had the time to get it.
    pub(super) fn cancel_again(&mut self, key: CallKey) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        if let Some(message) = call.cancel.take() {
            let wires = call.wires.clone();
            self.tell_cancelled(&wires, &message);
        }
    }

    /// The host's answer to a request of the server goes under the server's own id.
    fn host_answer(&mut self, message: &Message) {
        let number = message.id_key().and_then(|key| key.as_u64());
        let Some(id) = number.and_then(|number| self.asked.remove(&number)) else {
            return self.dropped(
                "an answer of the host to no request of the server, or to one of a session that \
                 was lost",
            );
        };
        let body = message.edit().id(&id).finish();
        let mut note = Note::new(body, self.session.generation, self.limits());
        note.is_answer = true;
        // A second one is an answer to nothing.
        note.repeatable = true;
        self.add_note(note);
    }

    pub(super) fn add_note(&mut self, note: Note) {
        let limits = &self.settings.limits;
        let bytes = note.body.len();
        if self.notes.len() >= limits.notes_max
            || self.pending_bytes.saturating_add(bytes) > limits.pending_bytes_max
        {
            return self.dropped("a notification or answer of the host: the server takes none");
        }
        let number = self.number();
        self.pending_bytes += bytes;
        self.notes.insert(number, note);
        self.queue.push_back(Queued::Note(number));
    }

    /// Nothing more comes from the host. What it asked has a while to be answered.
    pub(super) fn host_gone(&mut self) {
        if self.end_ms.is_none() {
            let grace_ms = if self.pending_calls() == 0 { 0 } else { self.limits().end_grace_ms };
            self.end_ms = Some(self.now_ms.saturating_add(grace_ms));
        }
    }

    fn refuse(&mut self, call: &Call, what: &str) {
        self.refuse_as(&call.host_id, call, what);
    }

    fn refuse_as(&mut self, id: &[u8], call: &Call, what: &str) {
        let body = super::ending::not_run(id, what);
        self.out.push(Output::Deliver(body));
        let (call, what) = (call.name(), what.to_owned());
        self.notice(Notice::Failed { call, what, may_have_run: false });
    }
}
