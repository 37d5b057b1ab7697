//! POSTs that wait: held in the queue, for a twin's sign of life, for a reset, for a record, or for
//! their own connection (design section 5, "Holding").

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Session;
use super::post::request_id;
use super::timer::Timer;
use crate::effect::{Attach, Command, Effect, EventKind, Note, Output};
use crate::id::{CallId, ConnectionId, Digest32, Seq, StreamId};
use crate::input::Request;
use crate::limits::Limits;
use crate::policy::Decision;
use crate::rejection::{Reason, Rejection};
use crate::stream::{Connection, Release, StreamState};
use crate::tool::Class;

/// A POST between its arrival and its verdict.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) connection: Connection,
    pub(super) requests: Vec<Request>,
    pub(super) batch: bool,
    pub(super) body: Digest32,
    pub(super) arrived_ms: u64,
    pub(super) wait: Wait,
    /// Since when it waits for another call, a replay or its own connection, which then must prove
    /// that it lives before the call is claimed. A join or the reading of a record is no such wait.
    pub(super) held_since_ms: Option<u64>,
    /// When its own connection must have proved that it lives.
    pub(super) proof_until_ms: Option<u64>,
    pub(super) headers: Headers,
    /// The stream whose headers are out.
    pub(super) stream: Option<StreamId>,
    /// Originals whose connections were asked for a sign of life, until when, and which gave it.
    pub(super) asked: BTreeMap<CallId, ConnectionId>,
    pub(super) asked_until_ms: Option<u64>,
    pub(super) alive: BTreeSet<CallId>,
    /// Other waiting POSTs whose own connections have proved since it came that they live.
    pub(super) proven: BTreeSet<ConnectionId>,
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
        self.held_since_ms.is_some_and(|since_ms| now_ms >= since_ms + limits.hold_max_ms)
    }

    /// True if it must not be claimed before its own connection has proved that it lives.
    pub(super) fn needs_proof(&self) -> bool {
        let waited = self.held_since_ms.is_some() || self.stream.is_some();
        waited && self.headers != Headers::Acknowledged
    }

    /// True if one JSON body may answer it: a single request without stream so far.
    pub(super) fn is_plain(&self) -> bool {
        self.stream.is_none() && !self.batch
    }

    /// Bytes of the recorded answer that was read for one of its requests.
    pub(super) fn loaded_bytes(&self, index: usize) -> u64 {
        let loaded = self.loaded.iter().filter(|(at, _, _)| *at == index);
        loaded.filter_map(|(_, _, payload)| payload.as_ref()).map(|p| p.len() as u64).sum()
    }

    /// Its place in the queue: first come, first served.
    fn turn(&self) -> (u64, u64, ConnectionId) {
        (self.held_since_ms.unwrap_or(self.arrived_ms), self.arrived_ms, self.connection.id)
    }
}

impl Session {
    /// Lets a POST wait, and arms what ends the wait.
    pub(super) fn wait(&mut self, mut waiter: Waiter, wait: Wait, now_ms: u64) {
        let settings = Arc::clone(&self.start.settings);
        let limits = &settings.limits;
        let id = waiter.connection.id;
        let is_new = std::mem::replace(&mut waiter.wait, wait) != wait;
        if !matches!(wait, Wait::Nothing | Wait::Join | Wait::Record) {
            waiter.held_since_ms.get_or_insert(now_ms);
        }
        let hold_until_ms = waiter.held_since_ms.map(|since_ms| since_ms + limits.hold_max_ms);
        if wait == Wait::Proof && is_new {
            let answer_ms = now_ms + limits.liveness_answer_ms;
            waiter.proof_until_ms = hold_until_ms.max(Some(answer_ms));
        }
        let deadlines = [
            Some(waiter.arrived_ms + limits.held_headers_ms),
            hold_until_ms,
            waiter.proof_until_ms,
            waiter.asked_until_ms,
        ];
        let repeats = waiter.requests.iter().filter(|_| wait == Wait::Reset);
        let resets = repeats.map(|request| self.repeat_wait_ends_ms(waiter.arrived_ms, request));
        let due: Vec<_> = deadlines.into_iter().flatten().chain(resets).collect();
        let due = due.into_iter().filter(|&at_ms| at_ms > now_ms);
        self.timers.extend(due.map(|at_ms| (at_ms, Timer::Waiter(id))));
        let turn = waiter.turn();
        self.waiting.insert(id, waiter);
        self.queue.retain(|&queued| queued != id);
        if wait == Wait::Turn {
            self.enqueue(id, turn);
        }
    }

