//! A POST with requests: decide each, then act on all of them together (design section 5).

use super::Session;
use super::safeguard::{self, Safeguard};
use super::setting;
use super::waiting::{Headers, Wait, Waiter};
use crate::effect::{Command, Effect, Note, Output};
use crate::id::{CallId, ConnectionId, Seq};
use crate::input::{Post, Request};
use crate::ledger::{Call, Phase};
use crate::policy::{Decision, Verdict};
use crate::rejection::{Hint, Reason, Rejection};
use crate::stream::{Connection, StreamState};

impl Session {
    pub(super) fn handle_post(&mut self, post: Post, now_ms: u64, out: &mut Output) {
        self.last_activity_ms = now_ms;
        let waiter = Waiter {
            connection: Connection { id: post.connection, observed: post.observed },
            requests: post.requests,
            batch: post.batch,
            body: post.body,
            arrived_ms: now_ms,
            wait: Wait::Nothing,
            held_since_ms: None,
            proof_until_ms: None,
            headers: Headers::Unsent,
            stream: None,
            asked: Default::default(),
            asked_until_ms: None,
            alive: Default::default(),
            proven: Default::default(),
            loaded: Vec::new(),
        };
        self.judge(waiter, now_ms, out);
    }

    /// A connection is gone before its answer had a head: that of a waiting POST, or one whose
    /// stream was already opened here, but not there.
    pub(super) fn handle_gone(&mut self, id: ConnectionId, now_ms: u64, out: &mut Output) {
        self.replies.retain(|_, connection| *connection != id);
        if self.waiting.contains_key(&id) && !self.lacks(Safeguard::Withdrawal) {
            self.withdraw(id, now_ms, out);
        }
        if let Some(stream) = self.carried_by(id) {
            self.lose_connection(stream, Seq::ORIGIN, false, now_ms, out);
        }
    }

    /// Decides a POST as things are now, and acts.
    pub(super) fn judge(&mut self, mut waiter: Waiter, now_ms: u64, out: &mut Output) {
        let requests = waiter.requests.clone();
        let mut decisions: Vec<_> =
            requests.iter().map(|request| self.decide(&waiter, request, now_ms)).collect();
        refuse_token_twins(&requests, &mut decisions);
        if self.lacks(Safeguard::DecideAgain) {
            safeguard::go_on(&waiter, &mut decisions, now_ms, self.limits());
        }
        if let Some((wait, decision)) = first_wait(&decisions) {
            return self.wait_for(waiter, wait, &decision, now_ms, out);
        }
        if let [Decision { verdict: Verdict::Attach(call), .. }] = decisions[..] {
            self.note_decision(waiter.connection.id, &decisions[0], Some(call), out);
            return self.attach_resend(waiter, call, now_ms, out);
        }
        if !self.load_records(&mut waiter, &decisions, out) {
            return self.wait(waiter, Wait::Record, now_ms);
        }
        self.refuse_settings(&waiter, &mut decisions);
        self.refuse_without_room(&waiter, &mut decisions, now_ms, out);
        let claims = |d: &Decision| matches!(d.verdict, Verdict::Claim { .. } | Verdict::Pass);
        if decisions.iter().any(claims)
            && self.is_behind_twin(&waiter)
            && !self.lacks(Safeguard::FirstComeFirst)
        {
            if waiter.hold_is_over(now_ms, self.limits()) || self.is_beyond_room(&waiter) {
                let rejections = self.refusals(&waiter, |_| Reason::RequestInFlight);
                return self.refuse(waiter, rejections, now_ms, out);
            }
            return self.wait(waiter, Wait::Twin, now_ms);
        }
        if waiter.needs_proof() && !self.lacks(Safeguard::OwnProof) && decisions.iter().any(claims)
        {
            self.open_headers(&mut waiter, now_ms, out);
            return self.wait(waiter, Wait::Proof, now_ms);
        }
        if decisions.iter().all(|d| matches!(d.verdict, Verdict::Reject(_))) {
            return self.refuse_all(waiter, &decisions, now_ms, out);
        }
        self.admit(waiter, decisions, now_ms, out);
    }

    /// Waits as a decision says; a full queue refuses at once.
    fn wait_for(
        &mut self,
        mut waiter: Waiter,
        wait: Wait,
        decision: &Decision,
        now_ms: u64,
        out: &mut Output,
    ) {
        let id = waiter.connection.id;
        if waiter.wait != wait {
            self.note_decision(id, decision, None, out);
        }
        if self.is_beyond_room(&waiter) {
            let reason = match wait {
                Wait::Turn if self.replays.is_empty() => Reason::StreamNotDrained,
                Wait::Turn => Reason::ReplayInProgress,
                _ => Reason::RequestInFlight,
            };
            let rejections = self.refusals(&waiter, |_| reason);
            return self.refuse(waiter, rejections, now_ms, out);
        }
        match &decision.verdict {
            Verdict::Probe(calls) => {
                self.probe(&mut waiter, calls, now_ms, out);
                self.open_headers(&mut waiter, now_ms, out);
            }
            // After this wait its own connection must prove that it lives: both go side by side.
            Verdict::Join(_) | Verdict::WaitForReset => {
                self.open_headers(&mut waiter, now_ms, out);
            }
            _ => {}
        }
        self.wait(waiter, wait, now_ms);
    }

