//! A stream that was lost is asked for, not run again (spec RES-4 to RES-7); what then remains.
use rejoin_core::message::ParseError;

use super::call::{CallKey, Era, State};
use super::status::is_busy;
use super::track::{Next, Replay};
use super::{Because, ExchangeId, Head, Machine, Media, Notice, Purpose};

/// What became of an answer that is no JSON-RPC message. It would be the same once more.
pub(super) const UNREADABLE: &str = "it came, and cannot be read";

/// The same, with what a person can change of it.
pub(super) fn unreadable(error: &ParseError) -> String {
    match error {
        ParseError::TooManyMessages { messages_max } => {
            format!("{UNREADABLE}: it is a batch of more than {messages_max} messages")
        }
        _ => UNREADABLE.to_owned(),
    }
}

impl Machine {
    /// The connection of a call's stream is lost, or could not be had. `answered`: the server
    /// answered, and that brought nothing.
    pub(super) fn lost(&mut self, key: CallKey, answered: bool, what: &str) {
        let random = self.random.number();
        let (now_ms, limits) = (self.now_ms, &self.settings.limits);
        let Some(call) = self.calls.get_mut(&key) else { return };
        if matches!(call.state, State::Orphaned { .. }) {
            return;
        }
        if call.doubt.is_some() {
            self.settle_doubt(key);
            return;
        }
        if call.is_cancelled() {
            return self.forget(key);
        }
        if let Some((behind, what)) = &call.unread_behind
            && *behind == call.track.cursor
        {
            let what = *what;
            return self.fail(key, what);
        }
        if let Some((_, what)) = &call.unreadable {
            let what = what.clone();
            return self.fail(key, &what);
        }
        if call.is_initialize() {
            // A session that was not opened has no streams.
            return self.send_again_or_end(key, what);
        }
        if call.era != Era::Session {
            // Such a stream cannot be resumed, and its end was a cancel (spec 3.1).
            if call.track.lasted_ms(now_ms) >= limits.steady_ms && call.is_subscription() {
                call.resends = 0;
                call.backoff.reset();
            }
            return self.send_again_or_end(key, what);
        }
        match call.track.lost(now_ms, random, answered, limits) {
            Next::ResumeAt(at_ms) => {
                call.state = State::Waiting { at_ms };
                let (call, again_ms) = (call.name(), at_ms.saturating_sub(now_ms));
                self.notice(Notice::StreamLost { call, again_ms });
            }
            Next::NoCursor | Next::GiveUp => self.send_again_or_end(key, what),
        }
    }

    /// Asks for the rest of a call's stream.
    pub(super) fn resume(&mut self, key: CallKey) {
        let Some(call) = self.calls.get(&key) else { return };
        let (request, acks) = self.compose_get(call.track.cursor.as_deref());
        let exchange = self.open(Purpose::Resume(key), request, acks);
        if let Some(call) = self.calls.get_mut(&key) {
            call.state = State::Asking(exchange);
        }
    }

    /// A resumed stream is open and silent. That may be a call that runs; or its answer is in the
    /// server's store, and comes only to who asks once more. A GET runs nothing, so it is asked for
    /// again (design section 10).
    pub(super) fn ask_again(&mut self, key: CallKey, silent: ExchangeId) {
        self.close(silent);
        let random = self.random.number();
        let (now_ms, limits) = (self.now_ms, &self.settings.limits);
        if let Some(call) = self.calls.get_mut(&key) {
            call.state = State::Waiting { at_ms: call.track.silent(now_ms, random, limits) };
        }
    }

