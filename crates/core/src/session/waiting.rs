//! POSTs that wait: held in the queue, for a twin's sign of life, for a reset, for a record, or for
//! their own connection (design section 5, "Holding").

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Session;
use super::timer::Timer;
use crate::effect::{Attach, Command, Effect, EventKind, Note, Output};
use crate::id::{CallId, ConnectionId, Digest32, Seq, StreamId};
use crate::input::Request;
use crate::limits::Limits;
use crate::policy::Decision;
use crate::rejection::{Reason, Rejection};
use crate::stream::{Connection, Release, StreamState};

/// A POST between its arrival and its verdict.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) connection: Connection,
    pub(super) requests: Vec<Request>,
    pub(super) batch: bool,
    pub(super) body: Digest32,
    pub(super) arrived_ms: u64,
    pub(super) wait: Wait,
    /// True once it waited for another call or a replay: then its own connection must prove that
    /// it lives before the call is claimed.
    pub(super) has_waited: bool,
    pub(super) headers: Headers,
    /// The stream whose headers are out.
    pub(super) stream: Option<StreamId>,
    /// Originals whose connections were asked for a sign of life, until when, and which gave it.
    pub(super) asked: BTreeSet<CallId>,
    pub(super) asked_until_ms: Option<u64>,
    pub(super) alive: BTreeSet<CallId>,
    /// Recorded answers read from the log: index of the request, original, payload.
    pub(super) loaded: Vec<(usize, CallId, Option<bytes::Bytes>)>,
}

/// What a POST waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing yet: it is being decided.
    Nothing,
    /// Its turn, once nothing is owed and no replay runs (row 16).
    Turn,
    /// A sign of life from twins, or their end (row 14).
    Twin,
    /// A reset of its presumed original (row 15).
    Reset,
    /// The end of the call that it joined.
    Join,
    /// The acknowledgement of its own headers.
    Proof,
    /// A recorded answer from the log.
    Record,
}

/// How far the head of its answer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headers {
    /// Not sent.
    Unsent,
    /// Sent.
    Sent,
    /// Acknowledged by the peer's kernel.
    Acknowledged,
}

impl Waiter {
    /// True once it was held as long as it may be. A join waits as long as the call runs.
    pub(super) fn hold_is_over(&self, now_ms: u64, limits: &Limits) -> bool {
        self.has_waited && now_ms >= self.arrived_ms + limits.hold_max_ms
    }
}

impl Session {
    /// Lets a POST wait, and arms what ends the wait.
    pub(super) fn wait(&mut self, mut waiter: Waiter, wait: Wait, now_ms: u64) {
        let settings = Arc::clone(&self.start.settings);
        let limits = &settings.limits;
        let id = waiter.connection.id;
        waiter.wait = wait;
        waiter.has_waited |= matches!(wait, Wait::Turn | Wait::Twin | Wait::Reset);
        let arrived_ms = waiter.arrived_ms;
        let mut arm = |at_ms: u64| {
            if at_ms > now_ms {
                self.timers.insert((at_ms, Timer::Waiter(id)));
            }
        };
        arm(arrived_ms + limits.held_headers_ms);
        arm(arrived_ms + limits.hold_max_ms);
        if wait == Wait::Reset {
            arm(arrived_ms + limits.repeat_wait_ms);
        }
        if let Some(until_ms) = waiter.asked_until_ms {
            arm(until_ms);
        }
        if wait == Wait::Turn {
            if !self.queue.contains(&id) {
                self.queue.push_back(id);
            }
        } else {
            self.queue.retain(|&queued| queued != id);
        }
        self.waiting.insert(id, waiter);
    }

    /// Takes a POST out of the waiting ones.
    pub(super) fn take_waiter(&mut self, connection: ConnectionId) -> Option<Waiter> {
        let waiter = self.waiting.remove(&connection)?;
        if waiter.wait != Wait::Turn {
            self.queue.retain(|&queued| queued != connection);
        }
        Some(waiter)
    }

    /// Decides waiting POSTs again: twins, resets and joins each on their own, then the queue in
    /// order, until one claims or must wait. At most one claims in one output.
    pub(super) fn review(&mut self, now_ms: u64, out: &mut Output) {
        self.review_due = false;
        let apart = |waiter: &Waiter| matches!(waiter.wait, Wait::Twin | Wait::Reset | Wait::Join);
        let alone: Vec<_> =
            self.waiting.values().filter(|w| apart(w)).map(|w| w.connection.id).collect();
        for connection in alone.into_iter().chain(self.queue.clone()) {
            let Some(waiter) = self.take_waiter(connection) else { continue };
            let queued = waiter.wait == Wait::Turn;
            let next = self.ledger.next_id();
            let arrived_ms = waiter.arrived_ms;
            self.judge(waiter, now_ms, out);
            let still = self.waiting.get(&connection).map(|waiter| waiter.wait);
            if still != Some(Wait::Turn) {
                self.queue.retain(|&id| id != connection);
                let waited_ms = now_ms.saturating_sub(arrived_ms);
                out.effects.extend(queued.then(|| wait_ended(connection, waited_ms)));
            }
            if self.ledger.next_id() > next {
                self.review_due = true;
                return;
            }
            if queued && still == Some(Wait::Turn) {
                return;
            }
        }
    }

