//! What was seen on the connections that carry streams (design section 3, "evidence").

use super::Session;
use super::safeguard::Safeguard;
use super::timer::Timer;
use crate::effect::{Command, Effect, Output};
use crate::id::{ConnectionId, Seq, StreamId};
use crate::input::WireEvent;
use crate::stream::StreamState;

impl Session {
    pub(super) fn handle_wire(
        &mut self,
        connection: ConnectionId,
        event: WireEvent,
        now_ms: u64,
        out: &mut Output,
    ) {
        match event {
            WireEvent::HeadersAcknowledged => self.prove(connection),
            WireEvent::ReplayAcknowledged => self.settle_replay(connection, now_ms),
            WireEvent::LivenessAcknowledged => self.mark_alive(connection),
            _ => {}
        }
        let Some(&id) = self.carried.get(&connection) else { return };
        self.last_activity_ms = now_ms;
        match event {
            WireEvent::Progress { sent } => self.progress(id, connection, sent),
            WireEvent::FinalHanded => self.final_handed(id, connection, now_ms, out),
            WireEvent::FinalAcknowledged => {
                self.settle_replay(connection, now_ms);
                self.final_acknowledged(id, connection, now_ms, out);
            }
            WireEvent::Reset => self.reset(id, connection, now_ms, out),
            WireEvent::Fin | WireEvent::NextRequest => {
                self.connection_done(id, connection);
                self.release_scopes(id, now_ms, out);
            }
            WireEvent::Lost { sent, acknowledged } => {
                self.connection_lost(connection, sent, acknowledged, now_ms, out);
            }
            WireEvent::Ended { sent } => self.connection_lost(connection, sent, false, now_ms, out),
            WireEvent::HeadersAcknowledged
            | WireEvent::ReplayAcknowledged
            | WireEvent::LivenessAcknowledged => {}
        }
    }

    /// A replay arrived at the peer's kernel: the gate opens once its connection closes or carries
    /// a next request, or after `gate_settle` (design section 6).
    fn settle_replay(&mut self, connection: ConnectionId, now_ms: u64) {
        let settle_ms = self.limits().gate_settle_ms;
        let Some(replay) = self.replays.get_mut(&connection) else { return };
        if replay.acknowledged {
            return;
        }
        replay.acknowledged = true;
        // What is on the standalone stream is nobody's answer: nothing can be overtaken by reading
        // it a little later, so it does not settle.
        if replay.settled || replay.stream == StreamId::STANDALONE {
            self.open_gate(connection);
        } else {
            self.timers.insert((now_ms + settle_ms, Timer::Replay(connection)));
        }
    }

    /// The stream whose current connection this is.
    pub(super) fn carried_by(&self, connection: ConnectionId) -> Option<StreamId> {
        let stream = self.streams.get(self.carried.get(&connection)?)?;
        stream.connection.filter(|current| current.id == connection).map(|_| stream.id)
    }

    pub(super) fn open_gate(&mut self, connection: ConnectionId) {
        self.replays.remove(&connection);
        self.review_due = true;
    }

    /// A twin's connection gave a sign of life.
    fn mark_alive(&mut self, connection: ConnectionId) {
        let Some(stream) = self.carried.get(&connection).and_then(|id| self.streams.get(id)) else {
            return;
        };
        for waiter in self.waiting.values_mut() {
            for call in &stream.calls {
                if waiter.asked.get(call) == Some(&connection) {
                    waiter.alive.insert(*call);
                    self.review_due = true;
                }
            }
        }
    }