    pub(super) fn resume_head(&mut self, id: ExchangeId, key: CallKey, head: &Head) {
        // Some servers answer 400 where they do not know the session.
        let is_rejoin = self.session.continuity.is_some();
        let is_in_doubt =
            head.status == 400 && !is_rejoin && self.is_current(id) && self.is_in_session(key);
        let is_gone = self.means_gone(id, head);
        let (now_ms, limits) = (self.now_ms, self.settings.limits.clone());
        let random = self.random.number();
        let Some(call) = self.calls.get_mut(&key) else { return self.linger(id) };
        match (head.status, head.media) {
            (200, Media::Stream) => {
                call.state = State::Reading(id);
                let was_silent = call.track.resumed(now_ms, random);
                call.track.replay = match &head.replay_until {
                    Some(boundary) => Some(Replay::Until(boundary.clone())),
                    // A Rejoin that names none has nothing to replay.
                    None if is_rejoin => None,
                    None => Some(Replay::Quiet {
                        quiet_ms: now_ms.saturating_add(limits.replay_quiet_ms),
                        end_ms: now_ms.saturating_add(limits.replay_max_ms),
                    }),
                };
                if !was_silent {
                    call.heard_ms = now_ms;
                    let call = call.name();
                    self.notice(Notice::Resumed { call });
                }
            }
            (200..=299, Media::Whole) => {}
            // Some servers say so of an event that they do not know, or of any GET.
            _ if is_gone || is_in_doubt => {
                self.close(id);
                self.knock(Some(key));
            }
            // The old connection still looks open to the server; or it has no time, or no trust.
            (status, _) if matches!(status, 401 | 403 | 409) || is_busy(status) => {
                self.close(id);
                if let Some(retry_ms) = head.retry_after_ms
                    && let Some(call) = self.calls.get_mut(&key)
                {
                    call.track.asked(retry_ms, &limits);
                }
                self.lost(key, false, &format!("the server answered with status {}", head.status));
            }
            (status, _) => {
                self.close(id);
                let what = format!("the server has no more of the answer (status {status})");
                self.send_again_or_end(key, &what);
            }
        }
    }

    /// A GET was answered with a body that is no stream.
    pub(super) fn resume_whole(&mut self, key: CallKey, status: u16, retry_ms: Option<u64>) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        if matches!(call.state, State::Asking(_)) {
            if let Some(retry_ms) = retry_ms {
                call.track.asked(retry_ms, &self.settings.limits);
            }
            self.lost(key, true, &format!("the server answered a GET with status {status}"));
        }
    }

    /// Whether a call carries a token that keeps it from running twice.
    pub(super) fn honours_token(&self, key: CallKey) -> bool {
        self.calls.get(&key).is_some_and(|call| {
            call.token.is_some() && call.era == Era::Session && self.session.continuity.is_some()
        })
    }

    /// Nothing more can be had of a call that may have run: it is sent again if that is safe, else
    /// it ends.
    pub(super) fn send_again_or_end(&mut self, key: CallKey, what: &str) {
        let Some(call) = self.calls.get(&key) else { return };
        if matches!(call.state, State::Orphaned { .. } | State::Queued) {
            return;
        }
        if call.is_cancelled() {
            return self.forget(key);
        }
        if self.tell_record(key) {
            return;
        }
        let Some(call) = self.calls.get(&key) else { return };
        let is_repeatable = self.is_repeatable(&call.message);
        let has_token = self.honours_token(key);
        self.leave_exchange(key);
        let random = self.random.number();
        let (now_ms, resends_max) = (self.now_ms, self.limits().resends_max);
        let listens = self.standalone.listens();
        let elsewhere_ms = self.limits().elsewhere_ms;
        let Some(call) = self.calls.get_mut(&key) else { return };
        call.track.replay = None;
        call.track.cursor = None;
        call.resends += 1;
        let is_tried = call.resends > resends_max;
        if !is_tried && (has_token || is_repeatable) {
            let because = if has_token { Because::Token } else { Because::Repeatable };
            let at_ms = now_ms.saturating_add(call.backoff.next_ms(random));
            return self.send_again(key, because, at_ms);
        }
        if call.refusal.is_some() {
            return self.tell_refusal(key);
        }
        if listens && call.era == Era::Session {
            call.state = State::Elsewhere { until_ms: now_ms.saturating_add(elsewhere_ms) };
            return;
        }
        self.fail(key, what);
    }
}
