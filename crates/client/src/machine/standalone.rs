//! The standalone stream: the server's own messages, outside of calls (spec GET-1 to GET-7).
use rejoin_core::backoff::Backoff;

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
}

impl Standalone {
    pub(super) fn new(limits: &ClientLimits) -> Self {
        Self {
            state: State::Off,
            track: Track::new(limits),
            backoff: Backoff::new(limits.backoff_ms, limits.standalone_backoff_max_ms),
            heard_ms: 0,
        }
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
        let now_ms = self.now_ms;
        match (head.status, head.media) {
            (200, Media::Stream) => {
                let standalone = &mut self.standalone;
                standalone.state = State::Reading(id);
                standalone.heard_ms = now_ms;
                let resumed = standalone.track.cursor.is_some();
                standalone.track.connected(now_ms, resumed);
                standalone.track.replay = head.replay_until.clone().map(Replay::Until);
            }
            (404, _) if is_gone => {
                self.close(id);
                self.standalone.off();
                self.knock(None);
            }
            (401 | 403 | 408 | 409 | 425 | 429 | 500..=599, _) => {
                self.close(id);
                self.standalone_again(head.retry_after_ms);
            }
            (status, _) => {
                self.close(id);
                self.no_standalone(status);
            }
        }
    }

    /// A GET was answered with something that is no stream.
    pub(super) fn standalone_refused(&mut self, status: u16, _retry_ms: Option<u64>) {
        self.no_standalone(status);
    }

    pub(super) fn no_standalone(&mut self, status: u16) {
        self.standalone.off();
        self.notice(Notice::NoStandaloneStream { status });
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