    /// Puts a POST into the queue, before those that came after it.
    fn enqueue(&mut self, id: ConnectionId, turn: (u64, u64, ConnectionId)) {
        let later = |other: &ConnectionId| self.waiting.get(other).is_some_and(|w| w.turn() > turn);
        let at = self.queue.iter().position(later).unwrap_or(self.queue.len());
        self.queue.insert(at, id);
    }

    /// The head of a waiting POST's answer was acknowledged: its own connection lives.
    pub(super) fn prove(&mut self, connection: ConnectionId) {
        let sent = |waiter: &&mut Waiter| waiter.headers == Headers::Sent;
        let Some(waiter) = self.waiting.get_mut(&connection).filter(sent) else { return };
        waiter.headers = Headers::Acknowledged;
        for (_, other) in self.waiting.iter_mut().filter(|(id, _)| **id != connection) {
            other.proven.insert(connection);
        }
        let Some(waiter) = self.waiting.get_mut(&connection) else { return };
        if waiter.wait == Wait::Proof {
            // Back to its turn: it is decided afresh, and claimed if nothing changed.
            waiter.wait = Wait::Turn;
            let turn = waiter.turn();
            self.enqueue(connection, turn);
            self.review_due = true;
        }
    }

    /// Takes a POST out of the waiting ones.
    pub(super) fn take_waiter(&mut self, connection: ConnectionId) -> Option<Waiter> {
        let waiter = self.waiting.remove(&connection)?;
        self.queue.retain(|&queued| queued != connection);
        Some(waiter)
    }

    /// True if an equal POST that came before has proved that its connection lives, and still
    /// waits: first come, first served. Its connection may have died since: behind the newer one it
    /// would run as that one's twin.
    pub(super) fn is_behind_twin(&self, waiter: &Waiter) -> bool {
        let settings = &self.start.settings;
        let params = |request: &Request| {
            let effectful = self.tools.classify(&request.message, settings) == Class::Effectful;
            (request.token.is_none() && effectful).then(|| request.message.canonical_params_hash())
        };
        let own: Vec<_> = waiter.requests.iter().filter_map(params).collect();
        let mut older = self.waiting.range(..waiter.connection.id).map(|(_, other)| other);
        older.any(|other| {
            let waits = matches!(other.wait, Wait::Turn | Wait::Twin | Wait::Reset);
            let is_proven = waits && other.headers == Headers::Acknowledged;
            is_proven
                && other.requests.iter().filter_map(params).any(|theirs| own.contains(&theirs))
        })
    }

