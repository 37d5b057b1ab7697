//! What time does: waits end, silence is noticed.
use super::call::{Call, CallKey, Era, State};
use super::track::Replay;
use super::{Exchange, ExchangeId, Machine, Purpose, Queued};
use crate::limits::ClientLimits;

/// What a call's time asks for.
enum Due {
    Resume,
    End,
    /// The exchange is dead.
    Dead(ExchangeId),
    /// The exchange is open and silent.
    AskAgain(ExchangeId),
    /// Its answer came and cannot be read.
    Unreadable,
    /// What comes before its record does not come.
    Record,
    Forget,
    GiveUp,
}

impl Machine {
    /// Does whatever is due.
    pub(super) fn run_timers(&mut self) {
        self.end_if_due();
        self.reopen_if_due();
        self.listen_if_due();
        self.close_what_is_over();
        let now_ms = self.now_ms;
        if let Some(id) = self.standalone.reading()
            && self.is_rejoin()
            && now_ms >= self.standalone.heard_ms.saturating_add(self.limits().stream_idle_max_ms)
        {
            self.close(id);
            self.standalone_lost(true);
        }
        let due: Vec<_> =
            self.calls.iter().filter_map(|(key, call)| Some((*key, self.due(call)?))).collect();
        for (key, due) in due {
            self.do_due(key, &due);
        }
        for call in self.calls.values_mut() {
            if let Some(Replay::Quiet { quiet_ms, end_ms }) = &call.track.replay
                && now_ms >= (*quiet_ms).min(*end_ms)
            {
                call.track.replay = None;
            }
        }
    }

    fn is_rejoin(&self) -> bool {
        self.session.continuity.is_some()
    }

    fn due(&self, call: &Call) -> Option<Due> {
        let (at_ms, due) =
            self.call_timers(call).into_iter().flatten().min_by_key(|(at, _)| *at)?;
        (at_ms <= self.now_ms).then_some(due)
    }

    /// When something is due for a call.
    fn call_timers(&self, call: &Call) -> [Option<(u64, Due)>; 7] {
        let limits = self.limits();
        let after = |ms: u64| call.heard_ms.saturating_add(ms);
        let own = match call.state {
            State::Waiting { at_ms } => Some((at_ms, Due::Resume)),
            State::Elsewhere { until_ms } => Some((until_ms, Due::End)),
            _ => None,
        };
        let cancelled = call
            .cancelled_ms
            .map(|at_ms| (at_ms.saturating_add(limits.cancelled_max_ms), Due::Forget));
        let dead = self.dead_ms(call, limits).map(|(at_ms, id)| (at_ms, Due::Dead(id)));
        let silent = match call.state {
            // What was subscribed to may be quiet for as long as it likes.
            State::Reading(_) if call.is_subscription() => None,
            State::Posted(_) | State::Whole(..) | State::Reading(_)
                if call.cancelled_ms.is_none() =>
            {
                Some((after(limits.call_silence_max_ms), Due::GiveUp))
            }
            _ => None,
        };
        let unreadable = call
            .unreadable
            .as_ref()
            .map(|(at_ms, _)| (at_ms.saturating_add(limits.unreadable_max_ms), Due::Unreadable));
        let record = call.recorded.as_ref().map(|recorded| (recorded.until_ms, Due::Record));
        [own, cancelled, dead, self.ask_again_ms(call), silent, unreadable, record]
    }

    /// When a connection counts as dead: its server would have sent something by then.
    fn dead_ms(&self, call: &Call, limits: &ClientLimits) -> Option<(u64, ExchangeId)> {
        let opened_ms = |id: &ExchangeId| self.exchanges.get(id).map(|exchange| exchange.opened_ms);
        match &call.state {
            State::Asking(id) if self.is_rejoin() => {
                Some((opened_ms(id)?.saturating_add(call.track.resume_head_ms(limits)), *id))
            }
            State::Asking(id) | State::Knocking(id) => {
                Some((opened_ms(id)?.saturating_add(limits.head_max_ms), *id))
            }
            State::Posted(id) if self.is_rejoin() && call.era == Era::Session => {
                Some((opened_ms(id)?.saturating_add(limits.head_max_ms), *id))
            }
            State::Reading(id) if self.is_rejoin() && call.era == Era::Session => {
                Some((call.heard_ms.saturating_add(limits.stream_idle_max_ms), *id))
            }
            _ => None,
        }
    }

    /// When the rest of a resumed stream that is silent is asked for again. A Rejoin sends whatever
    /// there is; and what was too large would only come again.
    fn ask_again_ms(&self, call: &Call) -> Option<(u64, Due)> {
        let State::Reading(id) = call.state else { return None };
        let is_askable = !self.is_rejoin()
            && call.era == Era::Session
            && !call.is_cancelled()
            && call.unread_behind.as_ref().is_none_or(|(behind, _)| *behind != call.track.cursor);
        let at_ms = call.track.silent_ms().filter(|_| is_askable)?;
        Some((at_ms, Due::AskAgain(id)))
    }

