//! What is kept, and what goes first (design sections 3 and 9).

use super::Session;
use super::timer::Timer;
use super::waiting::Waiter;
use crate::effect::{Effect, Eviction, Note, Output};
use crate::id::StreamId;
use crate::ledger::Phase;
use crate::policy::{Decision, Verdict};
use crate::rejection::{LostAnswer, Reason};
use crate::settings::Delivery;
use crate::stream::{Release, Stream, StreamState};
use crate::tool::Class;

/// How often room is looked for while a session's log is beyond its quota.
const QUOTA_INTERVAL_MS: u64 = 500;

/// What something takes in the log of its session, and in rows beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed {
    /// Bytes of payload in the log.
    pub(super) log: u64,
    /// Bytes of payload in rows; only the shared quotas count them.
    pub(super) rows: u64,
}

impl Needed {
    /// Room in the log alone.
    pub(super) fn log(bytes: u64) -> Self {
        Self { log: bytes, rows: 0 }
    }
}

/// A stream may lose its progress events this long after it settled, at the earliest.
fn is_settled(stream: &Stream, quiet_ms: u64, now_ms: u64) -> bool {
    let settled = matches!(
        stream.state,
        StreamState::Presumed | StreamState::Proved | StreamState::Released(_)
    );
    let since_ms = stream.settled_ms.map_or(0, |at_ms| now_ms.saturating_sub(at_ms));
    settled && stream.connection.is_none() && since_ms >= quiet_ms
}

impl Session {
    /// Makes room for one more stream; false if every kept one is still needed.
    pub(super) fn make_room(&mut self, now_ms: u64, out: &mut Output) -> bool {
        while self.streams.len() >= self.limits().session_streams_max {
            let Some(victim) = self.least_needed(now_ms) else { return false };
            if !self.remember_refusals(victim, now_ms) {
                return false;
            }
            self.forget_stream(victim, out);
        }
        true
    }

    /// The stream to forget first: one whose answer arrived; else one that was given up and is no
    /// repeat's original any more; else the oldest that was given up.
    fn least_needed(&self, now_ms: u64) -> Option<StreamId> {
        let quiet_ms = self.limits().owed_grace_ms.unwrap_or(0).max(self.limits().reset_window_ms);
        // A stream whose connection closed or was used again after its end can no longer become
        // doubtful: it may go at once. The others keep their window.
        let done = |stream: &&Stream| {
            let settled = is_settled(stream, quiet_ms, now_ms)
                || is_settled(stream, 0, now_ms) && !stream.reset_may_come && !stream.scarred;
            settled && !self.is_running(stream) && !self.refuses_repeats(stream, now_ms)
        };
        let given_up = |stream: &&Stream| {
            let over = matches!(
                stream.state,
                StreamState::Abandoned
                    | StreamState::Doubtful
                    | StreamState::Presumed
                    | StreamState::Released(_)
            );
            over && stream.connection.is_none() && !self.is_running(stream)
        };
        let all = || self.streams.values().filter(|stream| !stream.is_standalone());
        let victim = all()
            .find(done)
            .or_else(|| all().find(|s| given_up(s) && !self.refuses_repeats(s, now_ms)))
            .or_else(|| all().find(given_up));
        victim.map(|stream| stream.id)
    }

    fn is_running(&self, stream: &Stream) -> bool {
        let calls = stream.calls.iter().filter_map(|&id| self.ledger.get(id));
        calls.filter(|call| call.stream == Some(stream.id)).any(|call| call.phase.is_in_flight())
    }

    /// True if forgetting the stream would let a repeat run that must be refused or answered from
    /// the record: its call was cancelled or lost, or its answer was, within the repeat window.
    fn refuses_repeats(&self, stream: &Stream, now_ms: u64) -> bool {
        let proved_only = self.start.settings.delivery == Delivery::Proved;
        let missing =
            stream.state.is_unsettled() || proved_only && stream.state == StreamState::Presumed;
        let calls = stream.calls.iter().filter_map(|&id| self.ledger.get(id));
        calls.filter(|call| call.stream == Some(stream.id) && call.settled_by.is_none()).any(
            |call| {
                let lost = matches!(call.phase, Phase::Cancelled { .. } | Phase::Unknown);
                (missing || lost) && self.is_in_repeat_window(call, Some(stream.state), now_ms)
            },
        )
    }

