//! Counts exchanges: those that run, and how they ended.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::PassError;
use crate::metrics::{Ended, Metrics};

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedEnd {
    /// The server's whole answer was passed on.
    Answered,
    /// The client left before that.
    ClientLeft,
    /// The server gave no answer, or broke it off.
    ServerFailed,
    /// The gateway stopped before the answer was whole.
    Stopped,
    /// Nothing was sent to the server, for lack of a seat or because the gateway is about to stop.
    Refused,
}

impl PassedEnd {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Answered, Self::ClientLeft, Self::ServerFailed, Self::Stopped, Self::Refused];

    /// The value of the label `ended`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::ClientLeft => "client_left",
            Self::ServerFailed => "server_failed",
            Self::Stopped => "stopped",
            Self::Refused => "refused",
        }
    }
}

impl From<&PassError> for PassedEnd {
    fn from(error: &PassError) -> Self {
        match error {
            PassError::Draining | PassError::Seat(_) => Self::Refused,
            PassError::Exchange(_) => Self::ServerFailed,
            PassError::Stopped { .. } => Self::Stopped,
        }
    }
}

/// One exchange. Counted as running until it is dropped, and then by its end.
pub(super) struct Tally {
    running: Gauge,
    ended: Family<Ended, Counter>,
    end: PassedEnd,
}

impl Tally {
    /// Counts an exchange that begins. Its end, unless another one is told: the client left.
    pub(super) fn start(metrics: &Metrics) -> Self {
        let running = metrics.passed_exchanges_running.clone();
        running.inc();
        Self { running, ended: metrics.passed_exchanges.clone(), end: PassedEnd::ClientLeft }
    }

    /// Says how it ends.
    pub(super) fn ends(&mut self, end: PassedEnd) {
        self.end = end;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.running.dec();
        self.ended.get_or_create(&Ended { ended: self.end.name() }).inc();
    }
}
