//! Room in a session's log: what goes for what, and in which order (design sections 3 and 9).
//!
//! Beyond the quota goes, in this order: progress of answers that arrived, progress of streams that
//! were given up, answers that arrived, the standalone stream, and what a running stream's
//! connection took long ago. What is still owed stays, up to the hard limit. There, progress goes
//! before answers, whatever brings more loses its own before others lose theirs, and every running
//! call finds room for its answer, which is kept free for it.

use super::Session;
use super::retention::is_settled;
use super::timer::Timer;
use super::waiting::Waiter;
use crate::effect::{EventKind, Output};
use crate::id::{CallId, StreamId};
use crate::policy::{Decision, Verdict};
use crate::rejection::Reason;
use crate::stream::{Stream, StreamState};

/// How often room is looked for while a session's log is beyond its quota.
const QUOTA_INTERVAL_MS: u64 = 100;

/// What room is made for. A later one may take what an earlier one may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// What is lost to nobody if there is none: a copy, or what nobody is owed.
    Unowed,
    /// A call that has not run.
    Call,
    /// Progress of a running call, or a request of the server.
    Progress,
    /// The answer of a call that ran.
    Answer,
}

/// Which streams of an upstream are not to be read on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BackPressure {
    /// None.
    #[default]
    None,
    /// Those of these calls.
    Calls(Vec<CallId>),
    /// All.
    All,
}

impl BackPressure {
    /// True if it is on the stream of a call or, for `None`, on one that belongs to none.
    pub fn is_on(&self, call: Option<CallId>) -> bool {
        match self {
            Self::None => false,
            Self::Calls(calls) => call.is_some_and(|call| calls.contains(&call)),
            Self::All => true,
        }
    }
}

/// What may go at the hard limit.
#[derive(Clone, Copy, Debug)]
enum Sacrifice {
    /// Progress of answers that the peers' kernels have. Should a reset void one yet, its client
    /// still finds the response, behind a gap.
    PresumedProgress,
    /// Progress that running streams' connections took.
    TakenProgress,
    /// Answers that nobody came back for, once their repeats are new calls: or they would refuse
    /// every call until their retention is over. That they were there is kept.
    UnclaimedAnswers,
    /// The progress of the largest stream, then of the next. Whoever reads it is told the gap; its
    /// call goes on, and its answer is kept.
    LargestProgress,
    /// Answers that the peers' kernels have.
    PresumedAnswers,
    /// Answers that their clients gave up for now.
    GivenUpAnswers,
}

/// What goes for which purpose, in this order.
const LADDER: [(Purpose, Sacrifice); 6] = [
    (Purpose::Unowed, Sacrifice::PresumedProgress),
    (Purpose::Call, Sacrifice::TakenProgress),
    (Purpose::Call, Sacrifice::UnclaimedAnswers),
    (Purpose::Progress, Sacrifice::LargestProgress),
    (Purpose::Answer, Sacrifice::PresumedAnswers),
    (Purpose::Answer, Sacrifice::GivenUpAnswers),
];

/// What something takes in the log of its session, and in rows beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed {
    /// Bytes of payload in the log.
    log: u64,
    /// Bytes of payload in rows; only the shared quotas count them.
    rows: u64,
    /// Bytes that stay free for the answers of running calls.
    reserved: u64,
}

impl Needed {
    /// Room in the log alone.
    pub(super) fn log(bytes: u64) -> Self {
        Self::with_rows(bytes, 0)
    }

    /// Room in the log and in rows.
    pub(super) fn with_rows(log: u64, rows: u64) -> Self {
        Self { log, rows, reserved: 0 }
    }
}

/// Streams whose answers nobody came back for.
fn is_given_up(stream: &Stream) -> bool {
    let given_up = matches!(stream.state, StreamState::Abandoned | StreamState::Doubtful);
    given_up && stream.connection.is_none() && !stream.is_standalone()
}

impl Session {
    /// Makes room for something below the hard limit; false if there is none. The room of one call
    /// is not kept free for others' sake: `of` is the call whose answer it is.
    pub(super) fn fit(
        &mut self,
        purpose: Purpose,
        mut needed: Needed,
        of: Option<CallId>,
        now_ms: u64,
        out: &mut Output,
    ) -> bool {
        // Mostly there is room, even if every running call had some kept free.
        needed.reserved = self.ledger.running_count() as u64 * self.answer_reserve();
        if self.fits(self.limits().session_log_bytes_max, needed) {
            return true;
        }
        needed.reserved = self.reserved(of);
        self.fit_below(self.limits().session_log_hard_bytes_max, purpose, needed, now_ms, out)
    }