    /// Decides waiting POSTs again: twins, resets, joins and proofs each on their own, then the
    /// queue in order, until one must wait. At most one acts in one output, so that a claim is
    /// alone in its own and can be undone without losing what was said to others.
    pub(super) fn review(&mut self, now_ms: u64, out: &mut Output) {
        self.review_due = false;
        // A call that was claimed while one's own connection is proved is asked beside it.
        let apart = |waiter: &Waiter| {
            matches!(waiter.wait, Wait::Twin | Wait::Reset | Wait::Join | Wait::Proof)
        };
        let alone: Vec<_> =
            self.waiting.values().filter(|w| apart(w)).map(|w| w.connection.id).collect();
        for connection in alone.into_iter().chain(self.queue.clone()) {
            if !out.effects.is_empty() || !out.batch.is_empty() {
                self.review_due = true;
                return;
            }
            let Some(waiter) = self.take_waiter(connection) else { continue };
            let queued = waiter.wait == Wait::Turn;
            let arrived_ms = waiter.arrived_ms;
            self.judge(waiter, now_ms, out);
            let still = self.waiting.get(&connection).map(|waiter| waiter.wait);
            if still.is_none() {
                let waited_ms = now_ms.saturating_sub(arrived_ms);
                out.effects.push(wait_ended(connection, waited_ms));
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
        let id = self.open_answer(waiter, StreamState::Held, now_ms, out);
        if let Some(stream) = self.streams.get_mut(&id) {
            // A process that finds no more of it than this can still tell that nothing ran.
            stream.request_ids = waiter.requests.iter().map(request_id).collect();
        }
        waiter.stream = Some(id);
        waiter.headers = Headers::Sent;
    }

    /// Opens the stream that answers a POST on its own connection, from the stream's origin.
    pub(super) fn open_answer(
        &mut self,
        waiter: &Waiter,
        state: StreamState,
        now_ms: u64,
        out: &mut Output,
    ) -> StreamId {
        let stream = self.open_stream(state, now_ms);
        self.attach(stream, waiter.connection, Seq::ORIGIN, now_ms);
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
            held: state == StreamState::Held,
        }));
        stream
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
            for (call, connection) in std::mem::take(&mut waiter.asked) {
                if !waiter.alive.contains(&call) {
                    self.drop_silent_twin(call, connection, now_ms, out);
                }
            }
        }
        let over = waiter.proof_until_ms.is_some_and(|until_ms| now_ms >= until_ms);
        let unproven = waiter.wait == Wait::Proof && over;
        self.waiting.insert(id, waiter);
        if unproven {
            self.withdraw(id, now_ms, out);
        }
        self.review_due = true;
    }

    /// Row 14: an original whose connection gave no sign of life is dropped, unless another
    /// connection has taken its stream meanwhile.
    fn drop_silent_twin(
        &mut self,
        call: CallId,
        asked: ConnectionId,
        now_ms: u64,
        out: &mut Output,
    ) {
        let Some(stream) = self.ledger.get(call).and_then(|call| call.stream) else { return };
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let Some(connection) = state.connection.filter(|c| c.id == asked) else { return };
        // What left is told only once its connection ends: all may have, so a re-send is none.
        state.cursors.send(state.cursors.produced);
        let sent = state.cursors.sent;
        out.effects.push(Effect::Command(connection.id, Command::Finish { retry_ms: None }));
        self.lose_connection(stream, sent, false, now_ms, out);
    }

    /// The POST's connection is gone, or its id was cancelled, while it waited: nothing is claimed.
    pub(super) fn withdraw(&mut self, id: ConnectionId, now_ms: u64, out: &mut Output) {
        let Some(waiter) = self.take_waiter(id) else { return };
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
        // Without an original no time is looked at.
        requests.map(|(index, request)| self.reject(request, reason(index), None, 0)).collect()
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
        out.effects.push(decided(connection, decision, call, None));
    }

    /// Logs a refusal, with the tool: who reads it knows the call by nothing else.
    pub(super) fn note_refusal(
        &self,
        connection: ConnectionId,
        decision: &Decision,
        request: &Request,
        out: &mut Output,
    ) {
        let tool = request.message.tool_name().map(Into::into);
        out.effects.push(decided(connection, decision, None, tool));
    }
}

fn decided(
    connection: ConnectionId,
    decision: &Decision,
    call: Option<CallId>,
    tool: Option<Box<str>>,
) -> Effect {
    let (verdict, reason) = super::post::verdict_name(&decision.verdict);
    let (row, original) = (decision.row, decision.original);
    Effect::Note(Note::Decided { connection, row, verdict, reason, original, call, tool })
}

fn wait_ended(connection: ConnectionId, waited_ms: u64) -> Effect {
    Effect::Note(Note::WaitEnded { connection, waited_ms })
}
