//! From state to facts: what [`crate::policy::decide`] judges.

use super::Session;
use super::safeguard::Safeguard;
use super::waiting::Waiter;
use crate::id::{CallId, Digest32, StreamId};
use crate::input::Request;
use crate::ledger::{Call, Phase};
use crate::policy::{self, Decision, Original, Place, RequestFacts, SessionFacts, TokenFact};
use crate::settings::Delivery;
use crate::stream::{Release, StreamState};
use crate::token::{DedupRecord, Outcome};
use crate::tool::Class;

impl Session {
    /// Decides one request of a POST as things are now.
    pub(super) fn decide(&mut self, waiter: &Waiter, request: &Request, now_ms: u64) -> Decision {
        let facts = self.request_facts(waiter, request, now_ms);
        let originals = self.originals(waiter, request, facts.token, now_ms);
        let session = self.session_facts(&facts, &originals);
        let decision = policy::decide(&facts, &originals, &session);
        #[cfg(feature = "model-check")]
        self.judgements.push(super::Judgement {
            request: facts,
            originals,
            session,
            decision: decision.clone(),
        });
        decision
    }

    fn request_facts(&self, waiter: &Waiter, request: &Request, now_ms: u64) -> RequestFacts {
        let class = self.tools.classify(&request.message, &self.start.settings);
        RequestFacts {
            ungated: class == Class::Ungated,
            repeatable: class.is_repeatable(),
            token: self.token_fact(request),
            hold_is_over: waiter.hold_is_over(now_ms, self.limits()),
            repeat_wait_is_over: now_ms >= self.repeat_wait_ends_ms(waiter.arrived_ms, request),
        }
    }

    /// When an identical POST that came at `arrived_ms` has waited long enough for a reset.
    ///
    /// A POST overtakes the reset that its client sent before it by a way of the network; a reset
    /// follows the acknowledgement it belongs to at once. So the wait runs from the arrival, and
    /// half of it from the presumption, which row 14 may have waited for before.
    pub(super) fn repeat_wait_ends_ms(&self, arrived_ms: u64, request: &Request) -> u64 {
        let wait_ms = self.limits().repeat_wait_ms;
        (arrived_ms + wait_ms).max(self.presumed_since_ms(request) + wait_ms / 2)
    }

    /// When the newest presumed call with a request's params became so.
    fn presumed_since_ms(&self, request: &Request) -> u64 {
        let params = request.message.canonical_params_hash();
        let calls = self.ledger.with_params(&params).iter();
        let streams = calls.filter_map(|&id| self.streams.get(&self.ledger.get(id)?.stream?));
        let presumed = streams.filter(|stream| stream.state == StreamState::Presumed);
        presumed.filter_map(|stream| stream.settled_ms).max().unwrap_or(0)
    }

    fn token_fact(&self, request: &Request) -> TokenFact {
        let Some(token) = &request.token else { return TokenFact::Absent };
        if self.ledger.with_key(&token.key).is_some() {
            return TokenFact::Known;
        }
        match self.known_record(request).map(|record| &record.outcome) {
            Some(Outcome::Tombstone) => TokenFact::Forgotten,
            None => {
                // An instance that cannot see whether attempt 1 ran must refuse, never guess.
                let same_epoch = token.epoch == Some(self.start.ledger_epoch);
                if token.attempt > 1 && !same_epoch {
                    TokenFact::Forgotten
                } else {
                    TokenFact::Fresh
                }
            }
            Some(_) => TokenFact::Known,
        }
    }