    /// What is kept free for the answer of one running call.
    fn answer_reserve(&self) -> u64 {
        let limits = self.limits();
        limits.claim_room_bytes_min.min(limits.session_log_bytes_max / 2)
    }

    /// What is kept free for the answers of all running calls but one.
    fn reserved(&self, but: Option<CallId>) -> u64 {
        let running = self.ledger.running().filter(|call| call.stream.is_some());
        running.filter(|call| Some(call.id) != but).count() as u64 * self.answer_reserve()
    }

    fn fit_below(
        &mut self,
        bytes_max: u64,
        purpose: Purpose,
        needed: Needed,
        now_ms: u64,
        out: &mut Output,
    ) -> bool {
        // Beyond the quota it was just looked for, and will be again soon: not for each event.
        let is_looked_for = self.over_quota_since_ms.is_some();
        let must_look = !self.fits(bytes_max, needed);
        if must_look || !is_looked_for && !self.fits_quota(needed) {
            self.evict_settled(needed, now_ms, out);
        }
        let fits = |session: &Self| session.fits(bytes_max, needed);
        for (least, sacrifice) in LADDER {
            if fits(self) || purpose < least {
                break;
            }
            self.give_up(sacrifice, fits, now_ms, out);
        }
        fits(self)
    }

    fn give_up(
        &mut self,
        sacrifice: Sacrifice,
        fits: impl Fn(&Self) -> bool,
        now_ms: u64,
        out: &mut Output,
    ) {
        let presumed = |stream: &Stream| is_settled(stream, 0, now_ms);
        let given_up = |stream: &Stream| is_given_up(stream) && !self.is_running(stream);
        let unclaimed = |stream: &Stream| given_up(stream) && !self.refuses_repeats(stream, now_ms);
        let (ids, responses_too) = match sacrifice {
            Sacrifice::TakenProgress => return self.evict_taken(fits, 0, out),
            Sacrifice::PresumedProgress => (self.ids(presumed), false),
            Sacrifice::LargestProgress => (self.by_progress(), false),
            Sacrifice::UnclaimedAnswers => (self.ids(unclaimed), true),
            Sacrifice::PresumedAnswers => (self.ids(presumed), true),
            Sacrifice::GivenUpAnswers => (self.ids(given_up), true),
        };
        self.evict_until(fits, ids, responses_too, out);
    }

    fn fits(&self, bytes_max: u64, needed: Needed) -> bool {
        let Needed { log, rows, reserved } = needed;
        let log_bytes = self.log_bytes.saturating_add(log).saturating_add(reserved);
        log_bytes <= bytes_max && log_bytes.saturating_add(rows) <= self.room_max_bytes
    }

    /// The quota is about what is there: nothing is kept free below it.
    fn fits_quota(&self, needed: Needed) -> bool {
        let beyond = self.log_bytes.saturating_add(needed.log);
        beyond <= self.limits().session_log_bytes_max && self.fits(u64::MAX, needed)
    }

    /// Call streams that are something, oldest first.
    fn ids(&self, is_it: impl Fn(&Stream) -> bool) -> Vec<StreamId> {
        let calls = self.streams.values().filter(|stream| !stream.is_standalone());
        calls.filter(|stream| is_it(stream)).map(|stream| stream.id).collect()
    }

    fn evict_until(
        &mut self,
        fits: impl Fn(&Self) -> bool,
        ids: impl IntoIterator<Item = StreamId>,
        responses_too: bool,
        out: &mut Output,
    ) {
        for id in ids {
            if fits(self) {
                return;
            }
            self.evict_events(id, responses_too, out);
        }
    }

    /// Drops events of streams whose clients have their answers, oldest first; then of streams
    /// that were given up, whose responses stay; then what nobody is owed; then what connections
    /// took, but for what they may still hold in transit.
    fn evict_settled(&mut self, needed: Needed, now_ms: u64, out: &mut Output) {
        let fits = |session: &Self| session.fits_quota(needed);
        let arrived = self.arrived(now_ms);
        let given_up = self.ids(is_given_up);
        self.evict_until(fits, arrived.iter().copied().chain(given_up), false, out);
        self.evict_until(fits, arrived, true, out);
        self.evict_until(fits, [StreamId::STANDALONE], false, out);
        self.evict_taken(fits, self.in_transit_bytes(), out);
    }