    /// A stream that is forgotten takes its answer along; that its call must not run again is still
    /// remembered. False if there is no room even for that.
    fn remember_refusals(&mut self, id: StreamId, now_ms: u64) -> bool {
        let limits = self.limits();
        let (window_ms, max) = (limits.repeat_window_ms, limits.forgotten_calls_max);
        let Some(stream) = self.streams.get(&id) else { return true };
        if !self.refuses_repeats(stream, now_ms) {
            return true;
        }
        let calls = stream.calls.iter().filter_map(|&call| self.ledger.get(call));
        let kept: Vec<_> = calls
            .filter(|call| call.stream == Some(id) && call.class == Class::Effectful)
            .map(|call| (call.params, call.window_start_ms().max(now_ms) + window_ms))
            .collect();
        kept.into_iter()
            .all(|(params, until)| self.ledger.remember_forgotten(params, until, now_ms, max))
    }

    fn forget_stream(&mut self, id: StreamId, out: &mut Output) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.changed_streams.insert(id);
        self.owed.remove(&id);
        self.log_bytes = self.log_bytes.saturating_sub(stream.bytes);
        if let Some(at_ms) = stream.deadline_ms {
            self.timers.remove(&(at_ms, Timer::Stream(id)));
        }
        let owed = stream.state.is_unsettled();
        for &call in &stream.calls {
            // A collected call lives on with the stream that collected it.
            if self.ledger.get(call).is_some_and(|call| call.stream == Some(id)) {
                self.ledger.remove(call);
                self.changed_calls.insert(call);
            }
        }
        self.server_requests.retain(|_, request| request.stream != id || !request.answered);
        out.batch.evictions.push(Eviction {
            stream: id,
            through: stream.cursors.produced,
            responses_too: true,
        });
        if owed {
            let bytes = stream.bytes;
            out.effects.push(Effect::Note(Note::Evicted { stream: id, bytes, owed }));
        }
    }

    /// Makes room for an event: in the session's log, and under the quotas that it shares. At the
    /// hard limit the stream gets one durable terminal event that names what was dropped; false
    /// then.
    pub(super) fn fit(
        &mut self,
        stream: StreamId,
        bytes: u64,
        now_ms: u64,
        out: &mut Output,
    ) -> bool {
        let needed = Needed::log(bytes);
        if self.fit_needed(needed, now_ms, out) {
            return true;
        }
        if stream == StreamId::STANDALONE {
            self.evict_events(stream, false, out);
            return self.fits(self.limits().session_log_hard_bytes_max, needed);
        }
        let calls = self.streams.get(&stream).map(|s| s.calls.clone()).unwrap_or_default();
        for call in calls {
            let running = self.ledger.get(call).is_some_and(|call| call.phase.is_in_flight());
            if running {
                self.cancel_upstream(call, out);
                self.lose_call(call, LostAnswer::LogFull, now_ms, out);
            }
        }
        false
    }

    /// Makes room by dropping what is settled. What is still needed may stay beyond the quota;
    /// false at the hard limit.
    pub(super) fn fit_needed(&mut self, needed: Needed, now_ms: u64, out: &mut Output) -> bool {
        let hard_bytes_max = self.limits().session_log_hard_bytes_max;
        self.fit_below(hard_bytes_max, needed, now_ms, out)
    }

    fn fit_below(&mut self, bytes_max: u64, needed: Needed, now_ms: u64, out: &mut Output) -> bool {
        // Beyond the quota it was just looked for, and will be again soon: not for each event.
        let is_looked_for = self.over_quota_since_ms.is_some();
        let must_look = !self.fits(bytes_max, needed);
        if must_look || !is_looked_for && !self.fits_quota(needed) {
            self.evict_settled(needed, now_ms, out);
        }
        if !self.fits(bytes_max, needed) {
            self.evict_presumed(bytes_max, needed, now_ms, out);
        }
        self.fits(bytes_max, needed)
    }

    /// Notes when the quota was exceeded; from then on room is looked for at intervals.
    pub(super) fn watch_quota(&mut self, now_ms: u64) {
        if self.log_bytes <= self.limits().session_log_bytes_max {
            self.over_quota_since_ms = None;
        } else if self.over_quota_since_ms.is_none() {
            self.over_quota_since_ms = Some(now_ms);
            self.timers.insert((now_ms + QUOTA_INTERVAL_MS, Timer::Quota));
        }
    }

    /// What is settled by now goes, down to the quota.
    pub(super) fn quota_timer(&mut self, now_ms: u64, out: &mut Output) {
        if self.over_quota_since_ms.is_none() {
            return;
        }
        self.evict_settled(Needed::log(0), now_ms, out);
        if !self.fits_quota(Needed::log(0)) {
            self.timers.insert((now_ms + QUOTA_INTERVAL_MS, Timer::Quota));
        }
    }

    /// True while its log is beyond the quota and what brings more should wait, if it can: soon
    /// clients read, and what they read settles (design section 3).
    pub fn asks_upstream_to_wait(&self, now_ms: u64) -> bool {
        let max_ms = self.limits().back_pressure_max_ms;
        self.over_quota_since_ms.is_some_and(|since_ms| now_ms < since_ms + max_ms)
    }

    /// The quotas that it shares are nearly used up: what its clients have goes, for others' sake.
    pub(super) fn make_way(&mut self, now_ms: u64, out: &mut Output) {
        let reserve = self.limits().claim_room_bytes_min;
        if self.room_max_bytes.saturating_sub(self.log_bytes) < reserve {
            for id in self.arrived(now_ms) {
                self.evict_events(id, true, out);
            }
        }
    }

    fn fits(&self, bytes_max: u64, needed: Needed) -> bool {
        let log_bytes = self.log_bytes.saturating_add(needed.log);
        let all_bytes = log_bytes.saturating_add(needed.rows);
        log_bytes <= bytes_max && all_bytes <= self.room_max_bytes
    }

    fn fits_quota(&self, needed: Needed) -> bool {
        self.fits(self.limits().session_log_bytes_max, needed)
    }

    /// Refuses what does not fit before it is admitted: a call without room for what it may say,
    /// which never runs and may come again; and a record without room for itself, which stays
    /// where it is.
    pub(super) fn refuse_without_room(
        &mut self,
        waiter: &Waiter,
        decisions: &mut [Decision],
        now_ms: u64,
        out: &mut Output,
    ) {
        let limits = self.limits();
        // Beyond the quota calls go on, as long as what they say finds as much room once more.
        let quota = limits.session_log_bytes_max;
        let claims_bytes_max = limits.session_log_hard_bytes_max.saturating_sub(quota).max(quota);
        let reserve = limits.claim_room_bytes_min.min(quota / 2);
        let mut records = 0;
        for (index, decision) in decisions.iter_mut().enumerate() {
            match decision.verdict {
                Verdict::Claim { .. } if !self.is_json(waiter, index, decision) => {
                    let needed = Needed::log(records + reserve);
                    let fits = self.fit_below(claims_bytes_max, needed, now_ms, out);
                    if !fits {
                        decision.verdict = Verdict::Reject(Reason::UpstreamUnavailable);
                        decision.original = None;
                    }
                }
                Verdict::Record(Some(_)) | Verdict::Collect(_) => {
                    let bytes = records + waiter.loaded_bytes(index);
                    if self.fit_needed(Needed::log(bytes), now_ms, out) {
                        records = bytes;
                    } else {
                        decision.verdict = Verdict::Reject(Reason::StreamNotDrained);
                    }
                }
                _ => {}
            }
        }
    }

    /// Streams whose clients have their answers, oldest first.
    fn arrived(&self, now_ms: u64) -> Vec<StreamId> {
        let quiet_ms = self.limits().reset_window_ms;
        // No reset matters to what the client itself has confirmed.
        let has_arrived = |stream: &&Stream| {
            let proved = stream.state == StreamState::Proved;
            is_settled(stream, if proved { 0 } else { quiet_ms }, now_ms)
        };
        let calls = self.streams.values().filter(|stream| !stream.is_standalone());
        calls.filter(has_arrived).map(|stream| stream.id).collect()
    }

    /// Before anything is refused or lost: drops progress of answers that the peers' kernels have.
    /// Should a reset void one yet, its client still finds the response, behind a gap that is told.
    fn evict_presumed(&mut self, bytes_max: u64, needed: Needed, now_ms: u64, out: &mut Output) {
        let calls = self.streams.values().filter(|stream| !stream.is_standalone());
        let presumed = calls.filter(|stream| is_settled(stream, 0, now_ms));
        let presumed: Vec<_> = presumed.map(|stream| stream.id).collect();
        for id in presumed {
            if self.fits(bytes_max, needed) {
                return;
            }
            self.evict_events(id, false, out);
        }
    }

    /// Drops events of streams whose clients have their answers, oldest first; then of streams
    /// that were given up. Responses stay.
    fn evict_settled(&mut self, needed: Needed, now_ms: u64, out: &mut Output) {
        let settled = self.arrived(now_ms);
        let given_up: Vec<_> = self
            .streams
            .values()
            .filter(|stream| !stream.is_standalone() && stream.connection.is_none())
            .filter(|stream| matches!(stream.state, StreamState::Abandoned | StreamState::Doubtful))
            .map(|stream| stream.id)
            .collect();
        let progress = settled.iter().chain(&given_up).map(|&id| (id, false));
        let responses = settled.iter().map(|&id| (id, true));
        // The standalone stream is never owed: it makes way for every answer that is.
        let standalone = [(StreamId::STANDALONE, false)];
        for (id, responses_too) in progress.chain(responses).chain(standalone) {
            if self.fits_quota(needed) {
                return;
            }
            self.evict_events(id, responses_too, out);
        }
    }

    /// Streams past the retention lose everything but the memory that they were there.
    pub(super) fn expire_streams(&mut self, now_ms: u64, out: &mut Output) {
        let retention_ms = self.limits().retention_ms;
        let expired: Vec<_> = self
            .streams
            .values()
            .filter(|s| !s.is_standalone() && s.connection.is_none() && !s.emptied)
            .filter(|s| s.state != StreamState::Owed && !self.is_running(s))
            .filter(|s| {
                let since_ms = s.ended_ms.or(s.settled_ms).or(s.detached_since_ms);
                now_ms >= since_ms.unwrap_or(s.opened_ms) + retention_ms
            })
            .map(|stream| stream.id)
            .collect();
        for id in expired {
            self.evict_events(id, true, out);
            if self.streams.get(&id).is_some_and(|s| !matches!(s.state, StreamState::Released(_))) {
                self.move_stream(id, StreamState::Released(Release::Expired), now_ms, out);
            }
        }
    }

    fn evict_events(&mut self, id: StreamId, responses_too: bool, out: &mut Output) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let through = stream.cursors.produced;
        if stream.evicted == through && (stream.emptied || !responses_too) {
            return;
        }
        let kept = if responses_too { 0 } else { stream.response_bytes };
        if !responses_too && kept == stream.bytes {
            // Nothing but responses: there is no gap to tell of.
            return;
        }
        let (dropped, owed) = (stream.bytes - kept, stream.state.is_unsettled());
        stream.evicted = through;
        stream.emptied |= responses_too;
        stream.bytes = kept;
        stream.response_bytes = kept;
        self.log_bytes -= dropped;
        self.changed_streams.insert(id);
        out.batch.evictions.push(Eviction { stream: id, through, responses_too });
        out.effects.push(Effect::Note(Note::Evicted { stream: id, bytes: dropped, owed }));
    }
}