    fn originals(
        &mut self,
        waiter: &Waiter,
        request: &Request,
        token: TokenFact,
        now_ms: u64,
    ) -> Vec<Original> {
        let params = request.message.canonical_params_hash();
        match &request.token {
            None => {
                self.forget_settled(&params, now_ms);
                let ids = self.ledger.with_params(&params);
                let calls = ids.iter().filter_map(|&id| self.ledger.get(id));
                let here = calls.map(|call| self.original(waiter, request, call, false, now_ms));
                let elsewhere = self.scope_record(request, now_ms);
                let forgotten = self.ledger.has_forgotten(&params, now_ms);
                here.chain(elsewhere.and_then(|record| foreign(record, false, &params)))
                    .chain(forgotten.then(|| unreachable_call(Phase::Unknown, false, true)))
                    .collect()
            }
            Some(key) => match self.ledger.with_key(&key.key).and_then(|id| self.ledger.get(id)) {
                Some(call) => {
                    let mut original = self.original(waiter, request, call, true, now_ms);
                    original.same_params = call.params == params;
                    vec![original]
                }
                None => {
                    let record = self.known_record(request);
                    let meant =
                        |r: &&DedupRecord| token != TokenFact::Forgotten || r.params != params;
                    let original = record.filter(meant).and_then(|r| foreign(r, true, &params));
                    original.into_iter().collect()
                }
            },
        }
    }

    fn original(
        &self,
        waiter: &Waiter,
        request: &Request,
        call: &Call,
        by_token: bool,
        now_ms: u64,
    ) -> Original {
        let limits = self.limits();
        let stream = call.stream.and_then(|id| self.streams.get(&id));
        let state = stream.map(|stream| stream.state);
        let resend = call.body == waiter.body
            && waiter.requests.len() == 1
            && request.message.id_key().as_ref() == Some(&call.request_key)
            && stream.is_some_and(|stream| stream.calls.len() == 1);
        let age = |at: Option<u64>| at.map(|at| now_ms.saturating_sub(at));
        let fresh_ms = limits.owed_grace_ms.unwrap_or(limits.hold_max_ms);
        let settled = matches!(state, Some(StreamState::Presumed | StreamState::Proved));
        let connection = stream.and_then(|stream| stream.connection);
        Original {
            call: Some(call.id),
            by_token,
            same_params: true,
            in_repeat_window: self.is_in_repeat_window(call, state, now_ms),
            is_resend: resend,
            phase: call.phase,
            place: state.map_or(Place::Json, Place::Stream),
            is_unseen: stream.is_some_and(|stream| stream.cursors.is_unseen()),
            is_scarred: stream.is_some_and(|stream| stream.scarred) && !self.lacks(Safeguard::Scar),
            is_fresh: settled
                && stream.and_then(|s| age(s.settled_ms)).is_some_and(|ms| ms < fresh_ms),
            reset_may_come: state == Some(StreamState::Presumed)
                && stream.is_some_and(|stream| {
                    let since_end_ms = stream.since_end_ms(now_ms);
                    let soon = since_end_ms.is_some_and(|ms| ms <= limits.reset_window_ms);
                    stream.reset_may_come && soon
                }),
            in_twin_window: waiter.arrived_ms.saturating_sub(call.claimed_ms)
                < limits.twin_window_ms,
            is_alive: waiter.alive.contains(&call.id)
                || self.lacks(Safeguard::EveryTwin) && !waiter.alive.is_empty()
                || connection.is_some_and(|connection| !connection.observed),
        }
    }

    pub(super) fn is_in_repeat_window(
        &self,
        call: &Call,
        state: Option<StreamState>,
        now_ms: u64,
    ) -> bool {
        self.repeat_window_end_ms(call, state).is_none_or(|end_ms| now_ms < end_ms)
    }

    /// When the same params make a repeat of this call no longer; `None`: not as things stand.
    pub(super) fn repeat_window_end_ms(
        &self,
        call: &Call,
        state: Option<StreamState>,
    ) -> Option<u64> {
        let held_open = state.is_some_and(|state| {
            state.is_attached() || matches!(state, StreamState::Owed | StreamState::Doubtful)
        });
        if held_open || call.phase.is_in_flight() {
            return None;
        }
        let proved_only = self.start.settings.delivery == Delivery::Proved;
        let presumed = state == Some(StreamState::Presumed);
        // Under `delivery = "proved"` presumed is doubtful: its window starts when it settled.
        let settled_ms = (proved_only && presumed)
            .then(|| self.streams.get(&call.stream?)?.settled_ms)
            .flatten();
        let call_ms = match self.lacks(Safeguard::LaterStart) {
            true => call.lost_ms.or(call.ended_ms).unwrap_or(call.claimed_ms),
            false => call.window_start_ms(),
        };
        let start_ms = settled_ms.unwrap_or(0).max(call_ms);
        Some(start_ms + self.limits().repeat_window_ms)
    }

