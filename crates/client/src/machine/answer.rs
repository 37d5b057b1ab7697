//! What becomes of an exchange: its head, its body, its end.
use rejoin_core::message::{self, Incoming};

use super::call::{CallKey, State};
use super::resume::unreadable;
use super::status::{Body, is_busy};
use super::{Answer, Because, ExchangeId, Head, Machine, Media, Notice, Purpose, StreamKey};

/// Why an event cannot be read.
const OVERSIZED: &str = "a part of it is larger than message_bytes_max";
const NO_ROOM: &str = "a part of it found no room beside those of other answers, which all \
                       together may have half_read_bytes_max";

impl Machine {
    pub(super) fn answered(&mut self, id: ExchangeId, answer: Answer) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        let purpose = exchange.purpose;
        let is_current = exchange.generation == self.session.generation;
        match answer {
            Answer::Head(head) => {
                exchange.head = Some(head.clone());
                let acks = std::mem::take(&mut exchange.acks);
                for (stream, confirmed) in acks {
                    if self.acks.get(&stream) == Some(&confirmed) {
                        self.acks.remove(&stream);
                    }
                }
                self.session.worked |= is_current && is_success(head.status) && purpose.is_asking();
                self.head(id, purpose, &head);
            }
            Answer::Event(event) => self.event(id, purpose, &event),
            Answer::Oversized => self.unread(purpose, OVERSIZED),
            Answer::NoRoom => self.unread(purpose, NO_ROOM),
            Answer::Body(bytes) => {
                let status = exchange.head.as_ref().map_or(0, |head| head.status);
                let retry_ms = exchange.head.as_ref().and_then(|head| head.retry_after_ms);
                self.exchanges.remove(&id);
                let mut unread = String::new();
                let messages = match message::parse(bytes.clone(), self.limits().json_depth_max) {
                    Ok(Incoming::One(message)) => vec![message],
                    Ok(Incoming::Batch(messages)) => messages,
                    Err(error) => {
                        unread = unreadable(&error);
                        Vec::new()
                    }
                };
                let body = Body { status, retry_ms, is_current, bytes, messages, unread };
                self.body(purpose, &body);
            }
            Answer::Unsent(what) => {
                self.exchanges.remove(&id);
                self.unsent(purpose, what);
            }
            Answer::NoCredential(what) => {
                self.exchanges.remove(&id);
                if let Purpose::Call(key) = purpose {
                    self.uncredited(key, &what);
                } else {
                    self.unsent(purpose, what);
                }
            }
            Answer::Ended | Answer::Broken(_) => {
                let had_head = exchange.head.is_some();
                self.exchanges.remove(&id);
                if purpose == Purpose::Standalone && matches!(answer, Answer::Ended) {
                    return self.standalone_ended();
                }
                let what = match answer {
                    Answer::Broken(what) => what,
                    _ => "the stream ended".to_owned(),
                };
                self.ended(purpose, had_head, &what);
            }
        }
    }

    /// An event was too large, or found no room: it is lost, and would come again if nothing comes
    /// behind it.
    fn unread(&mut self, purpose: Purpose, what: &'static str) {
        self.dropped(format!("an event: {what}"));
        if let Purpose::Call(key) | Purpose::Resume(key) = purpose
            && let Some(call) = self.calls.get_mut(&key)
        {
            call.unread_behind = Some((call.track.cursor.clone(), what));
        }
    }

    fn head(&mut self, id: ExchangeId, purpose: Purpose, head: &Head) {
        match purpose {
            Purpose::Call(key) => self.call_head(id, key, head),
            Purpose::Resume(key) => self.resume_head(id, key, head),
            Purpose::Note(number) => self.note_head(id, number, head),
            Purpose::Standalone => self.standalone_head(id, head),
            Purpose::Reopen => self.reopen_head(id, head),
            Purpose::Reopened => self.reopened_head(id, head),
            Purpose::Knock(key) => self.knock_head(id, key, head),
            Purpose::Goodbye => self.goodbye_done(id),
            Purpose::Leftover => {}
        }
    }

    fn call_head(&mut self, id: ExchangeId, key: CallKey, head: &Head) {
        let is_session_gone = self.means_gone(id, head);
        let Some(call) = self.calls.get_mut(&key) else { return self.linger(id) };
        call.heard_ms = self.now_ms;
        call.unreachable_ms = None;
        call.uncredited = 0;
        if call.is_initialize() && is_success(head.status) {
            self.session.offered = head.session.clone();
        }
        if is_session_gone {
            // The server does not know the session: it has not run the call either.
            self.not_arrived(key);
            self.close(id);
            return self.lose_session();
        }
        match head.media {
            Media::Stream if is_success(head.status) => {
                call.may_have_run = true;
                call.state = State::Reading(id);
                call.track.connected(self.now_ms, false);
                self.cancel_again(key);
            }
            _ => {
                call.state = State::Whole(id, head.status);
                call.cancel = None;
            }
        }
    }

    /// Whether an answer says that the session is gone (spec SES-7).
    pub(super) fn means_gone(&self, id: ExchangeId, head: &Head) -> bool {
        let in_session = match self.exchanges.get(&id).map(|exchange| exchange.purpose) {
            Some(Purpose::Call(key)) => self
                .calls
                .get(&key)
                .is_some_and(|call| call.era == super::call::Era::Session && !call.is_initialize()),
            _ => true,
        };
        head.status == 404 && self.is_current(id) && in_session && self.session.id.is_some()
    }

    /// Whether an exchange belongs to the session that there is now.
    pub(super) fn is_current(&self, id: ExchangeId) -> bool {
        let exchange = self.exchanges.get(&id);
        exchange.is_some_and(|exchange| exchange.generation == self.session.generation)
    }

    fn note_head(&mut self, id: ExchangeId, number: u64, head: &Head) {
        let is_gone = self.means_gone(id, head);
        self.linger(id);
        if self.is_worth_repeating(number, head.status) {
            let what = format!("the server answered with status {}", head.status);
            return self.note_unsent(number, what);
        }
        let Some(note) = self.drop_note(number) else { return };
        if is_gone {
            return self.lose_session();
        }
        if !is_success(head.status) {
            return self.dropped(format!(
                "a notification or answer of the host: the server refused it with status {}",
                head.status
            ));
        }
        if note.is_initialized {
            self.open_standalone();
        }
    }

    /// Whether a note that was answered with this status may be taken a little later. What follows
    /// waits for it, and a server that fails on it (500) may fail on it for ever.
    fn is_worth_repeating(&mut self, number: u64, status: u16) -> bool {
        let (now_ms, max_ms) = (self.now_ms, self.limits().note_failing_max_ms);
        let Some(note) = self.notes.get_mut(&number).filter(|note| note.repeatable) else {
            return false;
        };
        let failing_ms = (status == 500).then(|| *note.failing_ms.get_or_insert(now_ms));
        let is_failing = failing_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) >= max_ms);
        is_busy(status) && !is_failing
    }

    fn body(&mut self, purpose: Purpose, body: &Body) {
        match purpose {
            Purpose::Call(key) => self.call_body(key, body),
            Purpose::Resume(key) => {
                for message in &body.messages {
                    self.take_message(StreamKey::Call(key), message);
                }
                self.resume_whole(key, body.status, body.retry_ms);
            }
            Purpose::Reopen => self.reopen_body(body.status, &body.messages),
            Purpose::Standalone => self.standalone_refused(body.status),
            Purpose::Knock(key) => self.knock_body(key, body),
            _ => {}
        }
    }

    /// A request that was not written.
    fn unsent(&mut self, purpose: Purpose, what: String) {
        match purpose {
            Purpose::Call(key) => self.call_unsent(key, what),
            Purpose::Note(number) => self.note_unsent(number, what),
            Purpose::Resume(key) => self.lost(key, false, &what),
            Purpose::Standalone => self.standalone_lost(false),
            Purpose::Knock(None) => self.knock_failed(),
            Purpose::Reopen | Purpose::Reopened => self.reopen_failed(&what),
            Purpose::Knock(Some(key)) => self.lost(key, false, &what),
            Purpose::Goodbye => self.done(),
            Purpose::Leftover => {}
        }
    }

    fn call_unsent(&mut self, key: CallKey, what: String) {
        self.not_arrived(key);
        let random = self.random.number();
        let (now_ms, max_ms) = (self.now_ms, self.limits().unreachable_max_ms);
        let Some(call) = self.calls.get_mut(&key) else { return };
        if call.is_cancelled() {
            return self.forget(key);
        }
        let since_ms = *call.unreachable_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since_ms) >= max_ms {
            return self.fail(key, &what);
        }
        let again_ms = call.backoff.next_ms(random);
        self.unreachable(what, again_ms);
        self.requeue(key, now_ms.saturating_add(again_ms));
    }

    /// There was no credential to send a call with. A source that fails again is a person's to
    /// mend, who is told at once.
    fn uncredited(&mut self, key: CallKey, what: &str) {
        let failures_max = self.limits().credential_failures_max;
        let Some(call) = self.calls.get_mut(&key) else { return };
        call.uncredited += 1;
        if call.uncredited < failures_max {
            return self.call_unsent(key, what.to_owned());
        }
        self.not_arrived(key);
        self.fail(key, what);
    }

    fn note_unsent(&mut self, number: u64, what: String) {
        let random = self.random.number();
        let (now_ms, max_ms) = (self.now_ms, self.limits().unreachable_max_ms);
        let Some(note) = self.notes.get_mut(&number) else { return };
        note.exchange = None;
        let since_ms = *note.unreachable_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since_ms) >= max_ms {
            self.drop_note(number);
            return self.dropped(format!("a notification or answer of the host: {what}"));
        }
        let again_ms = note.backoff.next_ms(random);
        note.not_before_ms = now_ms.saturating_add(again_ms);
        self.queue.push_front(super::Queued::Note(number));
        self.unreachable(what, again_ms);
    }

    /// Tells that nothing could be sent to the server.
    pub(super) fn unreachable(&mut self, what: String, again_ms: u64) {
        let server = self.settings.server.clone();
        self.notice(Notice::Unreachable { server, what, again_ms });
    }

    /// A connection that ended, after its answer or without.
    fn ended(&mut self, purpose: Purpose, had_head: bool, what: &str) {
        match purpose {
            Purpose::Call(key) => {
                let is_stream = self
                    .calls
                    .get(&key)
                    .is_some_and(|call| matches!(call.state, State::Reading(_)));
                if is_stream {
                    return self.lost(key, true, what);
                }
                if let Some(call) = self.calls.get_mut(&key) {
                    call.may_have_run = true;
                }
                self.send_again_or_end(key, what);
            }
            Purpose::Resume(key) => self.lost(key, had_head, what),
            Purpose::Note(number) => self.note_broken(number, what),
            Purpose::Standalone => self.standalone_lost(had_head),
            Purpose::Knock(None) => self.knock_failed(),
            Purpose::Reopen | Purpose::Reopened => self.reopen_failed(what),
            Purpose::Knock(Some(key)) => self.lost(key, false, what),
            Purpose::Goodbye => self.done(),
            Purpose::Leftover => {}
        }
    }

    pub(super) fn note_silent(&mut self, number: u64) {
        self.note_broken(number, "the server did not answer");
    }

    fn note_broken(&mut self, number: u64, what: &str) {
        if self.notes.get(&number).is_some_and(|note| note.repeatable) {
            return self.note_unsent(number, what.to_owned());
        }
        self.drop_note(number);
        self.dropped(format!("a notification of the host may not have arrived: {what}"));
    }

    /// The last POST of a call did not arrive, or was not run: it counts as never made.
    pub(super) fn not_arrived(&mut self, key: CallKey) {
        if let Some(call) = self.calls.get_mut(&key) {
            call.attempts = call.attempts.saturating_sub(1);
        }
    }

    /// Sends a call again, as that is safe for this reason.
    pub(super) fn send_again(&mut self, key: CallKey, because: Because, at_ms: u64) {
        let call = self.name(key);
        self.notice(Notice::SentAgain { call, because });
        self.requeue(key, at_ms);
    }
}

pub(super) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}
