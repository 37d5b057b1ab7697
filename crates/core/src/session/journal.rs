//! Changes of state, each in one place, so that log, metrics, rows and timers never miss one.

use std::sync::Arc;

use bytes::Bytes;

use super::safeguard::Safeguard;
use super::timer::Timer;
use super::{Session, UpstreamState};
use crate::effect::{Effect, Event, EventKind, Note, Output, ToUpstream};
use crate::id::{CallId, Seq, StreamId};
use crate::ledger::Phase;
use crate::stream::{Stream, StreamState};

/// Progress is dropped in steps of this share of the session's quota.
const SEGMENTS_OF_QUOTA: u64 = 64;

impl Session {
    /// Appends one event to a stream. The caller has checked that the stream exists.
    pub(super) fn append(
        &mut self,
        stream: StreamId,
        kind: EventKind,
        last: bool,
        payload: Bytes,
        out: &mut Output,
    ) -> Seq {
        let segment_bytes_max = self.limits().session_log_bytes_max / SEGMENTS_OF_QUOTA;
        let seq = Seq(self.last_seq.0 + 1);
        self.last_seq = seq;
        let Some(state) = self.streams.get_mut(&stream) else { return seq };
        let previous = state.cursors.produced;
        state.cursors.produce(seq);
        let bytes = payload.len() as u64;
        state.bytes += bytes;
        if kind == EventKind::Response {
            state.response_bytes += bytes;
        } else {
            state.extend_segments(seq, bytes, segment_bytes_max);
        }
        self.log_bytes += bytes;
        if last {
            state.last = Some(seq);
            self.changed_streams.insert(stream);
        }
        out.batch.durable |= kind == EventKind::Response;
        out.batch.events.push(Event { stream, seq, previous, kind, last, payload });
        seq
    }

    /// Opens a stream in a state.
    pub(super) fn open_stream(&mut self, state: StreamState, now_ms: u64) -> StreamId {
        let id = StreamId(self.last_stream.0.saturating_add(1));
        self.last_stream = id;
        self.streams.insert(id, Stream::new(id, state, now_ms));
        self.changed_streams.insert(id);
        id
    }

    /// Moves a stream to a state, with everything that follows from being there.
    pub(super) fn move_stream(
        &mut self,
        id: StreamId,
        to: StreamState,
        now_ms: u64,
        out: &mut Output,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let from = stream.state;
        if from == to || stream.is_standalone() {
            return;
        }
        stream.state = to;
        let settled = matches!(
            to,
            StreamState::Presumed
                | StreamState::Doubtful
                | StreamState::Proved
                | StreamState::Released(_)
        );
        if !settled {
            stream.settled_ms = None;
        } else if !(from == StreamState::Presumed && to == StreamState::Proved) {
            // Presumed and then proved is settled since it was presumed (row 13).
            stream.settled_ms = Some(now_ms);
        }
        if to == StreamState::Owed {
            self.owed.insert(id);
        } else {
            self.owed.remove(&id);
        }
        if to == StreamState::Abandoned {
            for call in self.streams[&id].calls.clone() {
                self.mark_lost(call, now_ms);
            }
        }
        self.changed_streams.insert(id);
        self.review_due |= !self.waiting.is_empty();
        out.effects.push(Effect::Note(Note::StreamMoved { stream: id, from, to }));
        self.arm_stream(id, now_ms);
        self.release_scopes(id, now_ms, out);
    }

    /// Arms the timers that the state of a stream needs.
    pub(super) fn arm_stream(&mut self, id: StreamId, now_ms: u64) {
        let settings = Arc::clone(&self.start.settings);
        let limits = &settings.limits;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(at_ms) = stream.deadline_ms.take() {
            self.timers.remove(&(at_ms, Timer::Stream(id)));
        }
        let at_ms = match stream.state {
            StreamState::Owed => limits
                .owed_grace_ms
                .map(|grace| now_ms + grace.saturating_sub(stream.detached_ms(now_ms))),
            StreamState::Ending => {
                let observed = stream.connection.is_none_or(|connection| connection.observed);
                let max_ms =
                    if observed { limits.ending_max_ms } else { limits.unobserved_presume_ms };
                Some(stream.ended_ms.unwrap_or(now_ms) + max_ms)
            }
            StreamState::Doubtful => {
                Some(stream.settled_ms.unwrap_or(now_ms) + limits.repeat_window_ms)
            }
            _ => None,
        };
        stream.deadline_ms = at_ms;
        self.timers.extend(at_ms.map(|at_ms| (at_ms, Timer::Stream(id))));
    }

    /// Moves a call to a phase.
    pub(super) fn move_call(&mut self, id: CallId, to: Phase, out: &mut Output) {
        if !self.ledger.move_to(id, to) {
            return;
        }
        self.changed_calls.insert(id);
        self.review_due |= !self.waiting.is_empty();
        out.batch.durable |= to != Phase::Sent || !self.lacks(Safeguard::DurableClaim);
        out.effects.push(Effect::Note(Note::CallMoved { call: id, to: to.name() }));
    }

    /// Remembers when a call was abandoned, cancelled or lost.
    pub(super) fn mark_lost(&mut self, id: CallId, now_ms: u64) {
        if let Some(call) = self.ledger.get_mut(id) {
            call.lost_ms = Some(now_ms);
            self.changed_calls.insert(id);
        }
    }

    /// Sends something upstream, starting the server again first if it is gone.
    pub(super) fn send_upstream(&mut self, message: ToUpstream, out: &mut Output) {
        if self.upstream.down {
            self.upstream.down = false;
            let restore = restore_messages(&self.upstream);
            out.effects.push(Effect::Upstream(ToUpstream::Reopen { restore }));
            out.effects.push(Effect::Note(Note::UpstreamMoved("reopening")));
        }
        out.effects.push(Effect::Upstream(message));
    }

    /// Copies what has changed into the batch.
    pub(super) fn write_rows(&mut self, out: &mut Output) {
        for id in std::mem::take(&mut self.changed_calls) {
            match self.ledger.get(id) {
                Some(call) => out.batch.calls.push(call.clone()),
                None => out.batch.forgotten_calls.push(id),
            }
        }
        for id in std::mem::take(&mut self.changed_streams) {
            match self.streams.get(&id) {
                Some(stream) => out.batch.streams.push(stream.clone()),
                None => out.batch.forgotten_streams.push(id),
            }
        }
        self.write_session_row(out);
    }
}

fn restore_messages(upstream: &UpstreamState) -> Vec<Bytes> {
    upstream.initialized.iter().chain(upstream.settings.kept()).cloned().collect()
}