    /// True if a POST that does not wait yet finds as many waiting as may.
    fn is_beyond_room(&self, waiter: &Waiter) -> bool {
        waiter.wait == Wait::Nothing && self.waiting.len() >= self.limits().held_posts_max
    }

    /// Row 14: asks every attached original's connection for a sign of life.
    fn probe(&mut self, waiter: &mut Waiter, calls: &[CallId], now_ms: u64, out: &mut Output) {
        let answer_ms = self.limits().liveness_answer_ms;
        for &call in calls {
            let stream = self.ledger.get(call).and_then(|call| call.stream);
            let connection = stream.and_then(|id| self.streams.get(&id)?.connection);
            if let Some(connection) = connection
                && waiter.asked.insert(call, connection.id).is_none()
            {
                out.effects.push(Effect::Command(connection.id, Command::Probe));
                waiter.asked_until_ms = Some(now_ms + answer_ms);
            }
        }
    }

    /// Row 4: a transport re-send becomes its stream's new connection.
    fn attach_resend(&mut self, waiter: Waiter, call: CallId, now_ms: u64, out: &mut Output) {
        let Some(stream) = self.ledger.get(call).and_then(|call| call.stream) else { return };
        if let Some(held) = waiter.stream {
            // The head of another stream is out already: it ends, telling the client what runs.
            let rejections = self.refusals(&waiter, |_| Reason::RequestInFlight);
            debug_assert!(self.streams.contains_key(&held));
            return self.refuse(waiter, rejections, now_ms, out);
        }
        out.effects.push(Effect::Note(Note::RepeatPrevented(call)));
        self.resume(stream, waiter.connection, Seq::ORIGIN, true, now_ms, out);
    }

    fn refuse_all(
        &mut self,
        waiter: Waiter,
        decisions: &[Decision],
        now_ms: u64,
        out: &mut Output,
    ) {
        let mut rejections = Vec::with_capacity(decisions.len());
        for (request, decision) in waiter.requests.iter().zip(decisions) {
            let Verdict::Reject(reason) = decision.verdict else { continue };
            self.note_refusal(waiter.connection.id, decision, request, out);
            rejections.push(self.rejected(request, reason, decision.original, now_ms, out));
        }
        self.refuse(waiter, rejections, now_ms, out);
    }

    /// A refusal with what follows from it: state loss is told once, prevented repeats are counted.
    pub(super) fn rejected(
        &mut self,
        request: &Request,
        reason: Reason,
        original: Option<CallId>,
        now_ms: u64,
        out: &mut Output,
    ) -> Rejection {
        if reason == Reason::StateLost {
            self.upstream.lost_untold = false;
            self.row_changed = true;
        }
        if let Some(call) = original {
            out.effects.push(Effect::Note(Note::RepeatPrevented(call)));
        }
        // Whether the server takes a call is known later: so early it is room that lacks.
        if reason == Reason::UpstreamUnavailable {
            let sets_too_much = self.sets_too_much(&request.message);
            let limits = if sets_too_much { setting::LIMITS } else { self.tightest_limits() };
            out.effects.push(Effect::Note(Note::NoRoom { limits }));
        }
        self.reject(request, reason, original, now_ms)
    }

