//! Undoing what the store refused: a batch is committed whole or not at all (design section 4).

use std::collections::BTreeSet;

use super::timer::Timer;
use super::waiting::Waiter;
use super::{Session, UpstreamState};
use crate::effect::{Batch, Effect, Eviction, Output};
use crate::id::{CallId, StreamId};
use crate::input::Request;
use crate::ledger::Call;
use crate::policy::{Decision, Verdict};
use crate::stream::{Stream, StreamState};
use crate::token::{DedupKey, DedupRecord, Outcome};

/// What is needed if the last output is refused, because one of its rows has another owner.
#[derive(Clone, Debug)]
pub(super) enum Undo {
    /// It claimed: all of it is taken back, and the POST is decided again.
    Claim(Box<Claimed>),
    /// It told how a call stands whose row another session took over: it comes again without, or
    /// over that row.
    Outcome(Box<(Batch, Vec<Effect>)>),
}

/// The state before a claim, as far as the claim touches it.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    waiter: Waiter,
    claimed: Vec<CallId>,
    opened: Option<StreamId>,
    calls: Vec<Call>,
    /// Calls that owned the rows which it took over.
    owners: Vec<CallId>,
    streams: Vec<Stream>,
    room: RoomMade,
    upstream: UpstreamState,
}

/// What was dropped to make room for a claim, and told: it stays so whatever becomes of the claim.
#[derive(Clone, Debug)]
struct RoomMade {
    evictions: Vec<Eviction>,
    effects: Vec<Effect>,
    calls: BTreeSet<CallId>,
    streams: BTreeSet<StreamId>,
}

impl Claimed {
    /// Completes it with what the claim did.
    pub(super) fn with(mut self, claimed: Vec<CallId>, opened: Option<StreamId>) -> Undo {
        self.claimed = claimed;
        self.opened = opened;
        Undo::Claim(Box::new(self))
    }
}

impl Session {
    /// Remembers what the admission of a POST will touch, if a row is written with it. `out` has
    /// what was done to make room for it.
    pub(super) fn prepare_undo(
        &self,
        waiter: &Waiter,
        decisions: &[Decision],
        out: &Output,
    ) -> Option<Claimed> {
        let mut touched = Vec::new();
        for decision in decisions {
            match &decision.verdict {
                Verdict::Claim { supersede } => touched.extend(supersede),
                Verdict::Record(Some(call)) | Verdict::Collect(call) => touched.push(*call),
                _ => {}
            }
        }
        touched.sort();
        touched.dedup();
        let calls: Vec<_> = touched.iter().filter_map(|&id| self.ledger.get(id)).cloned().collect();
        let keys: Vec<_> = waiter.requests.iter().filter_map(|r| self.key(r)).collect();
        if keys.is_empty() && calls.iter().all(|call| call.key().is_none()) {
            return None;
        }
        let mut streams: Vec<_> = calls.iter().filter_map(|call| call.stream).collect();
        streams.extend(waiter.stream);
        streams.sort();
        streams.dedup();
        Some(Claimed {
            waiter: waiter.clone(),
            claimed: Vec::new(),
            opened: None,
            calls,
            owners: keys.iter().filter_map(|key| self.ledger.with_key(key)).collect(),
            streams: streams.iter().filter_map(|id| self.streams.get(id)).cloned().collect(),
            room: RoomMade {
                evictions: out.batch.evictions.clone(),
                effects: out.effects.clone(),
                calls: self.changed_calls.clone(),
                streams: self.changed_streams.clone(),
            },
            upstream: self.upstream.clone(),
        })
    }

    /// The key of the row that the claim of a request writes.
    fn key(&self, request: &Request) -> Option<DedupKey> {
        let token = request.token.map(|token| token.key);
        token.or_else(|| self.scope(request).map(|scope| scope.key))
    }

