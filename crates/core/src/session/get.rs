//! A GET: attach, resume, or say that there is nothing to resume (design section 6).

use bytes::Bytes;

use super::timer::Timer;
use super::{Replay, Session};
use crate::effect::{Attach, Command, Effect, Output, gap_comment};
use crate::id::{ConnectionId, EventId, Seq, StreamId};
use crate::input::{Get, GetCursor};
use crate::rejection::LostAnswer;
use crate::stream::{Connection, Release, Stream, StreamState};

impl Session {
    pub(super) fn handle_get(&mut self, get: Get, now_ms: u64, out: &mut Output) {
        self.last_activity_ms = now_ms;
        let connection = Connection { id: get.connection, observed: get.observed };
        match get.cursor {
            GetCursor::None => self.attach_standalone(connection, now_ms, out),
            GetCursor::Malformed => out.effects.push(Effect::NotResumable(connection.id)),
            GetCursor::At(cursor) => self.resume_at(cursor, connection, now_ms, out),
        }
    }

    /// A GET without cursor: the standalone stream, after what was sent before.
    fn attach_standalone(&mut self, connection: Connection, now_ms: u64, out: &mut Output) {
        let stream = StreamId::STANDALONE;
        self.fence(stream, out);
        let after = self.streams[&stream].cursors.sent;
        self.attach(stream, connection, after, now_ms);
        let prime = self.start.asked.primes().then(|| self.event_id(stream, after));
        out.effects.push(Effect::Open(Attach {
            connection: connection.id,
            stream,
            after,
            prime,
            replay_until: None,
            skip: self.answered_after(stream, after),
            gap: None,
            last_word: None,
            held: false,
        }));
    }

    /// The ladder of design section 6; the first that matches answers.
    fn resume_at(
        &mut self,
        cursor: EventId,
        connection: Connection,
        now_ms: u64,
        out: &mut Output,
    ) {
        let cursor = self.kept_part(cursor);
        let Some(stream) = self.known(cursor) else {
            return out.effects.push(Effect::NotResumable(connection.id));
        };
        let cancelled = stream.state == StreamState::Released(Release::Cancelled);
        let is_last = stream.last.is_some_and(|last| cursor.seq >= last);
        if stream.state == StreamState::Held {
            // The client left its held POST and asks what became of it: it is withdrawn.
            if let Some(held) = stream.connection {
                self.withdraw(held.id, now_ms, out);
            }
        }
        self.present_cursor();
        self.acknowledge(cursor.stream, cursor.seq, now_ms, out);
        if is_last || cancelled {
            return out.effects.push(Effect::NotResumable(connection.id));
        }
        self.resume(cursor.stream, connection, cursor.seq, false, now_ms, out);
    }

    /// The stream of a cursor that may name one of its events.
    pub(super) fn known(&self, cursor: EventId) -> Option<&Stream> {
        let stream = self.streams.get(&cursor.stream)?;
        let is_ours = cursor.epoch == self.start.epoch && cursor.seq <= stream.cursors.produced;
        is_ours.then_some(stream)
    }

    /// A cursor beyond the end of its stream names an event that was lost together with a process:
    /// progress, since results are durable before they leave. Its client has read it; nothing that
    /// is still there is behind it.
    pub(super) fn kept_part(&self, cursor: EventId) -> EventId {
        let produced = self.streams.get(&cursor.stream).map(|stream| stream.cursors.produced);
        match produced {
            Some(produced) if cursor.seq <= self.lost_through => {
                EventId { seq: cursor.seq.min(produced), ..cursor }
            }
            _ => cursor,
        }
    }

