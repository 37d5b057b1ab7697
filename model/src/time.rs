//! Virtual time: it jumps to the next moment at which anything may change.
//!
//! Every comparison of times in the session is between `now` and a moment plus a limit. Those with
//! a timer are the session's own deadlines; the others are marked here when they begin: the twin
//! window of a call, what counts as fresh after an end, the repeat window. Between two moments
//! nothing changes with time, so whatever the environment does there it may as well do at the
//! first.

use rejoin_core::input::Input;
use rejoin_core::stream::StreamState;

use crate::model::Model;
use crate::property::Property;
use crate::world::World;

/// Beyond this only the repeat window ends.
const WAIT_MAX_MS: u64 = 61_000;
/// Deadlines that one jump may pass; more would be a session that never comes to rest.
const TICKS_MAX: usize = 200;

impl World {
    /// The next moment at which anything may change.
    pub fn next_moment(&self, model: &Model) -> Option<u64> {
        let windows = model.config.faults.windows;
        self.any_next_moment().filter(|&at_ms| windows || at_ms < self.now_ms + WAIT_MAX_MS)
    }

    /// The same, however long it takes.
    pub fn any_next_moment(&self) -> Option<u64> {
        let mark = self.marks.iter().copied().filter(|&at_ms| at_ms > self.now_ms).min();
        let deadline = self.session.next_deadline_ms().map(|at_ms| at_ms.max(self.now_ms));
        let stalls = (0..self.exchanges.len()).filter_map(|at| self.stalls_ms(at));
        mark.into_iter().chain(deadline).chain(stalls).min()
    }

    /// When the gateway counts the connection of a replay as lost, since it takes nothing.
    fn stalls_ms(&self, at: usize) -> Option<u64> {
        let exchange = &self.exchanges[at];
        let is_stuck = exchange.reports_replay && !exchange.is_over && !exchange.is_acknowledged();
        let stall_ms = self.session.start().settings.limits.replay_stall_ms;
        is_stuck.then_some((exchange.came_ms + stall_ms).max(self.now_ms))
    }

    /// Jumps there.
    pub fn pass(&mut self, model: &Model) {
        let Some(at_ms) = self.any_next_moment() else { return };
        let passed_ms = at_ms - self.now_ms;
        self.tell(|| format!("{passed_ms} ms pass"));
        for _ in 0..TICKS_MAX {
            let due = self.session.poll_timeout().filter(|&due_ms| due_ms <= at_ms);
            let Some(due_ms) = due else { break };
            self.now_ms = self.now_ms.max(due_ms);
            self.feed(model, Input::Tick);
        }
        self.now_ms = at_ms;
        for at in 0..self.exchanges.len() {
            if self.stalls_ms(at) == Some(at_ms) {
                self.lost(model, at);
            }
        }
        let now_ms = self.now_ms;
        self.marks.retain(|&mark_ms| mark_ms > now_ms);
        self.look_at_holds(model);
    }

    fn mark(&mut self, after_ms: u64) {
        let at_ms = self.now_ms + after_ms;
        if let Err(at) = self.marks.binary_search(&at_ms) {
            self.marks.insert(at, at_ms);
        }
    }

    /// A stream has come to a state.
    pub fn mark_stream(&mut self, to: StreamState) {
        let limits = self.session.start().settings.limits.clone();
        match to {
            StreamState::Presumed | StreamState::Proved => {
                self.mark(limits.owed_grace_ms.unwrap_or(limits.hold_max_ms));
                self.mark(limits.repeat_window_ms);
            }
            StreamState::Abandoned | StreamState::Doubtful => self.mark(limits.repeat_window_ms),
            _ => {}
        }
    }

    /// A call has come to a phase.
    pub fn mark_call(&mut self, to: &'static str) {
        if matches!(to, "finished" | "cancelled" | "unknown") {
            self.mark(self.session.start().settings.limits.repeat_window_ms);
        }
    }

    /// A call was claimed.
    pub fn mark_claim(&mut self) {
        self.mark(self.session.start().settings.limits.twin_window_ms);
    }

    fn look_at_holds(&mut self, model: &Model) {
        let limits = &model.settings.limits;
        // Held as long as may be, and then long enough to prove that its own connection lives.
        let bound_ms = limits.hold_max_ms + limits.liveness_answer_ms;
        let joins = model.config.on_repeat == rejoin_core::settings::OnRepeat::Join;
        let is_json = |at: usize| {
            let intent = self.exchanges[at].intent;
            self.runs.iter().any(|run| run.intent == intent) && self.exchanges[at].stream.is_none()
        };
        let late = (0..self.exchanges.len()).any(|at| {
            let exchange = &self.exchanges[at];
            exchange.waits() && self.now_ms > exchange.came_ms + bound_ms && !is_json(at)
        });
        if late && !joins {
            self.break_property(Property::HeldBound);
        }
    }
}
