//! A session after the process that kept it is gone: what its log and ledger still tell, and what
//! nobody knows any more (design sections 3 to 5).

use std::collections::{BTreeMap, BTreeSet};

use super::row::SessionRow;
use super::safeguard::Safeguard;
use super::setting::KeptSettings;
use super::{Session, SessionStart};
use crate::effect::{EventKind, Output};
use crate::id::{Seq, StreamId};
use crate::input::{FromUpstream, Input};
use crate::ledger::{Call, Ledger};
use crate::rejection::{Reason, Rejection};
use crate::stream::{Release, Segment, Stream, StreamState};

/// Everything that a store has of a session.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its row.
    pub row: SessionRow,
    /// Its calls, oldest first.
    pub calls: Vec<Call>,
    /// Its streams, as their rows were last written.
    pub streams: Vec<Stream>,
    /// How far the log of each stream goes.
    pub tails: Vec<Tail>,
    /// The last event ever appended.
    pub last_seq: Seq,
}

impl Stored {
    /// The latest moment that it tells of: no clock that goes on with it may show less (design
    /// section 4, "monotone per session").
    pub fn latest_ms(&self) -> u64 {
        let calls = self.calls.iter().flat_map(|call| {
            [Some(call.claimed_ms), Some(call.heard_ms), call.ended_ms, call.lost_ms]
        });
        let streams = self.streams.iter().flat_map(|stream| {
            [Some(stream.opened_ms), stream.ended_ms, stream.settled_ms, stream.detached_since_ms]
        });
        calls.chain(streams).flatten().max().unwrap_or_default()
    }
}

/// How far the log of one stream goes: its row is not written again for every event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The stream.
    pub stream: StreamId,
    /// The last event that was ever appended to it.
    pub produced: Seq,
    /// Payload bytes of its events that are kept.
    pub bytes: u64,
    /// Those of them that are responses.
    pub response_bytes: u64,
}

impl Session {
    /// The session as it stands in the store, and the inputs that come first, each committed
    /// before the next: until they are handled, nothing of it may be used.
    ///
    /// `start` is as it was, but for `settings`, which may be others.
    pub fn restart(start: SessionStart, stored: Stored, now_ms: u64) -> (Self, Vec<Input>) {
        let Stored { row, calls, streams, tails, last_seq } = stored;
        let mut session = Self::new(start, now_ms);
        session.reserved = row.reserved;
        session.last_seq = last_seq.max(row.reserved.seq);
        session.lost_through = session.last_seq;
        session.last_stream = row.reserved.stream;
        session.last_server_request = row.reserved.server_request;
        session.presented_cursor = row.presented_cursor;
        session.never_resumes = row.never_resumes;
        session.tools = row.tools;
        session.upstream.initialized = row.initialized;
        session.upstream.continuation = row.continuation;
        let is_stateless = session.start.settings.upstream_is_stateless;
        session.upstream.lost_untold = row.lost_untold && !is_stateless;
        let json_depth_max = session.limits().json_depth_max;
        session.upstream.settings = KeptSettings::restored(row.restore, json_depth_max);
        session.ledger = Ledger::starting_after(row.reserved.call);
        let max = session.limits().forgotten_calls_max;
        for (params, until_ms) in row.forgotten {
            session.ledger.remember_forgotten(params, until_ms, now_ms, max);
        }
        let tails: BTreeMap<_, _> = tails.into_iter().map(|tail| (tail.stream, tail)).collect();
        session.streams.extend(streams.into_iter().map(|stream| (stream.id, stream)));
        for stream in session.streams.values_mut() {
            stream.follow(tails.get(&stream.id));
            session.last_stream = session.last_stream.max(stream.id);
            session.log_bytes += stream.bytes;
        }
        for call in calls {
            if call.phase.is_in_flight() && session.lacks(Safeguard::UnknownAfterRestart) {
                continue;
            }
            let (id, params, settled) = (call.id, call.params, call.settled_by.is_some());
            session.ledger.insert(call);
            if settled {
                session.ledger.forget_params(params, id);
            }
        }
        session.restore_requests(row.open_requests, now_ms);
        let lost = session.ledger.running().filter(|call| !session.goes_on(call));
        let lost = lost.map(|call| FromUpstream::Lost(call.id));
        let closed = session.upstream.continuation.is_none().then_some(FromUpstream::Closed);
        let upstream: Vec<_> = lost.chain(closed).map(Input::Upstream).collect();
        (session, [Input::Restarted].into_iter().chain(upstream).collect())
    }

