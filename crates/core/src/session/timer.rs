//! Every wait and every thing ends (design section 3): the deadlines of a session.

use super::Session;
use crate::effect::{Effect, Note, Output, ToUpstream};
use crate::id::{CallId, ConnectionId, StreamId};
use crate::message;
use crate::rejection::LostAnswer;
use crate::stream::{Release, StreamState};

/// What a deadline is for. A timer that fires early, or for something gone, does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A state of a stream has a limit.
    Stream(StreamId),
    /// A waiting POST has a limit.
    Waiter(ConnectionId),
    /// A reset of a connection that carried a stream's end no longer counts.
    Ended(ConnectionId),
    /// A replay settles, or keeps the gate closed for too long.
    Replay(ConnectionId),
    /// A server request is not answered.
    ServerRequest(u64),
    /// The log is beyond its quota: what is settled by now makes room.
    Quota,
    /// The session is idle.
    Idle,
    /// Silent calls and expired streams are looked for.
    Sweep,
}

/// How often silent calls and expired streams are looked for.
pub(super) const SWEEP_INTERVAL_MS: u64 = 30_000;

/// JSON-RPC error code for a server request that no client answered.
const UNANSWERED_CODE: i64 = -32_001;

impl Session {
    /// Waiting POSTs first, alone, so that a claim has an output of its own; then due timers.
    pub(super) fn handle_tick(&mut self, now_ms: u64, out: &mut Output) {
        if self.review_due {
            return self.review(now_ms, out);
        }
        while let Some(&(at_ms, timer)) = self.timers.first() {
            if at_ms > now_ms || self.ended {
                return;
            }
            self.timers.pop_first();
            self.fire(timer, now_ms, out);
        }
    }

    fn fire(&mut self, timer: Timer, now_ms: u64, out: &mut Output) {
        match timer {
            Timer::Stream(id) => self.stream_timer(id, now_ms, out),
            Timer::Waiter(id) => self.waiter_timer(id, now_ms, out),
            Timer::Ended(id) => self.forget_ended(id, now_ms, out),
            Timer::Replay(id) => self.replay_timer(id),
            Timer::ServerRequest(number) => self.server_request_timer(number, now_ms, out),
            Timer::Quota => self.quota_timer(now_ms, out),
            Timer::Idle => self.idle_timer(now_ms, out),
            Timer::Sweep => self.sweep(now_ms, out),
        }
    }

    fn stream_timer(&mut self, id: StreamId, now_ms: u64, out: &mut Output) {
        let Some(stream) = self.streams.get(&id) else { return };
        if stream.deadline_ms.is_none_or(|at_ms| now_ms < at_ms) {
            return;
        }
        match stream.state {
            StreamState::Owed => self.abandon(id, now_ms, out),
            StreamState::Ending => {
                let observed = stream.connection.is_none_or(|connection| connection.observed);
                self.detach_ended(id);
                if observed {
                    self.doubt(id, now_ms, out);
                } else {
                    self.move_stream(id, StreamState::Presumed, now_ms, out);
                }
            }
            StreamState::Doubtful => {
                self.move_stream(id, StreamState::Released(Release::Expired), now_ms, out);
            }
            _ => {}
        }
    }

    /// An owed stream was not resumed in time: it holds nothing any more, and stays resumable.
    fn abandon(&mut self, id: StreamId, now_ms: u64, out: &mut Output) {
        self.move_stream(id, StreamState::Abandoned, now_ms, out);
        if !self.presented_cursor {
            self.never_resumes = true;
            self.row_changed = true;
        }
        self.review_due = true;
    }

    fn replay_timer(&mut self, id: ConnectionId) {
        if self.replays.contains_key(&id) {
            self.open_gate(id);
        }
    }

    /// The peer never acknowledged the end: what it carried is over.
    fn detach_ended(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(connection) = stream.connection.take() {
            self.carried.remove(&connection.id);
            self.open_gate(connection.id);
        }
    }

    /// A running call without one byte from upstream is given up; streams past their retention go.
    fn sweep(&mut self, now_ms: u64, out: &mut Output) {
        let max_ms = self.limits().call_silence_max_ms;
        let silent: Vec<CallId> = self
            .ledger
            .running()
            .filter(|call| now_ms >= call.heard_ms + max_ms)
            .map(|call| call.id)
            .collect();
        for id in silent {
            self.cancel_upstream(id, out);
            self.lose_call(id, LostAnswer::OutcomeUnknown, now_ms, out);
        }
        self.expire_streams(now_ms, out);
        self.renew_scopes(now_ms, out);
        self.timers.insert((now_ms + SWEEP_INTERVAL_MS, Timer::Sweep));
    }

    /// A server request that cannot be delivered, or is not answered, gets an error.
    fn server_request_timer(&mut self, number: u64, now_ms: u64, out: &mut Output) {
        let max_ms = self.limits().server_request_max_ms;
        let request = self.server_requests.get_mut(&number);
        let Some(request) = request.filter(|request| !request.answered) else { return };
        let stream = self.streams.get(&request.stream);
        if stream.is_some_and(|stream| stream.connection.is_some()) {
            // Its client is there and may be asking a person: it is asked for as long as it stays.
            self.timers.insert((now_ms + max_ms, Timer::ServerRequest(number)));
            return;
        }
        request.answered = true;
        let upstream_id = request.upstream_id.clone();
        self.server_requests_changed();
        self.refuse_server_request(&upstream_id, out);
    }

    /// Tells upstream that nobody will answer its request.
    pub(super) fn refuse_server_request(&self, upstream_id: &[u8], out: &mut Output) {
        let text = "The client did not take this request: its connection is lost.";
        let body = message::error_response(Some(upstream_id), UNANSWERED_CODE, text, None);
        out.effects.push(Effect::Upstream(ToUpstream::Send(body)));
        out.effects.push(Effect::Note(Note::Ignored("server request not deliverable")));
    }

    /// An idle session's child is ended; with nothing owed, abandoned or doubtful the session too.
    fn idle_timer(&mut self, now_ms: u64, out: &mut Output) {
        let idle_ms = self.limits().session_idle_ms;
        let running = self.ledger.running().next().is_some();
        let attached = self.streams.values().any(|stream| stream.connection.is_some());
        let due_ms = self.last_activity_ms + idle_ms;
        if now_ms < due_ms || running || attached || !self.waiting.is_empty() {
            let again_ms = if now_ms < due_ms { due_ms } else { now_ms + idle_ms };
            self.timers.insert((again_ms, Timer::Idle));
            return;
        }
        let unsettled = self.streams.values().any(|s| !s.is_standalone() && s.state.is_unsettled());
        let retention_ms = self.limits().retention_ms;
        if !unsettled || now_ms >= self.last_activity_ms + retention_ms {
            let idle_ms = now_ms.saturating_sub(self.last_activity_ms);
            out.effects.push(Effect::Note(Note::Idle { idle_ms }));
            return self.end(out);
        }
        if !self.upstream.down {
            self.upstream.down = true;
            self.set_continuation(None);
            self.upstream.lost_untold = !self.start.settings.upstream_is_stateless;
            out.effects.push(Effect::Upstream(ToUpstream::Close));
            out.effects.push(Effect::Note(Note::UpstreamMoved("idle")));
        }
        self.timers.insert((now_ms + idle_ms, Timer::Idle));
    }
}
