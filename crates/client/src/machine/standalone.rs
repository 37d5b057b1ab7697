//! The standalone stream: the server's own messages, outside of calls (spec GET-1 to GET-7).
use rejoin_core::backoff::Backoff;

use super::status::is_busy;
use super::track::{Replay, Track};
use super::{ExchangeId, Head, Machine, Media, Notice, Purpose};
use crate::limits::ClientLimits;

/// The standalone stream of the session.
#[derive(Debug)]
pub(super) struct Standalone {
    state: State,
    pub(super) track: Track,
    backoff: Backoff,
    pub(super) heard_ms: u64,
    /// Nothing came on this connection, not even a comment.
    is_silent: bool,
    /// Connections in a row that went on from a cursor, and that the server ended with nothing.
    silent_ends: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is none, or it is not wanted.
    Off,
    Waiting {
        at_ms: u64,
    },
    Asking(ExchangeId),
    Reading(ExchangeId),
    /// It was answered with this status: does the session live?
    Knocking {
        status: u16,
    },
}

impl Standalone {
    pub(super) fn new(limits: &ClientLimits) -> Self {
        Self {
            state: State::Off,
            track: Track::new(limits),
            backoff: Backoff::new(limits.backoff_ms, limits.standalone_backoff_max_ms),
            heard_ms: 0,
            is_silent: true,
            silent_ends: 0,
        }
    }

    /// Something came.
    pub(super) fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.is_silent = false;
        self.silent_ends = 0;
    }

    /// Whether something may come on it.
    pub(super) fn listens(&self) -> bool {
        self.state != State::Off
    }

    pub(super) fn off(&mut self) {
        self.state = State::Off;
        self.track.replay = None;
    }

    pub(super) fn waits_until(&self) -> Option<u64> {
        match self.state {
            State::Waiting { at_ms } => Some(at_ms),
            _ => None,
        }
    }

    /// The exchange on which it is read.
    pub(super) fn reading(&self) -> Option<ExchangeId> {
        match self.state {
            State::Reading(id) => Some(id),
            _ => None,
        }
    }
}

impl Machine {
    /// Opens the stream of a session that has just begun.
    pub(super) fn open_standalone(&mut self) {
        if self.standalone.state == State::Off {
            self.standalone = Standalone::new(&self.settings.limits);
            self.standalone.state = State::Waiting { at_ms: self.now_ms };
        }
    }

    pub(super) fn close_standalone(&mut self) {
        if let State::Asking(id) | State::Reading(id) = self.standalone.state {
            self.close(id);
        }
        self.standalone.off();
    }

    pub(super) fn listen_if_due(&mut self) {
        if self.standalone.waits_until().is_none_or(|at_ms| at_ms > self.now_ms) {
            return;
        }
        let (request, acks) = self.compose_get(self.standalone.track.cursor.as_deref());
        let exchange = self.open(Purpose::Standalone, request, acks);
        self.standalone.state = State::Asking(exchange);
    }

    pub(super) fn standalone_head(&mut self, id: ExchangeId, head: &Head) {
        let is_gone = self.means_gone(id, head);
        let is_current = self.session.id.is_some() && self.is_current(id);
        let now_ms = self.now_ms;
        match (head.status, head.media) {
            (200, Media::Stream) => {
                let standalone = &mut self.standalone;
                standalone.state = State::Reading(id);
                standalone.heard_ms = now_ms;
                standalone.is_silent = true;
                let resumed = standalone.track.cursor.is_some();
                standalone.track.connected(now_ms, resumed);
                standalone.track.replay = head.replay_until.clone().map(Replay::Until);
            }
            (404, _) if is_gone => {
                self.close(id);
                self.standalone.state = State::Knocking { status: 404 };
                self.knock(None);
            }
            (status, _) if matches!(status, 401 | 403 | 409) || is_busy(status) => {
                self.close(id);
                self.standalone_again(head.retry_after_ms);
            }
            // Of a session that they do not know some say so.
            (400, _) if is_current && self.standalone.track.cursor.is_none() => {
                self.close(id);
                self.standalone.state = State::Knocking { status: 400 };
                self.knock(None);
            }
            (status, _) => {
                self.close(id);
                self.no_standalone(status);
            }
        }
    }

    /// A GET was answered with something that is no stream.
    pub(super) fn standalone_refused(&mut self, status: u16) {
        self.no_standalone(status);
    }

    pub(super) fn no_standalone(&mut self, status: u16) {
        if self.standalone.track.cursor.is_some() && (400..500).contains(&status) {
            return self.cut_standalone(status);
        }
        self.standalone.off();
        // What was to come on it comes no more.
        let until_ms = self.now_ms.saturating_add(self.limits().elsewhere_ms);
        for call in self.calls.values_mut() {
            call.expect_until(until_ms);
        }
        self.notice(Notice::NoStandaloneStream { status });
    }

    /// The session lives, if the server was able to say so: then the stream is what is not there.
    pub(super) fn knock_answered(&mut self, status: u16) {
        if matches!(status, 401 | 403) || is_busy(status) {
            return self.knock_failed();
        }
        if let State::Knocking { status } = self.standalone.state {
            self.no_standalone(status);
        }
    }

    /// Whether the session lives is not known: the stream is asked for again.
    pub(super) fn knock_failed(&mut self) {
        if matches!(self.standalone.state, State::Knocking { .. }) {
            self.standalone_again(None);
        }
    }

    /// The cursor leads nowhere, as it seems: the stream is asked for without.
    fn cut_standalone(&mut self, status: u16) {
        let standalone = &mut self.standalone;
        standalone.track = Track::new(&self.settings.limits);
        standalone.silent_ends = 0;
        standalone.state = State::Waiting { at_ms: self.now_ms };
        self.notice(Notice::StandaloneStreamCut { status });
    }

    /// The server has ended it. Some do so at once where they do not know the cursor.
    pub(super) fn standalone_ended(&mut self) {
        let ends_max = self.limits().resume_attempts_max;
        let standalone = &mut self.standalone;
        let lasted_ms = self.now_ms.saturating_sub(standalone.heard_ms);
        if standalone.is_silent
            && standalone.track.cursor.is_some()
            && lasted_ms < self.settings.limits.steady_ms
        {
            standalone.silent_ends += 1;
            if standalone.silent_ends >= ends_max {
                return self.cut_standalone(200);
            }
        }
        self.standalone_again(None);
    }

    pub(super) fn standalone_lost(&mut self, _answered: bool) {
        self.standalone_again(None);
    }

    fn standalone_again(&mut self, asked_ms: Option<u64>) {
        let random = self.random.number();
        let (now_ms, limits) = (self.now_ms, &self.settings.limits);
        let standalone = &mut self.standalone;
        if standalone.state == State::Off {
            return;
        }
        if standalone.track.end(now_ms, limits) {
            standalone.backoff.reset();
        }
        let asked_ms = asked_ms.or(standalone.track.retry_ms).unwrap_or(0).min(limits.retry_max_ms);
        let wait_ms = standalone.backoff.next_ms(random).max(asked_ms);
        standalone.state = State::Waiting { at_ms: now_ms.saturating_add(wait_ms) };
    }
}
