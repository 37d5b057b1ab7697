//! What the model check sees of a session: a canonical projection to tell states apart by, and what
//! was judged (feature `model-check`).
//!
//! Two sessions with the same projection behave alike from then on: every comparison of times in
//! this crate is of a difference with `now`, so only ages count, and an age beyond the longest
//! limit within the check's horizon is as good as any other. Left out are what is a function of the
//! rest (`owed`, running calls, bytes of the log), and what only limits beyond that horizon look at
//! (when a stream was opened, when a call was heard of, the sweep, idleness).

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::Session;
use super::timer::Timer;
use super::waiting::Waiter;
use crate::ledger::Call;
use crate::policy::{Decision, Original, RequestFacts, SessionFacts};
use crate::stream::Stream;

/// One request that was judged: the facts and the decision.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The request.
    pub request: RequestFacts,
    /// The calls that it may repeat.
    pub originals: Vec<Original>,
    /// The session around them.
    pub session: SessionFacts,
    /// What was decided.
    pub decision: Decision,
}

/// Ages as the projection sees them.
#[derive(Clone, Copy)]
struct Ages {
    now_ms: u64,
    max_ms: u64,
}

impl Ages {
    fn of(self, at_ms: u64) -> u64 {
        self.now_ms.saturating_sub(at_ms).min(self.max_ms)
    }

    fn of_any(self, at_ms: Option<u64>) -> Option<u64> {
        at_ms.map(|at_ms| self.of(at_ms))
    }

    fn until(self, at_ms: u64) -> u64 {
        at_ms.saturating_sub(self.now_ms)
    }
}

impl Session {
    /// What was judged since the last input, in order.
    pub fn judgements(&self) -> &[Judgement] {
        &self.judgements
    }

    /// Its next deadline, but for those that look for what is idle, silent or expired.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let counts = |timer: &Timer| !matches!(timer, Timer::Sweep | Timer::Idle);
        self.timers.iter().find(|(_, timer)| counts(timer)).map(|(at_ms, _)| *at_ms)
    }

    /// All its streams.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values()
    }

    /// A call, if the ledger still has it.
    pub fn call(&self, id: crate::id::CallId) -> Option<&Call> {
        self.ledger.get(id)
    }

    /// Feeds the projection to a hasher.
    pub fn hash_at(&self, now_ms: u64, state: &mut impl Hasher) {
        let ages = Ages { now_ms, max_ms: self.limits().repeat_window_ms + 1 };
        for call in self.ledger.iter() {
            self.hash_call(call, ages, state);
        }
        let forgotten: BTreeMap<_, _> = self.ledger.all_forgotten().collect();
        for (params, until_ms) in forgotten {
            (params, ages.until(until_ms)).hash(state);
        }
        for stream in self.streams.values() {
            hash_stream(stream, ages, state);
        }
        for waiter in self.waiting.values() {
            hash_waiter(waiter, ages, state);
        }
        for replay in self.replays.values() {
            (replay.stream, replay.until, replay.acknowledged, replay.settled).hash(state);
        }
        for (number, request) in &self.server_requests {
            (number, request.stream, request.seq, request.answered).hash(state);
        }
        let counts = |timer: &Timer| !matches!(timer, Timer::Sweep | Timer::Idle);
        for (at_ms, timer) in self.timers.iter().filter(|(_, timer)| counts(timer)) {
            (ages.until(*at_ms), timer).hash(state);
        }
        let carried: BTreeMap<_, _> = self.carried.iter().collect();
        let replies: BTreeMap<_, _> = self.replies.iter().collect();
        (carried, replies, &self.queue, self.replays.keys().collect::<Vec<_>>()).hash(state);
        (self.last_seq, self.last_stream, self.ledger.last_id(), self.lost_through).hash(state);
        (self.review_due, self.presented_cursor, self.never_resumes, self.ended).hash(state);
        (self.upstream.down, self.upstream.lost_untold).hash(state);
    }

    fn hash_call(&self, call: &Call, ages: Ages, state: &mut impl Hasher) {
        let is_found = self.ledger.with_params(&call.params).contains(&call.id);
        let owns = call.key().is_some_and(|key| self.ledger.with_key(&key) == Some(call.id));
        (call.id, &call.request_id, call.params, call.body, call.token).hash(state);
        (call.phase, call.stream, call.ran_on, call.result, call.settled_by, is_found, owns)
            .hash(state);
        (ages.of(call.claimed_ms), ages.of_any(call.ended_ms), ages.of_any(call.lost_ms))
            .hash(state);
    }
}

fn hash_stream(stream: &Stream, ages: Ages, state: &mut impl Hasher) {
    let cursors = stream.cursors;
    let connection = stream.connection.map(|connection| (connection.id, connection.observed));
    (stream.id, &stream.calls, &stream.request_ids, stream.owes, stream.state).hash(state);
    (cursors.produced, cursors.sent, cursors.acked, stream.taken, connection).hash(state);
    (stream.scarred, stream.last, stream.reset_may_come, stream.emptied).hash(state);
    (ages.of_any(stream.ended_ms), ages.of_any(stream.settled_ms)).hash(state);
    (ages.of_any(stream.detached_since_ms), stream.detached_before_ms.min(ages.max_ms)).hash(state);
    stream.deadline_ms.map(|at_ms| ages.until(at_ms)).hash(state);
}

fn hash_waiter(waiter: &Waiter, ages: Ages, state: &mut impl Hasher) {
    (waiter.connection.id, waiter.body, waiter.wait as u8, waiter.headers as u8).hash(state);
    (ages.of(waiter.arrived_ms), ages.of_any(waiter.held_since_ms), waiter.stream).hash(state);
    (waiter.proof_until_ms.map(|at_ms| ages.until(at_ms)), &waiter.asked).hash(state);
    (waiter.asked_until_ms.map(|at_ms| ages.until(at_ms)), &waiter.alive).hash(state);
    waiter.proven.hash(state);
    for request in &waiter.requests {
        (request.message.id(), request.token.map(|token| token.key)).hash(state);
        request.record.as_ref().map(|record| record.owner).hash(state);
    }
    for (index, call, payload) in &waiter.loaded {
        (index, call, payload.is_some()).hash(state);
    }
}