    /// Streams whose clients have their answers, oldest first.
    fn arrived(&self, now_ms: u64) -> Vec<StreamId> {
        let quiet_ms = self.limits().reset_window_ms;
        self.ids(|stream| {
            // No reset matters to what the client itself has confirmed.
            let proved = stream.state == StreamState::Proved;
            is_settled(stream, if proved { 0 } else { quiet_ms }, now_ms)
        })
    }

    /// Drops the oldest of the progress that running streams' connections took; all but `kept`
    /// bytes of each stream, largest stream first.
    fn evict_taken(&mut self, fits: impl Fn(&Self) -> bool, kept_bytes: u64, out: &mut Output) {
        if fits(self) {
            return;
        }
        for id in self.by_progress() {
            while !fits(self) {
                let Some(stream) = self.streams.get(&id) else { break };
                let taken = stream.taken;
                let beyond = stream.connection.is_some() && stream.progress_bytes() > kept_bytes;
                if !beyond || !self.evict_segment(id, taken, out) {
                    break;
                }
            }
        }
    }

    /// Call streams, those with most progress in the log first.
    fn by_progress(&self) -> Vec<StreamId> {
        let mut ids = self.ids(|_| true);
        ids.sort_by_key(|id| {
            std::cmp::Reverse(self.streams.get(id).map_or(0, Stream::progress_bytes))
        });
        ids
    }

    /// An event of progress that finds no room: only that it was there is kept, and told as a gap.
    pub(super) fn drop_progress(&mut self, stream: StreamId, out: &mut Output) {
        let seq = self.append(stream, EventKind::Notification, false, bytes::Bytes::new(), out);
        while self.evict_segment(stream, seq, out) {}
    }

    /// True while its log is more than half of its quota: it should know what connections took.
    pub fn is_filling(&self) -> bool {
        self.log_bytes > self.limits().session_log_bytes_max / 2
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

    /// Which streams of its upstream should not be read on, if they can wait: while its log is
    /// beyond the quota, those of calls whose clients are far behind, or else all. Soon clients
    /// read, and what they read settles (design section 3).
    pub fn back_pressure(&self, now_ms: u64) -> BackPressure {
        let max_ms = self.limits().back_pressure_max_ms;
        if self.over_quota_since_ms.is_none_or(|since_ms| now_ms >= since_ms + max_ms) {
            return BackPressure::None;
        }
        let far_bytes = self.in_transit_bytes();
        let behind = self.ledger.running().filter(|call| {
            let stream = call.stream.and_then(|id| self.streams.get(&id));
            stream.is_some_and(|stream| stream.progress_bytes() > far_bytes)
        });
        match behind.map(|call| call.id).collect::<Vec<_>>() {
            behind if behind.is_empty() => BackPressure::All,
            behind => BackPressure::Calls(behind),
        }
    }

    /// What a stream keeps of the progress that its connection took.
    fn in_transit_bytes(&self) -> u64 {
        self.limits().session_log_bytes_max / 4
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
        let (quota, hard_bytes_max) =
            (limits.session_log_bytes_max, limits.session_log_hard_bytes_max);
        let reserved = self.reserved(None);
        let calls_bytes_max = hard_bytes_max.saturating_sub(quota).max(quota) + reserved;
        let bytes_max = calls_bytes_max.min(hard_bytes_max);
        let (mut records, mut claims) = (0, 0);
        for (index, decision) in decisions.iter_mut().enumerate() {
            match decision.verdict {
                Verdict::Claim { .. } if !self.is_json(waiter, index, decision) => {
                    let wanted = claims + self.answer_reserve();
                    let needed = Needed { log: records + wanted, rows: 0, reserved };
                    if self.fit_below(bytes_max, Purpose::Call, needed, now_ms, out) {
                        claims = wanted;
                    } else {
                        decision.verdict = Verdict::Reject(Reason::UpstreamUnavailable);
                        decision.original = None;
                    }
                }
                Verdict::Record(Some(_)) | Verdict::Collect(_) => {
                    let bytes = records + waiter.loaded_bytes(index);
                    let needed = Needed::log(bytes + claims);
                    if self.fit(Purpose::Unowed, needed, None, now_ms, out) {
                        records = bytes;
                    } else {
                        decision.verdict = Verdict::Reject(Reason::StreamNotDrained);
                    }
                }
                _ => {}
            }
        }
    }
}