    fn progress(&mut self, id: StreamId, connection: ConnectionId, sent: Seq) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.take(sent);
        }
        if self.lacks(Safeguard::ReplayAcknowledgement)
            && self.replays.get(&connection).is_some_and(|replay| sent >= replay.until)
        {
            self.open_gate(connection);
        }
    }

    /// The last event and the last chunk were handed over. A write proves nothing: `ending`.
    fn final_handed(
        &mut self,
        id: StreamId,
        connection: ConnectionId,
        now_ms: u64,
        out: &mut Output,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(attached) = stream.connection.filter(|c| c.id == connection) else { return };
        let Some(last) = stream.last else { return };
        if stream.state == StreamState::Ending {
            return;
        }
        stream.take(last);
        stream.ended_ms = Some(now_ms);
        stream.reset_may_come = attached.observed;
        if stream.state == StreamState::Live {
            self.move_stream(id, StreamState::Ending, now_ms, out);
        }
        self.changed_streams.insert(id);
        if self.lacks(Safeguard::Acknowledgement) {
            self.final_acknowledged(id, connection, now_ms, out);
        }
    }

    fn final_acknowledged(
        &mut self,
        id: StreamId,
        connection: ConnectionId,
        now_ms: u64,
        out: &mut Output,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.connection.is_none_or(|c| c.id != connection) {
            return;
        }
        stream.connection = None;
        if stream.state == StreamState::Ending {
            self.move_stream(id, StreamState::Presumed, now_ms, out);
        }
        if self.streams.get(&id).is_some_and(|stream| stream.reset_may_come) {
            let until_ms = now_ms + self.limits().reset_window_ms + 1;
            self.timers.insert((until_ms, Timer::Ended(connection)));
        } else {
            self.carried.remove(&connection);
        }
    }

    /// The `reset_window` of an ended connection is over: what it still says means nothing.
    pub(super) fn forget_ended(&mut self, connection: ConnectionId, now_ms: u64, out: &mut Output) {
        if self.carried_by(connection).is_some() {
            return;
        }
        let Some(id) = self.carried.remove(&connection) else { return };
        if let Some(stream) = self.streams.get_mut(&id).filter(|s| s.connection.is_none()) {
            stream.reset_may_come = false;
            self.changed_streams.insert(id);
            self.release_scopes(id, now_ms, out);
        }
    }

    /// A reset after the end: what the peer's kernel had acknowledged was not read.
    fn reset(&mut self, id: StreamId, connection: ConnectionId, now_ms: u64, out: &mut Output) {
        self.carried.remove(&connection);
        self.replays.remove(&connection);
        self.review_due = true;
        let window_ms = self.limits().reset_window_ms;
        let ignored = self.lacks(Safeguard::LateReset);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.connection.is_some_and(|c| c.id != connection) {
            // A newer connection carries it: the older one's end says nothing of that.
            return;
        }
        let soon = stream.since_end_ms(now_ms).is_some_and(|ms| ms <= window_ms);
        let counts = stream.reset_may_come && soon && !ignored;
        stream.reset_may_come = false;
        match stream.state {
            StreamState::Presumed if counts => self.doubt(id, now_ms, out),
            _ if stream.connection.is_some() => {
                self.lose_connection(id, Seq::ORIGIN, false, now_ms, out);
            }
            _ => {}
        }
    }

    /// The delivery of an ended stream is in doubt; its repeats are repeats.
    pub(super) fn doubt(&mut self, id: StreamId, now_ms: u64, out: &mut Output) {
        for call in self.streams.get(&id).map(|stream| stream.calls.clone()).unwrap_or_default() {
            self.mark_lost(call, now_ms);
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.scarred = true;
            stream.detached_since_ms = Some(now_ms);
        }
        self.move_stream(id, StreamState::Doubtful, now_ms, out);
    }

    /// FIN or a next request: no proof of delivery, but no reset can come any more, and a replay
    /// that had arrived need not settle longer.
    fn connection_done(&mut self, id: StreamId, connection: ConnectionId) {
        let arrived = self.replays.get_mut(&connection).map(|replay| {
            replay.settled = true;
            replay.acknowledged
        });
        if arrived == Some(true) {
            self.open_gate(connection);
        }
        self.review_due |= !self.waiting.is_empty();
        let attached = self.carried_by(connection).is_some();
        if !attached {
            self.carried.remove(&connection);
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if attached || stream.connection.is_none() {
            stream.reset_may_come = false;
            self.changed_streams.insert(id);
        }
    }

    /// A connection is gone: its stream lost it, unless a newer one has taken the stream over.
    fn connection_lost(
        &mut self,
        connection: ConnectionId,
        sent: Seq,
        acknowledged: bool,
        now_ms: u64,
        out: &mut Output,
    ) {
        if let Some(stream) = self.carried_by(connection) {
            self.lose_connection(stream, sent, acknowledged, now_ms, out);
        }
    }

    /// A stream lost its connection.
    pub(super) fn lose_connection(
        &mut self,
        id: StreamId,
        sent: Seq,
        acknowledged: bool,
        now_ms: u64,
        out: &mut Output,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.take(sent);
        let lost = stream.connection.take();
        stream.detached_since_ms = Some(now_ms);
        let (state, owes, standalone) = (stream.state, stream.owes, stream.is_standalone());
        self.changed_streams.insert(id);
        if let Some(connection) = lost {
            self.carried.remove(&connection.id);
            self.replays.remove(&connection.id);
            self.review_due = true;
            if state == StreamState::Held {
                return self.withdraw(connection.id, now_ms, out);
            }
        }
        if standalone {
            return;
        }
        match state {
            StreamState::Live => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.scarred = true;
                }
                let to = if owes { StreamState::Owed } else { StreamState::Abandoned };
                self.move_stream(id, to, now_ms, out);
            }
            StreamState::Ending if acknowledged => {
                // Its connection is gone: no reset can follow.
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.reset_may_come = false;
                }
                self.move_stream(id, StreamState::Presumed, now_ms, out);
            }
            StreamState::Ending => self.doubt(id, now_ms, out),
            _ => {}
        }
    }

    /// The gateway is about to stop: what waits is withdrawn, so that it may be sent again; then
    /// every stream ends cleanly and says when to come back. One whose last event is in the log
    /// ends with that.
    pub(super) fn handle_drain(&mut self, retry_ms: u64, now_ms: u64, out: &mut Output) {
        let waiting: Vec<_> = self.waiting.keys().copied().collect();
        for connection in waiting {
            self.withdraw(connection, now_ms, out);
        }
        for stream in self.streams.values().filter(|stream| stream.last.is_none()) {
            if let Some(connection) = stream.connection {
                let command = Command::Finish { retry_ms: Some(retry_ms) };
                out.effects.push(Effect::Command(connection.id, command));
            }
        }
    }
}
