//! SIGINT and SIGTERM: the first asks for a graceful end, the second for an end at once. SIGHUP, by
//! which a closed terminal tells, asks for a graceful end where it means nothing else.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the process, caught from [`Signals::install`] on.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// SIGINT, Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    Hangup,
}

impl StopSignal {
    /// What a shell reports of a process this signal ended: 128 + its number.
    pub(crate) fn exit_status(self) -> u8 {
        match self {
            Self::Hangup => 129,
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

impl Signals {
    /// Catches the signals; `hangup_ends`: SIGHUP too, unless it was ignored at the start, as by
    /// nohup. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// When the operating system refuses a handler.
    pub(crate) fn install(hangup_ends: bool) -> io::Result<Self> {
        let caught = hangup_ends && !is_hangup_ignored();
        Ok(Self {
            hangup: caught.then(|| signal(SignalKind::hangup())).transpose()?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next signal. Cancel safe: a signal that arrives between two calls is kept.
    pub(crate) async fn next(&mut self) -> StopSignal {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(()) = hangup => StopSignal::Hangup,
            Some(()) = self.interrupt.recv() => StopSignal::Interrupt,
            Some(()) = self.terminate.recv() => StopSignal::Terminate,
            // Both closed: the runtime is ending, and nothing can be waited for any more.
            else => StopSignal::Terminate,
        }
    }

    /// The next signal that may mean an end at once. SIGHUP never does: a terminal that is closed
    /// can send it twice, and a service manager right behind SIGTERM.
    pub(crate) async fn next_at_once(&mut self) -> StopSignal {
        loop {
            match self.next().await {
                StopSignal::Hangup => {}
                signal => return signal,
            }
        }
    }
}

/// Whether this process was started with SIGHUP ignored. Ask before it is caught.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores_hangup(&status)
}

/// Reads the mask of ignored signals, of which SIGHUP is the lowest bit (proc_pid_status(5)).
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_tells_of_nohup() {
        let status = |mask| format!("Name:\trejoin\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(!ignores_hangup(""));
    }
}
