//! What is kept, and what goes first (design sections 3 and 9).

use super::Session;
use super::timer::Timer;
use crate::effect::{Effect, Eviction, Note, Output};
use crate::id::StreamId;
use crate::ledger::Phase;
use crate::rejection::LostAnswer;
use crate::settings::Delivery;
use crate::stream::{Release, Stream, StreamState};

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

    /// Makes room for an event in the session's log. At the hard limit the stream gets one durable
    /// terminal event that names what was dropped; false then.
    pub(super) fn fit(
        &mut self,
        stream: StreamId,
        bytes: u64,
        now_ms: u64,
        out: &mut Output,
    ) -> bool {
        let bytes_max = self.limits().session_log_bytes_max;
        if self.log_bytes + bytes <= bytes_max {
            return true;
        }
        self.evict_settled(bytes, now_ms, out);
        if self.log_bytes + bytes <= bytes_max {
            return true;
        }
        if stream == StreamId::STANDALONE {
            self.evict_events(stream, false, out);
            return self.log_bytes + bytes <= bytes_max;
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

    /// Makes room for a response; false if all that is kept is still needed.
    pub(super) fn fit_response(&mut self, bytes: u64, now_ms: u64, out: &mut Output) -> bool {
        let bytes_max = self.limits().session_log_bytes_max;
        if self.log_bytes + bytes > bytes_max {
            self.evict_settled(bytes, now_ms, out);
        }
        self.log_bytes + bytes <= bytes_max
    }

    /// Drops events of streams whose clients have their answers, oldest first; then of streams
    /// that were given up. Responses stay.
    fn evict_settled(&mut self, bytes: u64, now_ms: u64, out: &mut Output) {
        let bytes_max = self.limits().session_log_bytes_max;
        let quiet_ms = self.limits().reset_window_ms;
        let settled: Vec<_> = self
            .streams
            .values()
            .filter(|stream| !stream.is_standalone() && is_settled(stream, quiet_ms, now_ms))
            .map(|stream| stream.id)
            .collect();
        let given_up: Vec<_> = self
            .streams
            .values()
            .filter(|stream| !stream.is_standalone() && stream.connection.is_none())
            .filter(|stream| matches!(stream.state, StreamState::Abandoned | StreamState::Doubtful))
            .map(|stream| stream.id)
            .collect();
        for &id in settled.iter().chain(&given_up) {
            if self.log_bytes + bytes <= bytes_max {
                return;
            }
            self.evict_events(id, false, out);
        }
        for id in settled {
            if self.log_bytes + bytes <= bytes_max {
                return;
            }
            self.evict_events(id, true, out);
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
