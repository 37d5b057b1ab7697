//! One running call: it can be told to stop, and it can wait for the client's answer to a question.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

/// The part of a call that other threads reach.
#[derive(Default)]
pub(super) struct Call {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    cancelled: bool,
    answer: Option<Answer>,
}

/// What the client said to a request of this server: its result or its error, as it wrote them.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Result(Box<RawValue>),
    Error(Box<RawValue>),
}

/// How a wait for an answer ended.
#[derive(Debug)]
pub(super) enum AnswerWait {
    Answered(Answer),
    Cancelled,
    TimedOut,
}

impl Call {
    /// Marks the call cancelled and wakes it.
    pub(super) fn cancel(&self) {
        self.lock().cancelled = true;
        self.changed.notify_all();
    }

    /// Whether the call was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    /// Hands over the client's answer and wakes the call.
    pub(super) fn answer(&self, answer: Answer) {
        self.lock().answer = Some(answer);
        self.changed.notify_all();
    }

    /// Waits this long, or until the call is cancelled; says whether it was.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let waiting = |state: &mut State| !state.cancelled;
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), time, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        state.cancelled
    }

    /// Waits for the client's answer, a cancel, or the deadline.
    pub(super) fn wait_answer(&self, time_max: Duration) -> AnswerWait {
        let waiting = |state: &mut State| !state.cancelled && state.answer.is_none();
        let (mut state, _) = self
            .changed
            .wait_timeout_while(self.lock(), time_max, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        match state.answer.take() {
            Some(answer) => AnswerWait::Answered(answer),
            None if state.cancelled => AnswerWait::Cancelled,
            None => AnswerWait::TimedOut,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the calls that run, and lets one thread wait until none does.
#[derive(Default)]
pub(super) struct Running {
    calls: Mutex<usize>,
    changed: Condvar,
}

impl Running {
    /// One more, unless that would be more than the maximum.
    pub(super) fn try_start(&self, calls_max: usize) -> bool {
        let mut calls = self.lock();
        let free = *calls < calls_max;
        *calls += usize::from(free);
        free
    }

    /// One less.
    pub(super) fn end(&self) {
        let mut calls = self.lock();
        *calls = calls.saturating_sub(1);
        self.changed.notify_all();
    }

    /// Waits until none runs, at most until the deadline.
    pub(super) fn wait_none(&self, deadline: Instant) {
        let time = deadline.saturating_duration_since(Instant::now());
        drop(self.changed.wait_timeout_while(self.lock(), time, |calls| *calls > 0));
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