    /// Sends the head of the answer: priming for clients that understand it, `: held` comments.
    pub(super) fn open_headers(&mut self, waiter: &mut Waiter, now_ms: u64, out: &mut Output) {
        if waiter.headers != Headers::Unsent {
            return;
        }
        let stream = self.open_stream(StreamState::Held, now_ms);
        waiter.stream = Some(stream);
        waiter.headers = Headers::Sent;
        self.attach(stream, waiter.connection, now_ms);
        let prime = self.start.asked.primes().then(|| self.event_id(stream, Seq::ORIGIN));
        out.effects.push(Effect::Open(Attach {
            connection: waiter.connection.id,
            stream,
            after: Seq::ORIGIN,
            prime,
            replay_until: None,
            skip: Vec::new(),
            gap: None,
            last_word: None,
            held: true,
        }));
    }

    /// A timer of a waiting POST: headers, the end of a probe, the end of its patience.
    pub(super) fn waiter_timer(&mut self, id: ConnectionId, now_ms: u64, out: &mut Output) {
        let settings = Arc::clone(&self.start.settings);
        let limits = &settings.limits;
        let Some(mut waiter) = self.waiting.remove(&id) else { return };
        if now_ms >= waiter.arrived_ms + limits.held_headers_ms && waiter.wait != Wait::Record {
            self.open_headers(&mut waiter, now_ms, out);
        }
        if waiter.asked_until_ms.is_some_and(|until_ms| now_ms >= until_ms) {
            waiter.asked_until_ms = None;
            let silent = waiter.asked.difference(&waiter.alive).copied().collect::<Vec<_>>();
            for call in silent {
                self.drop_silent_twin(call, now_ms, out);
            }
            waiter.asked.clear();
        }
        let over = now_ms >= waiter.arrived_ms + limits.hold_max_ms;
        let unproven = waiter.wait == Wait::Proof && over;
        self.waiting.insert(id, waiter);
        if unproven {
            self.withdraw(id, now_ms, out);
        }
        self.review_due = true;
    }

    /// Row 14: an original whose connection gave no sign of life is dropped.
    fn drop_silent_twin(&mut self, call: CallId, now_ms: u64, out: &mut Output) {
        let Some(stream) = self.ledger.get(call).and_then(|call| call.stream) else { return };
        let Some(state) = self.streams.get(&stream) else { return };
        let Some(connection) = state.connection else { return };
        let sent = state.cursors.sent;
        out.effects.push(Effect::Command(connection.id, Command::Finish { retry_ms: None }));
        self.lose_connection(stream, sent, false, now_ms, out);
    }

    /// The POST's connection is gone, or its id was cancelled, while it waited: nothing is claimed.
    pub(super) fn withdraw(&mut self, id: ConnectionId, now_ms: u64, out: &mut Output) {
        let Some(waiter) = self.take_waiter(id) else { return };
        self.queue.retain(|&queued| queued != id);
        out.effects.push(wait_ended(id, now_ms.saturating_sub(waiter.arrived_ms)));
        self.review_due = true;
        let rejections = self.refusals(&waiter, |_| Reason::Withdrawn);
        self.refuse(waiter, rejections, now_ms, out);
    }

    /// One plain refusal for each request of a POST.
    pub(super) fn refusals(
        &self,
        waiter: &Waiter,
        reason: impl Fn(usize) -> Reason,
    ) -> Vec<Rejection> {
        let requests = waiter.requests.iter().enumerate();
        requests.map(|(index, request)| self.reject(request, reason(index), None)).collect()
    }

    /// Refuses a POST: as a body if no headers are out, else as the last events of its stream.
    pub(super) fn refuse(
        &mut self,
        waiter: Waiter,
        rejections: Vec<Rejection>,
        now_ms: u64,
        out: &mut Output,
    ) {
        let Some(stream) = waiter.stream else {
            let connection = waiter.connection.id;
            let batch = waiter.batch;
            out.effects.push(Effect::Refuse { connection, rejections, batch });
            return;
        };
        let count = rejections.len();
        for (index, rejection) in rejections.iter().enumerate() {
            let last = index + 1 == count;
            self.append(stream, EventKind::Response, last, rejection.body(), out);
        }
        self.move_stream(stream, StreamState::Released(Release::NotRun), now_ms, out);
    }

    /// Logs one decision.
    pub(super) fn note_decision(
        &self,
        connection: ConnectionId,
        decision: &Decision,
        call: Option<CallId>,
        out: &mut Output,
    ) {
        let (verdict, reason) = super::post::verdict_name(&decision.verdict);
        out.effects.push(Effect::Note(Note::Decided {
            connection,
            row: decision.row,
            verdict,
            reason,
            original: decision.original,
            call,
        }));
    }
}

fn wait_ended(connection: ConnectionId, waited_ms: u64) -> Effect {
    Effect::Note(Note::WaitEnded { connection, waited_ms })
}