    fn session_facts(&self, request: &RequestFacts, originals: &[Original]) -> SessionFacts {
        let replaced = |id: CallId| {
            originals.iter().any(|o| o.call == Some(id) && o.is_superseded_by(request))
        };
        let resumes = self.presented_cursor || !self.never_resumes;
        let owed = resumes
            && self.owed.iter().filter_map(|id| self.streams.get(id)).any(|stream| {
                stream.calls.is_empty() || !stream.calls.iter().all(|&call| replaced(call))
            });
        SessionFacts {
            owed,
            replay: !self.replays.is_empty(),
            state_lost: self.upstream.lost_untold,
            on_repeat: self.start.settings.on_repeat,
            delivery: self.start.settings.delivery,
            #[cfg(feature = "model-check")]
            ablation: self.start.settings.ablation,
        }
    }

    /// Drops calls from the lookup by params that decide no row any more, so that a tool that is
    /// polled with the same arguments stays cheap. A resume brings them back.
    fn forget_settled(&mut self, params: &Digest32, now_ms: u64) {
        let limits = self.limits();
        let quiet_ms =
            limits.reset_window_ms.max(limits.owed_grace_ms.unwrap_or(limits.hold_max_ms));
        let proved_only = self.start.settings.delivery == Delivery::Proved;
        let done = |call: &Call| {
            let Some(stream) = call.stream.and_then(|id| self.streams.get(&id)) else {
                return false;
            };
            let settled = match stream.state {
                StreamState::Presumed if proved_only => false,
                StreamState::Proved | StreamState::Presumed => call.phase == Phase::Finished,
                StreamState::Released(Release::Cancelled) => false,
                StreamState::Released(_) => true,
                _ => false,
            };
            let since = stream.settled_ms.map_or(0, |at| now_ms.saturating_sub(at));
            // No scar and no reset to come: neither row 13 nor row 15 can be meant.
            let unsuspected = !stream.scarred && !stream.reset_may_come;
            settled && (since > quiet_ms || unsuspected) && stream.connection.is_none()
        };
        let ids = self.ledger.with_params(params);
        let calls = ids.iter().filter_map(|&id| self.ledger.get(id));
        let gone: Vec<_> = calls.filter(|call| done(call)).map(|call| call.id).collect();
        for id in gone {
            self.ledger.forget_params(*params, id);
        }
    }

    /// A resumed stream's calls are originals again: who resumes may also retry.
    pub(super) fn remember_params(&mut self, stream: StreamId) {
        let calls = self.streams.get(&stream).map(|stream| stream.calls.clone());
        for id in calls.unwrap_or_default() {
            let Some(call) = self.ledger.get(id) else { continue };
            if call.stream == Some(stream) && call.settled_by.is_none() {
                self.ledger.remember_params(call.params, id);
            }
        }
    }
}

/// A call that lives in another session, or was pruned from this one, as its row tells it. Its
/// stream is not seen from here: it is a repeat's original for as long as the row says so.
fn foreign(record: &DedupRecord, by_token: bool, params: &Digest32) -> Option<Original> {
    let phase = match &record.outcome {
        Outcome::Running => Phase::Sent,
        Outcome::Finished { .. } => Phase::Finished,
        Outcome::Cancelled => Phase::Cancelled { result: false },
        Outcome::Unknown | Outcome::Tombstone => Phase::Unknown,
        Outcome::Freed => return None,
    };
    let same_params = record.params == *params;
    (by_token || same_params).then(|| unreachable_call(phase, by_token, same_params))
}

/// A call of which only its phase can be told: it lives in another session, or was forgotten.
fn unreachable_call(phase: Phase, by_token: bool, same_params: bool) -> Original {
    Original {
        call: None,
        by_token,
        same_params,
        in_repeat_window: true,
        is_resend: false,
        phase,
        place: Place::Elsewhere,
        is_unseen: false,
        is_scarred: false,
        is_fresh: false,
        reset_may_come: false,
        in_twin_window: false,
        is_alive: false,
    }
}