    /// What bounds the log of this session: its own limit, or one of those that it shares. Of
    /// these a session knows only what both together leave.
    fn tightest_limits(&self) -> &'static [&'static str] {
        if self.room_max_bytes < self.limits().session_log_hard_bytes_max {
            &["principal_log_bytes_max", "total_log_bytes_max"]
        } else {
            &["session_log_hard_bytes_max"]
        }
    }

    /// Builds a refusal; the hint is the original's stream, or the owed one that holds the POST.
    pub(super) fn reject(
        &self,
        request: &Request,
        reason: Reason,
        original: Option<CallId>,
        now_ms: u64,
    ) -> Rejection {
        let call = original.and_then(|id| self.ledger.get(id));
        let held_by = || self.replays.values().map(|replay| replay.stream).next();
        let stream = match reason {
            Reason::StreamNotDrained | Reason::ReplayInProgress => call
                .and_then(|call| call.stream)
                .or_else(|| self.owed.first().copied())
                .or_else(held_by),
            _ => call.and_then(|call| call.stream),
        };
        let again_in_ms = call.and_then(|call| self.just_answered(call, reason, now_ms));
        let hint = stream
            .filter(|_| again_in_ms.is_none() && reason != Reason::DedupTokenReused)
            .and_then(|id| self.streams.get(&id))
            .filter(|stream| !matches!(stream.state, StreamState::Released(_)))
            .map(|stream| self.hint(stream.id, call.map(|call| call.request_id.clone())));
        let send_again =
            matches!(reason, Reason::ReplayInProgress | Reason::StateLost | Reason::Withdrawn)
                || reason == Reason::UpstreamUnavailable
                || reason == Reason::StreamNotDrained && call.is_none()
                || again_in_ms.is_some();
        Rejection {
            reason,
            request_id: request_id(request),
            hint,
            send_again,
            retry_after_ms: again_in_ms.unwrap_or_else(|| self.limits().retry_ms),
            original_ended_ms: call.and_then(|call| call.ended_ms),
        }
    }

    /// How long a call that was answered after its connection had broken still refuses its repeats
    /// (row 13): the client has the answer, and a late retry may still be on its way.
    fn just_answered(&self, call: &Call, reason: Reason, now_ms: u64) -> Option<u64> {
        let stream = call.stream.and_then(|id| self.streams.get(&id))?;
        let arrived = matches!(stream.state, StreamState::Presumed | StreamState::Proved);
        let since_ms = now_ms.saturating_sub(stream.settled_ms?);
        let limits = self.limits();
        let fresh_ms = limits.owed_grace_ms.unwrap_or(limits.hold_max_ms);
        (reason == Reason::RequestInFlight && arrived && call.phase == Phase::Finished)
            .then(|| fresh_ms.saturating_sub(since_ms).max(1))
    }

    fn hint(&self, stream: crate::id::StreamId, original: Option<bytes::Bytes>) -> Hint {
        let stream = &self.streams[&stream];
        let calls = stream.calls.iter().filter_map(|&id| self.ledger.get(id));
        let mut in_flight: Vec<_> = calls
            .filter(|call| call.phase.may_produce())
            .map(|call| call.request_id.clone())
            .collect();
        in_flight.sort();
        Hint {
            cursor: self.event_id(stream.id, stream.cursors.acked),
            delivered: self.event_id(stream.id, stream.cursors.acked),
            produced: self.event_id(stream.id, stream.cursors.produced),
            in_flight,
            original_request_id: original,
        }
    }
}

/// Raw JSON-RPC id of a request; the envelope guarantees that it has one.
pub(super) fn request_id(request: &Request) -> bytes::Bytes {
    // A copy: a slice would keep the whole body alive for as long as the call is kept.
    bytes::Bytes::copy_from_slice(request.message.id().unwrap_or(b"null"))
}

/// One token twice in one batch: the first request has it.
fn refuse_token_twins(requests: &[Request], decisions: &mut [Decision]) {
    for index in 1..requests.len() {
        let Some(token) = requests[index].token else { continue };
        let earlier = requests[..index].iter().find(|r| r.token.map(|t| t.key) == Some(token.key));
        let Some(earlier) = earlier else { continue };
        let same = earlier.message.canonical_params_hash()
            == requests[index].message.canonical_params_hash();
        let (row, reason) =
            if same { (8, Reason::RequestInFlight) } else { (2, Reason::DedupTokenReused) };
        decisions[index] = Decision { row, verdict: Verdict::Reject(reason), original: None };
    }
}

/// The first decision that makes the whole POST wait: any hold holds all of a batch.
fn first_wait(decisions: &[Decision]) -> Option<(Wait, Decision)> {
    decisions.iter().find_map(|decision| {
        let wait = match decision.verdict {
            Verdict::Probe(_) | Verdict::WaitForTwin => Wait::Twin,
            Verdict::WaitForReset => Wait::Reset,
            Verdict::Hold => Wait::Turn,
            Verdict::Join(_) => Wait::Join,
            _ => return None,
        };
        Some((wait, decision.clone()))
    })
}

/// Name of a verdict in logs and metrics, and the reason of a refusal.
pub(super) fn verdict_name(verdict: &Verdict) -> (&'static str, Option<Reason>) {
    match verdict {
        Verdict::Pass => ("pass", None),
        Verdict::Claim { .. } => ("claim", None),
        Verdict::Attach(_) => ("attach", None),
        Verdict::Record(_) => ("record", None),
        Verdict::Collect(_) => ("collect", None),
        Verdict::Join(_) => ("join", None),
        Verdict::Probe(_) => ("probe", None),
        Verdict::WaitForTwin | Verdict::WaitForReset => ("wait", None),
        Verdict::Hold => ("hold", None),
        Verdict::Reject(reason) => ("reject", Some(*reason)),
    }
}