    /// No connection outlived the process, and what an end was worth is not known any more.
    pub(super) fn handle_restarted(&mut self, now_ms: u64, out: &mut Output) {
        let ids: BTreeSet<_> = self.streams.keys().copied().collect();
        for id in ids {
            self.lose_to_restart(id, now_ms, out);
        }
        self.continue_upstream(now_ms, out);
    }

    fn lose_to_restart(&mut self, id: StreamId, now_ms: u64, out: &mut Output) {
        // A restart counts as a reset for as long as a client may wait before it comes back.
        let limits = self.limits();
        let window_ms = limits.owed_grace_ms.unwrap_or(0).max(limits.reset_window_ms);
        let is_reset = !self.lacks(Safeguard::DoubtAfterRestart);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.connection = None;
        stream.deadline_ms = None;
        // While nobody could come back, no time passed.
        stream.detached_since_ms = Some(now_ms);
        stream.detached_before_ms = 0;
        self.changed_streams.insert(id);
        if stream.is_standalone() {
            return;
        }
        let (state, owes) = (stream.state, stream.owes);
        let just_ended = stream.since_end_ms(now_ms).is_some_and(|ms| ms <= window_ms);
        let is_doubtful = std::mem::take(&mut stream.reset_may_come) && just_ended;
        match state {
            StreamState::Held => self.withdraw_lost(id, now_ms, out),
            StreamState::Live => {
                stream.scarred = true;
                // What had left was not written down: any of it may have, so a re-send is none.
                stream.cursors.send(stream.cursors.produced);
                let to = if owes { StreamState::Owed } else { StreamState::Abandoned };
                self.move_stream(id, to, now_ms, out);
            }
            StreamState::Ending => self.doubt(id, now_ms, out),
            StreamState::Presumed if is_doubtful && is_reset => self.doubt(id, now_ms, out),
            StreamState::Owed => {
                self.owed.insert(id);
                self.arm_stream(id, now_ms);
            }
            StreamState::Doubtful => self.arm_stream(id, now_ms),
            StreamState::Presumed => self.release_scopes(id, now_ms, out),
            StreamState::Abandoned | StreamState::Proved | StreamState::Released(_) => {}
        }
    }

    /// The POST that waited on a stream is gone with the process: whoever has the stream's id is
    /// told that nothing ran.
    fn withdraw_lost(&mut self, id: StreamId, now_ms: u64, out: &mut Output) {
        let retry_after_ms = self.limits().retry_ms;
        let Some(stream) = self.streams.get(&id) else { return };
        let request_ids = stream.request_ids.clone();
        let count = request_ids.len();
        for (index, request_id) in request_ids.into_iter().enumerate() {
            let rejection = Rejection {
                reason: Reason::Withdrawn,
                request_id,
                hint: None,
                send_again: true,
                retry_after_ms,
                original_ended_ms: None,
            };
            self.append(id, EventKind::Response, index + 1 == count, rejection.body(), out);
        }
        self.move_stream(id, StreamState::Released(Release::NotRun), now_ms, out);
    }
}

impl Stream {
    /// Takes over what its log tells: the row may be older.
    fn follow(&mut self, tail: Option<&Tail>) {
        let (bytes, response_bytes) = tail.map_or((0, 0), |tail| (tail.bytes, tail.response_bytes));
        if let Some(tail) = tail {
            self.cursors.produced = self.cursors.produced.max(tail.produced);
        }
        self.bytes = bytes;
        self.response_bytes = response_bytes;
        self.segments.clear();
        if self.progress_bytes() > 0 {
            let through = self.cursors.produced;
            self.segments.push_back(Segment { through, bytes: self.progress_bytes() });
        }
    }
}