    /// Attaches a connection to a stream at a cursor: replay, then live.
    pub(super) fn resume(
        &mut self,
        id: StreamId,
        connection: Connection,
        after: Seq,
        by_post: bool,
        now_ms: u64,
        out: &mut Output,
    ) {
        self.fence(id, out);
        // What earlier connections of the stream still say is about them, not about this one.
        self.carried.retain(|_, carried| *carried != id);
        self.replays.retain(|_, replay| replay.stream != id);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.is_standalone() {
            stream.scarred = true;
        }
        // A late result may stand behind the end: nobody is sent that.
        let produced = stream.last.unwrap_or(stream.cursors.produced);
        let (evicted, emptied) = (stream.evicted, stream.emptied);
        let request_ids = stream.request_ids.clone();
        // Who confirmed the end and reads again is owed nothing.
        let resumable = !matches!(
            stream.state,
            StreamState::Released(_) | StreamState::Held | StreamState::Proved
        );
        self.refuse_evicted_requests(id, after, out);
        self.remember_params(id);
        self.attach(id, connection, after, now_ms);
        if resumable {
            self.move_stream(id, StreamState::Live, now_ms, out);
            self.reopen_scopes(id, now_ms, out);
        }
        let replay_until = (produced > after).then(|| self.event_id(id, produced));
        if replay_until.is_some() {
            self.close_gate(connection.id, id, produced, now_ms);
        }
        let gap = (after < evicted).then(|| gap_comment(self.event_id(id, evicted)));
        let lost = emptied.then(|| expired(&request_ids)).flatten();
        let primes = !by_post || self.start.asked.primes();
        out.effects.push(Effect::Open(Attach {
            connection: connection.id,
            stream: id,
            after,
            prime: primes.then(|| self.event_id(id, after)),
            replay_until,
            skip: self.answered_after(id, after),
            gap,
            last_word: lost,
            held: false,
        }));
    }

    /// Closes the gate for a replay up to a high-water mark (design section 6, "Replay").
    fn close_gate(&mut self, connection: ConnectionId, stream: StreamId, until: Seq, now_ms: u64) {
        let replay = Replay { stream, until, acknowledged: false, settled: false };
        self.replays.insert(connection, replay);
        let at_ms = now_ms + self.limits().replay_max_ms;
        self.timers.insert((at_ms, Timer::Replay(connection)));
    }

    /// Records that a connection carries a stream from behind a cursor.
    pub(super) fn attach(&mut self, id: StreamId, connection: Connection, after: Seq, now_ms: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.detached_before_ms = stream.detached_ms(now_ms);
        stream.detached_since_ms = None;
        stream.connection = Some(connection);
        stream.taken = after;
        stream.reset_may_come = false;
        self.carried.insert(connection.id, id);
        self.changed_streams.insert(id);
    }

    /// Newest connection wins: the older one is told to stay away for a while, and ended.
    fn fence(&mut self, id: StreamId, out: &mut Output) {
        let retry_ms = self.limits().fenced_retry_ms;
        let Some(old) = self.streams.get_mut(&id).and_then(|stream| stream.connection.take())
        else {
            return;
        };
        self.carried.remove(&old.id);
        self.replays.remove(&old.id);
        self.review_due = true;
        out.effects.push(Effect::Command(old.id, Command::Fence { retry_ms }));
    }

    /// Server requests after a cursor that were answered already: never asked twice.
    fn answered_after(&self, stream: StreamId, after: Seq) -> Vec<Seq> {
        let requests = self.server_requests.values();
        requests
            .filter(|request| request.answered && request.stream == stream && request.seq > after)
            .map(|request| request.seq)
            .collect()
    }
}

/// The last word of a stream whose answers are no longer kept: one error for each request, under
/// the id that the client of this stream sent, as a batch for several.
fn expired(request_ids: &[Bytes]) -> Option<Bytes> {
    let errors: Vec<_> = request_ids.iter().map(|id| LostAnswer::Expired.body(id)).collect();
    match &errors[..] {
        [] => None,
        [error] => Some(error.clone()),
        errors => Some([&b"["[..], &errors.join(&b","[..]), b"]"].concat().into()),
    }
}
