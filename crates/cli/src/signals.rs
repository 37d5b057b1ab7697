//! SIGINT and SIGTERM: the first asks for a graceful end, the second for an end at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the process, caught from [`Signals::install`] on.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// SIGINT, Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl StopSignal {
    /// What a shell reports of a process this signal ended: 128 + its number.
    pub(crate) fn exit_status(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

impl Signals {
    /// Catches both signals. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// When the operating system refuses a handler.
    pub(crate) fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next signal. Cancel safe: a signal that arrives between two calls is kept.
    pub(crate) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => StopSignal::Interrupt,
            Some(()) = self.terminate.recv() => StopSignal::Terminate,
            // Both closed: the runtime is ending, and nothing can be waited for any more.
            else => StopSignal::Terminate,
        }
    }
}
