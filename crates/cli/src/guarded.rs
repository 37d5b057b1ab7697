//! Rejoin itself, as a person would start it: `rejoin serve` in a process of its own.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Longest wait for the line with the URL.
const START_MAX: Duration = Duration::from_secs(20);

/// Longest wait for the end after SIGTERM.
const END_MAX: Duration = Duration::from_secs(15);

/// Log lines shown when something failed.
const LOG_LINES_SHOWN: usize = 12;

/// The running gateway. Dropping it kills it; [`GuardedServer::end`] ends it in peace.
pub(crate) struct GuardedServer {
    address: SocketAddr,
    log: PathBuf,
    child: Child,
}

/// Why the gateway could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuardedError {
    /// The process could not be started.
    #[error("`rejoin serve` could not be started")]
    Start(#[from] io::Error),
    /// It did not print its URL.
    #[error("`rejoin serve` printed no URL; its log ends with:\n{log}")]
    NoUrl {
        /// The end of its log.
        log: String,
    },
}

impl GuardedServer {
    /// Starts `program serve` on a free port in front of this command; its log goes to a file.
    ///
    /// # Errors
    /// See [`GuardedError`].
    pub(crate) async fn start(
        program: &Path,
        upstream: &[&std::ffi::OsStr],
        log: PathBuf,
    ) -> Result<Self, GuardedError> {
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--"])
            .args(upstream)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
        let mut line = String::new();
        let mut output = BufReader::new(output);
        let printed = timeout(START_MAX, output.read_line(&mut line)).await;
        match (printed, address_in(&line)) {
            (Ok(Ok(_)), Some(address)) => Ok(Self { address, log, child }),
            _ => Err(GuardedError::NoUrl { log: end_of(&log) }),
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The end of its log, for a person to see what went wrong.
    pub(crate) fn log_end(&self) -> String {
        end_of(&self.log)
    }

    /// Asks it to end, waits, and kills it only if it does not.
    pub(crate) async fn end(mut self) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let asked = id.is_some_and(|id| kill(Pid::from_raw(id), Signal::SIGTERM).is_ok());
        if !asked || timeout(END_MAX, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// The address in `... http://ADDRESS/mcp ...`.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split_once("http://")?.1.split_once("/mcp")?.0.parse().ok()
}

fn end_of(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_the_line_that_serve_prints() {
        let line = "Rejoin listens on http://127.0.0.1:4711/mcp in front of: x http://y/mcp\n";
        assert_eq!(address_in(line), Some("127.0.0.1:4711".parse().unwrap()));
        assert_eq!(address_in("no gateway"), None);
    }
}