    fn do_due(&mut self, key: CallKey, due: &Due) {
        match due {
            Due::Resume => self.resume(key),
            Due::End => self.fail(key, "the server ended its answer without a result"),
            Due::Unreadable => {
                let unreadable = self.calls.get(&key).and_then(|call| call.unreadable.clone());
                self.fail(key, &unreadable.map(|(_, what)| what).unwrap_or_default());
            }
            Due::Record => {
                self.tell_record(key);
            }
            Due::AskAgain(id) => self.ask_again(key, *id),
            Due::Forget => {
                self.cancel_again(key);
                self.forget(key);
            }
            Due::GiveUp => {
                if let Some(id) = self.calls.get(&key).and_then(|call| call.state.exchange()) {
                    self.close(id);
                }
                if let Some(call) = self.calls.get_mut(&key) {
                    call.may_have_run = true;
                }
                self.fail(key, "nothing came for call_silence_max_ms");
            }
            Due::Dead(id) => {
                let was_posted =
                    self.calls.get(&key).is_some_and(|call| matches!(call.state, State::Posted(_)));
                self.close(*id);
                if was_posted {
                    if let Some(call) = self.calls.get_mut(&key) {
                        call.may_have_run = true;
                    }
                    return self.send_again_or_end(key, "the server did not answer");
                }
                self.lost(key, false, "nothing came any more");
            }
        }
    }

    fn end_if_due(&mut self) {
        let Some(end_ms) = self.end_ms else { return };
        let is_leaving =
            self.exchanges.values().any(|exchange| exchange.purpose == Purpose::Goodbye);
        if is_leaving || end_ms == u64::MAX {
            return;
        }
        if self.pending_calls() == 0 || end_ms <= self.now_ms {
            self.end_ms = Some(u64::MAX);
            self.say_goodbye();
        }
    }

    fn close_what_is_over(&mut self) {
        let now_ms = self.now_ms;
        let mut over = Vec::new();
        for (id, exchange) in &self.exchanges {
            let is_unanswered = self.answer_due_ms(exchange).is_some_and(|at_ms| at_ms <= now_ms);
            if exchange.close_ms.is_some_and(|at_ms| at_ms <= now_ms) || is_unanswered {
                over.push((*id, exchange.purpose));
            }
        }
        for (id, purpose) in over {
            self.close(id);
            match purpose {
                Purpose::Goodbye => self.done(),
                Purpose::Note(number) => self.note_silent(number),
                Purpose::Reopen | Purpose::Reopened => {
                    self.reopen_failed("the server did not answer")
                }
                Purpose::Knock(None) => self.knock_failed(),
                _ => {}
            }
        }
    }

    /// The earliest time at which something is due.
    pub(super) fn next_timer(&self) -> Option<u64> {
        let calls = self.calls.values().flat_map(|call| {
            let timers = self.call_timers(call);
            let replay = match &call.track.replay {
                Some(Replay::Quiet { quiet_ms, end_ms }) => Some((*quiet_ms).min(*end_ms)),
                _ => None,
            };
            let held_ms = Some(call.holds_until_ms(self.limits()))
                .filter(|at_ms| self.held > 0 && call.holds_others() && *at_ms > self.now_ms);
            timers.into_iter().flatten().map(|(at_ms, _)| at_ms).chain(replay).chain(held_ms)
        });
        let exchanges = self.exchanges.values().filter_map(|exchange| {
            exchange.close_ms.into_iter().chain(self.answer_due_ms(exchange)).min()
        });
        // What is blocked by something else is sent when that ends.
        let queued = self.queue.iter().filter_map(|queued| match queued {
            Queued::Call(key) => self.calls.get(key).map(|call| call.not_before_ms),
            Queued::Note(number) => self.notes.get(number).map(|note| note.not_before_ms),
        });
        let queued = queued.filter(|at_ms| *at_ms > self.now_ms);
        let idle = self
            .standalone
            .reading()
            .filter(|_| self.is_rejoin())
            .map(|_| self.standalone.heard_ms.saturating_add(self.limits().stream_idle_max_ms));
        let others = [self.reopen_at(), self.standalone.waits_until(), idle];
        let end = self.end_ms.filter(|at_ms| *at_ms != u64::MAX);
        calls.chain(exchanges).chain(queued).chain(others.into_iter().flatten()).chain(end).min()
    }
    /// When an answer must have come, or its head. Those of calls are watched with their calls.
    fn answer_due_ms(&self, exchange: &Exchange) -> Option<u64> {
        let limits = self.limits();
        let max_ms = match exchange.purpose {
            // While it is on its way everything else waits.
            Purpose::Reopen | Purpose::Reopened => limits.initialize_max_ms,
            Purpose::Knock(None) => limits.head_max_ms,
            Purpose::Call(_)
            | Purpose::Resume(_)
            | Purpose::Standalone
            | Purpose::Knock(Some(_)) => {
                return None;
            }
            _ if exchange.head.is_some() => return None,
            _ => limits.head_max_ms,
        };
        Some(exchange.opened_ms.saturating_add(max_ms))
    }
}
