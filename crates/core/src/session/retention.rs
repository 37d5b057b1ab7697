//! How long streams are kept, and how what they hold goes (design sections 3 and 9). What goes
//! first when the log is full is in [`room`](super::room).

use super::Session;
use super::timer::Timer;
use crate::effect::{Effect, Eviction, Note, Output};
use crate::id::{Seq, StreamId};
use crate::ledger::Phase;
use crate::settings::Delivery;
use crate::stream::{Release, Stream, StreamState};
use crate::tool::Class;

/// A stream may lose its progress events this long after it settled, at the earliest.
pub(super) fn is_settled(stream: &Stream, quiet_ms: u64, now_ms: u64) -> bool {
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

    pub(super) fn is_running(&self, stream: &Stream) -> bool {
        let calls = stream.calls.iter().filter_map(|&id| self.ledger.get(id));
        calls.filter(|call| call.stream == Some(stream.id)).any(|call| call.phase.is_in_flight())
    }

    /// True if forgetting the stream would let a repeat run that must be refused or answered from
    /// the record: its call was cancelled or lost, or its answer was, within the repeat window.
    pub(super) fn refuses_repeats(&self, stream: &Stream, now_ms: u64) -> bool {
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
        self.row_changed |= !kept.is_empty();
        kept.into_iter()
            .all(|(params, until)| self.ledger.remember_forgotten(params, until, now_ms, max))
    }

    fn forget_stream(&mut self, id: StreamId, out: &mut Output) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.changed_streams.insert(id);
        self.owed.remove(&id);
        // A reset of the connection that carried it would void nothing any more.
        self.carried.retain(|_, carried| *carried != id);
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

    /// Drops a stream's events; without its responses if they are to outlive the rest.
    pub(super) fn evict_events(&mut self, id: StreamId, responses_too: bool, out: &mut Output) {
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
        let dropped = stream.bytes - kept;
        stream.emptied |= responses_too && stream.response_bytes > 0;
        stream.bytes = kept;
        stream.response_bytes = kept;
        stream.segments.clear();
        self.note_eviction(id, through, responses_too, dropped, out);
    }

    /// Drops a stream's oldest segment of progress; false if there is none that ends at `through`
    /// or before. Who resumes from before its end is told the gap.
    pub(super) fn evict_segment(&mut self, id: StreamId, through: Seq, out: &mut Output) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        if stream.segments.front().is_none_or(|segment| segment.through > through) {
            return false;
        }
        let Some(segment) = stream.segments.pop_front() else { return false };
        stream.bytes -= segment.bytes;
        self.note_eviction(id, segment.through, false, segment.bytes, out);
        true
    }

    fn note_eviction(
        &mut self,
        id: StreamId,
        through: Seq,
        responses_too: bool,
        bytes: u64,
        out: &mut Output,
    ) {
        self.log_bytes -= bytes;
        self.changed_streams.insert(id);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let taken = stream.taken;
        let unread = !stream.is_standalone() && taken < through;
        let owed = stream.state.is_unsettled() || unread;
        stream.evicted = through;
        out.batch.evictions.push(Eviction { stream: id, through, responses_too });
        out.effects.push(Effect::Note(Note::Evicted { stream: id, bytes, owed }));
        self.refuse_evicted_requests(id, taken, out);
    }

    /// Requests of the server that its client can no longer find are answered for it: those that
    /// were evicted from behind a cursor.
    pub(super) fn refuse_evicted_requests(&mut self, id: StreamId, after: Seq, out: &mut Output) {
        let Some(stream) = self.streams.get(&id) else { return };
        let evicted = stream.evicted;
        let lost = self.server_requests.values_mut().filter(|request| {
            let is_gone = request.seq > after && request.seq <= evicted;
            request.stream == id && is_gone && !request.answered
        });
        let mut upstream_ids = Vec::new();
        for request in lost {
            request.answered = true;
            upstream_ids.push(request.upstream_id.clone());
        }
        for upstream_id in upstream_ids {
            self.server_requests_changed();
            self.refuse_server_request(&upstream_id, out);
        }
    }
}
