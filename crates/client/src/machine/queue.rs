//! What waits to leave, and what may leave now: nothing overtakes an older answer, and the
//! session's own steps come first.
use std::collections::HashSet;

use bytes::Bytes;
use http::HeaderValue;
use rejoin_core::backoff::Backoff;
use rejoin_core::message::IdKey;

use super::call::{Call, CallKey, State};
use super::wire::ExchangeId;
use super::{Machine, Notice, Purpose};
use crate::limits::ClientLimits;

/// Something in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    Call(CallKey),
    Note(u64),
}

/// A notification or response of the host, until the server has taken it.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) body: Bytes,
    /// Of the session that it belongs to.
    pub(super) generation: u64,
    /// It is `notifications/initialized`.
    pub(super) is_initialized: bool,
    /// What follows it waits until the server has it.
    pub(super) is_before_others: bool,
    /// It answers a request of the server.
    pub(super) is_answer: bool,
    /// The token of the request whose progress it tells.
    pub(super) progress: Option<IdKey>,
    /// It may arrive twice.
    pub(super) repeatable: bool,
    /// Its revision, if that has no sessions.
    pub(super) revision: Option<String>,
    pub(super) exchange: Option<ExchangeId>,
    pub(super) backoff: Backoff,
    pub(super) not_before_ms: u64,
    pub(super) unreachable_ms: Option<u64>,
    /// Since when the server fails on it.
    pub(super) failing_ms: Option<u64>,
}

impl Note {
    pub(super) fn new(body: Bytes, generation: u64, limits: &ClientLimits) -> Self {
        Self {
            body,
            generation,
            is_initialized: false,
            is_before_others: false,
            is_answer: false,
            progress: None,
            repeatable: false,
            revision: None,
            exchange: None,
            backoff: Backoff::new(limits.backoff_ms, limits.backoff_max_ms),
            not_before_ms: 0,
            unreachable_ms: None,
            failing_ms: None,
        }
    }

    /// What ends a call waits for nothing else: the last place is kept for it.
    fn is_cancel(&self) -> bool {
        self.repeatable && !self.is_answer && self.progress.is_none() && !self.is_initialized
    }
}

impl Machine {
    /// Whether a call's stream must be delivered further before a new call may leave.
    fn holds(&self) -> bool {
        let holds =
            |call: &Call| call.holds_others() && call.holds_until_ms(self.limits()) > self.now_ms;
        self.standalone.track.replay.is_some() || self.calls.values().any(holds)
    }

    /// Sends everything that may leave, in order.
    pub(super) fn send_what_may_leave(&mut self) {
        if self.queue.is_empty() || !self.may_send() {
            return;
        }
        let holds = self.holds();
        let mut blocked =
            self.notes.values().any(|note| note.exchange.is_some() && note.is_before_others)
                || self.is_opening();
        let mut posts = self.posts_open(|purpose| matches!(purpose, Purpose::Call(_)));
        let mut notes =
            self.posts_open(|purpose| matches!(purpose, Purpose::Note(_) | Purpose::Leftover));
        let notes_max = self.limits().note_posts_open_max;
        let mut told = self.progress_in_flight();
        let mut held = 0;
        for entry in std::mem::take(&mut self.queue) {
            let has_room = posts < self.limits().posts_open_max;
            let leaves = match entry {
                Queued::Note(number) => {
                    let Some(note) = self.notes.get(&number) else { continue };
                    // Progress of one request is told in its order.
                    let is_next =
                        note.progress.as_ref().is_none_or(|token| told.insert(token.clone()));
                    // An answer may be what a call in flight waits for.
                    let leaves = is_next
                        && notes + usize::from(!note.is_cancel()) < notes_max
                        && (note.is_answer || !blocked)
                        && note.not_before_ms <= self.now_ms;
                    blocked |= note.is_before_others;
                    leaves
                }
                Queued::Call(key) => {
                    let call = self.calls.get(&key).filter(|call| call.state == State::Queued);
                    let Some(call) = call else { continue };
                    let waits = holds && !call.is_ungated();
                    held += usize::from(waits);
                    let first = call.is_initialize();
                    let leaves = has_room
                        && !waits
                        && (!blocked || first)
                        && call.not_before_ms <= self.now_ms;
                    blocked |= first;
                    leaves
                }
            };
            if !leaves {
                self.queue.push_back(entry);
                continue;
            }
            match entry {
                Queued::Note(number) => {
                    notes += 1;
                    self.post_note(number);
                }
                Queued::Call(key) => {
                    posts += 1;
                    self.post_call(key);
                }
            }
        }
        if held > self.held {
            self.notice(Notice::Held { calls: held });
        }
        self.held = held;
    }

    fn posts_open(&self, is_counted: impl Fn(Purpose) -> bool) -> usize {
        self.exchanges.values().filter(|exchange| is_counted(exchange.purpose)).count()
    }

    /// Requests of whose progress something is on its way.
    fn progress_in_flight(&self) -> HashSet<IdKey> {
        let in_flight = self.notes.values().filter(|note| note.exchange.is_some());
        in_flight.filter_map(|note| note.progress.clone()).collect()
    }

    /// Whether `initialize` is on its way.
    fn is_opening(&self) -> bool {
        self.calls.values().any(|call| call.is_initialize() && call.state != State::Queued)
    }

    fn post_call(&mut self, key: CallKey) {
        let Some((request, acks)) = self.compose_call(key) else { return };
        let mut values = request.headers.iter().map(|(_, value)| HeaderValue::from_str(value));
        if values.any(|value| value.is_err()) {
            // It would fit none later either.
            self.not_arrived(key);
            return self.fail(key, "something in it, such as its method, fits no HTTP header");
        }
        let exchange = self.open(Purpose::Call(key), request, acks);
        if let Some(call) = self.calls.get_mut(&key) {
            call.state = State::Posted(exchange);
            call.heard_ms = self.now_ms;
            // What was said of an attempt before says nothing of this one.
            call.refusal = None;
        }
    }

    fn post_note(&mut self, number: u64) {
        let Some((request, acks)) = self.compose_note(number) else { return };
        let exchange = self.open(Purpose::Note(number), request, acks);
        if let Some(note) = self.notes.get_mut(&number) {
            note.exchange = Some(exchange);
        }
    }

    /// Puts a call back, before what came after it.
    pub(super) fn requeue(&mut self, key: CallKey, not_before_ms: u64) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        call.not_before_ms = not_before_ms;
        if std::mem::replace(&mut call.state, State::Queued) != State::Queued {
            self.queue.push_front(Queued::Call(key));
        }
    }

    /// Ends a note: the server has it, or never will.
    pub(super) fn drop_note(&mut self, number: u64) -> Option<Note> {
        let note = self.notes.remove(&number)?;
        self.pending_bytes = self.pending_bytes.saturating_sub(note.body.len());
        Some(note)
    }
}