    /// The last output was refused and dropped whole: a row of it has another owner. A claim
    /// is undone and its POST decided again; anything else comes again without that row, or over it
    /// if its time is over.
    pub(super) fn handle_token_taken(
        &mut self,
        call: CallId,
        record: DedupRecord,
        now_ms: u64,
        out: &mut Output,
    ) {
        match self.undo.take() {
            None => {}
            Some(Undo::Claim(claimed)) => self.undo_claim(*claimed, call, record, now_ms, out),
            Some(Undo::Outcome(refused)) => {
                let (mut batch, effects) = *refused;
                if self.takes_over(call, &record, now_ms) {
                    let rows = batch.dedup.iter_mut().filter(|w| w.record.owner.call == call);
                    rows.for_each(|write| write.expected = Some(record.owner));
                } else {
                    self.disown(call);
                    batch.dedup.retain(|write| write.record.owner.call != call);
                }
                out.batch.events.extend(batch.events);
                out.batch.dedup.extend(batch.dedup);
                out.batch.calls.extend(batch.calls);
                out.batch.streams.extend(batch.streams);
                out.batch.forgotten_calls.extend(batch.forgotten_calls);
                out.batch.forgotten_streams.extend(batch.forgotten_streams);
                out.batch.evictions.extend(batch.evictions);
                out.batch.session = batch.session;
                out.batch.durable |= batch.durable;
                out.effects.extend(effects);
            }
        }
    }

    fn undo_claim(
        &mut self,
        claimed: Claimed,
        refused: CallId,
        mut record: DedupRecord,
        now_ms: u64,
        out: &mut Output,
    ) {
        let mut waiter = claimed.waiter;
        let key = self.ledger.get(refused).and_then(Call::key);
        for id in claimed.claimed {
            self.ledger.remove(id);
        }
        if let Some(stream) = claimed.opened {
            self.drop_stream(stream);
            self.carried.remove(&waiter.connection.id);
        }
        for stream in claimed.streams {
            self.restore_stream(stream);
        }
        for call in claimed.calls {
            let id = call.id;
            self.ledger.remove(id);
            self.ledger.insert(call);
            self.ledger.restore_key(id);
        }
        for id in claimed.owners {
            self.ledger.restore_key(id);
        }
        self.upstream = claimed.upstream;
        self.log_bytes = self.streams.values().map(|stream| stream.bytes).sum();
        out.batch.evictions.extend(claimed.room.evictions);
        out.effects.extend(claimed.room.effects);
        self.changed_calls = claimed.room.calls;
        self.changed_streams = claimed.room.streams;
        // Its own row was in what was refused, perhaps; what it reserves is durable before its use.
        self.row_changed = true;
        out.batch.durable = true;
        if let Some(key) = key {
            let owner = self.ledger.with_key(&key);
            let ours = record.owner.session == self.start.session;
            if let Some(local) = owner {
                self.disown(local);
            }
            if ours && owner.is_none() && record.outcome == Outcome::Running {
                // Nothing here runs it: an instance that cannot see its outcome must not guess.
                record.outcome = Outcome::Unknown;
            }
            for request in &mut waiter.requests {
                if request.token.map(|token| token.key) == Some(key) {
                    request.record = Some(record.clone());
                }
                if let Some(scope) = request.scope.as_mut().filter(|scope| scope.key == key) {
                    scope.record = Some(record.clone());
                }
            }
        }
        self.judge(waiter, now_ms, out);
    }

    /// True if the row in the way of a tokenless call protects nothing any more. A call that its
    /// client comes back for, long after its own row went to another session, needs it again.
    fn takes_over(&self, call: CallId, record: &DedupRecord, now_ms: u64) -> bool {
        let is_needed = self.ledger.get(call).is_some_and(|call| call.open_scope().is_some());
        is_needed && !record.is_in_repeat_window(now_ms)
    }

    /// Another session owns the row of a call: it is not ours to write any more.
    fn disown(&mut self, call: CallId) {
        self.ledger.forget_key(call);
        self.changed_calls.insert(call);
    }

    fn drop_stream(&mut self, id: StreamId) {
        self.owed.remove(&id);
        let dropped = self.streams.remove(&id);
        if let Some(at_ms) = dropped.and_then(|stream| stream.deadline_ms) {
            self.timers.remove(&(at_ms, Timer::Stream(id)));
        }
    }

    /// Puts a stream back as it was, with its deadline.
    fn restore_stream(&mut self, stream: Stream) {
        let id = stream.id;
        self.drop_stream(id);
        if stream.state == StreamState::Owed {
            self.owed.insert(id);
        }
        self.timers.extend(stream.deadline_ms.map(|at_ms| (at_ms, Timer::Stream(id))));
        self.streams.insert(id, stream);
    }
}
