//! Servers as processes: started by a test, found by the URL they print, ended by their pid.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::deadline::{DeadlineError, until};

/// Lines of output kept per process; later ones are counted only.
const LINES_MAX: usize = 20_000;

/// Lines of the log shown when a test ends.
const TAIL_LINES: usize = 60;

/// A running server. It is killed when it is dropped; the end of its log is then written to
/// standard error, which the test runner shows for a failed test.
#[derive(Debug)]
pub struct Server {
    child: Child,
    output: Arc<Mutex<Vec<Line>>>,
}

/// One line of output.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    stdout: bool,
    text: String,
}

/// Why a server could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It ended before it printed its URL.
    #[error("the server ended with {status} before it printed a URL:\n{log}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// What it wrote.
        log: String,
    },
    /// It could not be signalled or watched.
    #[error("cannot {what} process {pid}: {reason}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The process.
        pid: u32,
        /// The system's reason.
        reason: String,
    },
    /// It did not do something in time.
    #[error(transparent)]
    Deadline(#[from] DeadlineError),
}

impl Server {
    /// Starts `program` with `arguments`, its standard input closed and its output captured.
    pub fn start<A: AsRef<OsStr>>(
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self, ProcessError> {
        Self::start_with(program, arguments, [], Stdio::null())
    }

    /// As [`Server::start`], with more variables in its environment.
    pub fn start_in<A: AsRef<OsStr>>(
        program: &str,
        arguments: impl IntoIterator<Item = A>,
        variables: impl IntoIterator<Item = (&'static str, PathBuf)>,
    ) -> Result<Self, ProcessError> {
        Self::start_with(program, arguments, variables, Stdio::null())
    }

    /// As [`Server::start`], with a standard input that ends when this process does, however it
    /// does: for a server that lives as long as a whole test program and then ends itself.
    pub fn start_tied<A: AsRef<OsStr>>(
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self, ProcessError> {
        Self::start_with(program, arguments, [], Stdio::piped())
    }

    fn start_with<A: AsRef<OsStr>>(
        program: &str,
        arguments: impl IntoIterator<Item = A>,
        variables: impl IntoIterator<Item = (&'static str, PathBuf)>,
        stdin: Stdio,
    ) -> Result<Self, ProcessError> {
        let mut child = Command::new(program)
            .args(arguments)
            .envs(variables)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| ProcessError::Start { program: program.to_owned(), source })?;
        let output = Arc::new(Mutex::new(Vec::new()));
        if let Some(stdout) = child.stdout.take() {
            capture(stdout, true, output.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            capture(stderr, false, output.clone());
        }
        Ok(Self { child, output })
    }

    /// Waits for the first `http://` URL on standard output whose line contains `marker`, and
    /// gives the address in it.
    pub async fn address(
        &mut self,
        marker: &str,
        limit: Duration,
    ) -> Result<SocketAddr, ProcessError> {
        let what = format!("a URL on standard output in a line with {marker:?}");
        until(&what, limit, async || {
            let found = self
                .lines(true)
                .iter()
                .filter(|line| line.contains(marker))
                .find_map(|line| address_in(line));
            match (found, self.child.try_wait()) {
                (Some(address), _) => Ok(Some(address)),
                (None, Ok(Some(status))) => {
                    Err(ProcessError::Ended { status, log: self.log_tail() })
                }
                _ => Ok(None),
            }
        })
        .await
    }

    /// Waits until a line of standard error contains `text`, and gives that line.
    pub async fn log_line(&self, text: &str, limit: Duration) -> Result<String, ProcessError> {
        let what = format!("a line of the log with {text:?}");
        until(&what, limit, async || {
            Ok(self.lines(false).into_iter().find(|line| line.contains(text)))
        })
        .await
    }

    /// Waits until a line of standard error contains `text` and an `http://` URL, and gives the
    /// address in that.
    pub async fn log_address(
        &self,
        text: &str,
        limit: Duration,
    ) -> Result<SocketAddr, ProcessError> {
        let what = format!("a URL in a line of the log with {text:?}");
        until(&what, limit, async || {
            let lines = self.lines(false);
            let mut found = lines.iter().filter(|line| line.contains(text));
            Ok(found.find_map(|line| address_in(line)))
        })
        .await
    }

    /// How many lines of standard error contain all of `texts`.
    pub fn log_count(&self, texts: &[&str]) -> usize {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let matches = |line: &&Line| !line.stdout && texts.iter().all(|t| line.text.contains(t));
        output.iter().filter(matches).count()
    }

    /// The lines written so far, to standard output or to standard error.
    pub fn lines(&self, stdout: bool) -> Vec<String> {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.iter().filter(|line| line.stdout == stdout).map(|line| line.text.clone()).collect()
    }

    /// The last lines written, to either.
    pub fn log_tail(&self) -> String {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = output.len().saturating_sub(TAIL_LINES);
        output[skipped..].iter().map(|line| format!("| {}\n", line.text)).collect()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory now, in bytes.
    pub fn resident_bytes(&self) -> Result<u64, ProcessError> {
        let pid = self.pid();
        let failed = |reason: String| ProcessError::System { what: "measure", pid, reason };
        let text = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|error| failed(error.to_string()))?;
        resident_in(&text).ok_or_else(|| failed("no VmRSS".into()))
    }

    /// Kills the server (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) -> Result<ExitStatus, ProcessError> {
        let pid = self.pid();
        let failed = |error: std::io::Error| ProcessError::System {
            what: "kill",
            pid,
            reason: error.to_string(),
        };
        self.child.kill().map_err(failed)?;
        self.child.wait().map_err(failed)
    }

    /// Waits at most `limit` until the server ended by itself, and gives how.
    pub async fn ended(&mut self, limit: Duration) -> Result<ExitStatus, ProcessError> {
        let pid = self.pid();
        until("the server's end", limit, async || {
            self.child.try_wait().map_err(|error| ProcessError::System {
                what: "watch",
                pid,
                reason: error.to_string(),
            })
        })
        .await
    }

    /// Asks the server to end (SIGTERM), waits at most `limit`, and gives how it ended.
    pub async fn end(&mut self, limit: Duration) -> Result<ExitStatus, ProcessError> {
        let pid = self.pid();
        // A pid is a positive i32 on Linux.
        kill(Pid::from_raw(pid as i32), Signal::SIGTERM).map_err(|error| ProcessError::System {
            what: "signal",
            pid,
            reason: error.to_string(),
        })?;
        self.ended(limit).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process ended already, which is what is wanted.
        let _ended = self.child.kill().is_err() || self.child.wait().is_err();
        eprintln!("the server's last lines:\n{}", self.log_tail());
    }
}

fn capture(stream: impl Read + Send + 'static, stdout: bool, output: Arc<Mutex<Vec<Line>>>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(count) if count > 0) {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            let mut lines = output.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() < LINES_MAX {
                lines.push(Line { stdout, text });
            }
            bytes.clear();
        }
    });
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("http://")?;
    let end = rest.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::WAIT;

    fn shell(script: &str) -> Server {
        Server::start("/bin/sh", ["-c", script]).unwrap()
    }

    #[tokio::test]
    async fn the_address_is_read_from_the_line_with_the_marker() {
        let script = "echo starting; echo Listens on http://127.0.0.1:81/mcp now; exec sleep 30";
        let mut server = shell(script);
        let address = server.address("Listens", WAIT).await.unwrap();
        assert_eq!(address, "127.0.0.1:81".parse().unwrap());
        assert!(server.resident_bytes().unwrap() > 0);
        assert!(!server.end(WAIT).await.unwrap().success());
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_is_reported_with_its_log() {
        let error = shell("echo no such option >&2; exit 2").address("Listens", WAIT).await;
        let message = error.unwrap_err().to_string();
        assert!(message.contains("exit status: 2"), "{message}");
    }

    #[tokio::test]
    async fn a_tied_server_ends_with_its_standard_input() {
        let script = "echo up on http://127.0.0.1:81/; cat; exit 7";
        let mut server = Server::start_tied("/bin/sh", ["-c", script]).unwrap();
        server.address("up", WAIT).await.unwrap();
        assert!(server.child.try_wait().unwrap().is_none());
        drop(server.child.stdin.take());
        assert_eq!(server.ended(WAIT).await.unwrap().code(), Some(7));
    }

    #[tokio::test]
    async fn a_line_of_the_log_can_be_awaited() {
        let server = shell("echo stream owed >&2; exec sleep 30");
        assert_eq!(server.log_line("owed", WAIT).await.unwrap(), "stream owed");
        assert!(server.log_line("never", Duration::from_millis(10)).await.is_err());
        assert_eq!(server.log_count(&["stream", "owed"]), 1);
        assert_eq!(server.log_count(&["stream", "never"]), 0);
    }
}
