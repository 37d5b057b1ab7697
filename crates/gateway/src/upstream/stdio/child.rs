//! A child process in a process group of its own: started, watched, ended, reaped.
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use std::{env, io};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::OUTPUT_DRAIN;
use super::program::Program;
use crate::upstream::CloseReason;

/// Shortest and longest time between two looks at a process group that is being ended.
const GROUP_POLL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// Time a process group has to be gone after SIGKILL, which only the kernel can delay.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// The pipes of a child.
pub(super) struct Pipes {
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: ChildStderr,
}

/// A running child and its group.
pub(super) struct Process {
    child: Child,
    group: Group,
}

/// Starts `program` as the leader of a new process group.
pub(super) fn start(program: &Program) -> io::Result<(Process, Pipes)> {
    let mut child = program
        .command()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let group = Group { id: id.map(Pid::from_raw), gone: false };
    let missing = || io::Error::other("a pipe of the child is missing");
    let stdin = child.stdin.take().ok_or_else(missing)?.into_owned_fd()?;
    let stdout = child.stdout.take().ok_or_else(missing)?.into_owned_fd()?;
    let pipes = Pipes {
        stdin: pipe::Sender::from_owned_fd(stdin)?,
        stdout: pipe::Receiver::from_owned_fd(stdout)?,
        stderr: child.stderr.take().ok_or_else(missing)?,
    };
    Ok((Process { child, group }, pipes))
}

/// What to do if a command cannot be started.
pub(in crate::upstream) fn remedy(command: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if command.starts_with('~') => {
            "no shell expands the ~: write the whole path"
        }
        io::ErrorKind::NotFound if command.contains(char::is_whitespace) => {
            "this is looked for as the name of one program, with its spaces: arguments are words \
             of their own behind it (in a file: `args`)"
        }
        io::ErrorKind::IsADirectory => "it is a folder: name the program in it",
        io::ErrorKind::NotFound => "check its name, and that it is installed and on PATH",
        io::ErrorKind::PermissionDenied => {
            "make it executable (chmod +x), or name the program that runs it"
        }
        _ => "check that it is a program for this machine",
    }
}

/// Looks for a command as [`start`] will, without starting it. Nothing is known without a `PATH`.
pub(super) fn find(program: &Program) -> io::Result<()> {
    let command = &program.command;
    if command.contains('/') {
        return executable(&program.seen(Path::new(command)));
    }
    let Some(folders) = program.search_path() else { return Ok(()) };
    let mut missing = Err(io::Error::from(Errno::ENOENT));
    for folder in env::split_paths(&folders) {
        match executable(&program.seen(&folder).join(command)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => missing = Err(error),
            Err(_) => {}
        }
    }
    missing
}

/// Sees whether a program can be started in this directory.
pub(super) fn enter(directory: &Path) -> io::Result<()> {
    // To look at what is inside takes the leave to enter.
    std::fs::metadata(directory.join(".")).map(|_inside| ())
}

fn executable(path: &Path) -> io::Result<()> {
    let found = std::fs::metadata(path)?;
    if found.is_dir() {
        return Err(Errno::EISDIR.into());
    }
    let runs = found.is_file() && found.permissions().mode() & 0o111 != 0;
    if runs { Ok(()) } else { Err(Errno::EACCES.into()) }
}

/// A process group. What is left of it when this is dropped is killed.
struct Group {
    id: Option<Pid>,
    gone: bool,
}

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id
            && let Err(error) = killpg(id, signal)
            && error != Errno::ESRCH
        {
            tracing::warn!(group = id.as_raw(), %signal, %error, "not signalled");
        }
    }

    /// Whether no process is left that still runs. The leader must have been reaped.
    fn is_empty(&self) -> bool {
        let Some(id) = self.id else { return true };
        // Where this process is the init of a container it inherits the group's orphans.
        let orphans = Pid::from_raw(-id.as_raw());
        while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
            waitpid(orphans, Some(WaitPidFlag::WNOHANG))
        {}
        killpg(id, None) == Err(Errno::ESRCH) || has_only_zombies(id)
    }

    async fn empties_within(&self, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        let (mut poll, poll_max) = GROUP_POLL;
        while !self.is_empty() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(poll).await;
            poll = poll_max.min(poll * 2);
        }
        true
    }

    /// Ends what the leader left behind.
    async fn clear(&mut self, term_grace: Duration) {
        self.gone = self.is_empty();
        for (signal, grace) in [(Signal::SIGTERM, term_grace), (Signal::SIGKILL, KILL_GRACE)] {
            if !self.gone {
                self.signal(signal);
                self.gone = self.empties_within(grace).await;
            }
        }
        if !self.gone {
            let group = self.id.map(Pid::as_raw);
            tracing::warn!(group, "processes of a group are still there after SIGKILL");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.gone {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Whether all of a group has exited and only waits for an init that does not reap, as that of
/// many containers. `false` where the system cannot tell (no `/proc`).
fn has_only_zombies(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return false;
    };
    let mut zombies = 0;
    for process in processes.flatten() {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else {
            continue;
        };
        // proc_pid_stat(5): pid (comm) state ppid pgrp; comm may hold anything.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, pgrp) = (fields.next(), fields.nth(1));
        if pgrp.and_then(|pgrp| pgrp.parse().ok()) == Some(group.as_raw()) {
            if state != Some("Z") {
                return false;
            }
            zombies += 1;
        }
    }
    zombies > 0
}

/// Why a child is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The driver asked for it.
    End,
    /// The child closed its standard input.
    InputClosed,
    /// The child closed its standard output.
    OutputClosed,
}

/// Asks for the child's end when it is dropped, whatever the reason: its holder finished, failed,
/// or was dropped itself.
pub(super) struct EndOnDrop(pub(super) mpsc::Sender<Cause>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        // Full or closed: the end is on its way already.
        let _ = self.0.try_send(Cause::End);
    }
}

/// Waits until the session is over: the child exited, or nothing can come from it any more.
pub(super) async fn is_over(over: &mut watch::Receiver<bool>) {
    // An error means that the supervisor is gone, and the child with it.
    drop(over.wait_for(|over| *over).await);
}

/// Watches one child, ends it when asked, and reaps it and its group. Its wait for the child is
/// bounded by the graces; it depends on nobody who reads or writes the pipes.
pub(super) struct Supervisor {
    pub(super) process: Process,
    pub(super) causes: mpsc::Receiver<Cause>,
    pub(super) over: watch::Sender<bool>,
    pub(super) reason: oneshot::Sender<CloseReason>,
    pub(super) eof_grace: Duration,
    pub(super) term_grace: Duration,
    pub(super) stderr: JoinHandle<()>,
    /// The child counts until it is reaped.
    pub(super) permit: OwnedSemaphorePermit,
}

impl Supervisor {
    /// Runs until nothing is left of the child.
    pub(super) async fn run(self) {
        let Self { process, mut causes, over, reason, eof_grace, term_grace, stderr, permit } =
            self;
        let Process { mut child, mut group } = process;
        let (cause, exited) = tokio::select! {
            biased;
            cause = causes.recv() => (Some(cause.unwrap_or(Cause::End)), None),
            status = child.wait() => (None, Some(status)),
        };
        let exited = match (cause, exited) {
            // A broken pipe is often the first that is seen of an exit.
            (Some(Cause::OutputClosed | Cause::InputClosed), None) => {
                timeout(OUTPUT_DRAIN, child.wait()).await.ok()
            }
            (_, exited) => exited,
        };
        let mut reason = Some(reason);
        let mut publish = |close_reason| {
            if let Some(reason) = reason.take() {
                // Nobody waits for it when the driver is gone.
                let _ = reason.send(close_reason);
            }
        };
        if let (Some(status), true) = (&exited, cause != Some(Cause::End)) {
            publish(close_reason(status));
        }
        if exited.is_none() {
            if cause == Some(Cause::OutputClosed) {
                // No answer can come: the session is over before the child is.
                publish(CloseReason::OutputClosed);
                over.send_replace(true);
            }
            end(&mut child, &group, eof_grace, term_grace).await;
        }
        over.send_replace(true);
        if cause == Some(Cause::InputClosed) {
            publish(CloseReason::InputClosed);
        }
        group.clear(term_grace).await;
        let abort = stderr.abort_handle();
        if timeout(OUTPUT_DRAIN, stderr).await.is_err() {
            abort.abort();
        }
        drop(permit);
        publish(CloseReason::Ended);
    }
}

/// Ends a child whose standard input is closed or will be: EOF grace, SIGTERM, grace, SIGKILL.
async fn end(child: &mut Child, group: &Group, eof_grace: Duration, term_grace: Duration) {
    if timeout(eof_grace, child.wait()).await.is_ok() {
        return;
    }
    group.signal(Signal::SIGTERM);
    if timeout(term_grace, child.wait()).await.is_ok() {
        return;
    }
    group.signal(Signal::SIGKILL);
    // Only a kernel that cannot end the process delays this; it counts until then.
    if let Err(error) = child.wait().await {
        tracing::warn!(%error, "a child process could not be reaped");
    }
}

fn close_reason(status: &io::Result<ExitStatus>) -> CloseReason {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => CloseReason::Exited { code },
            (None, Some(signal)) => CloseReason::Signalled { signal },
            (None, None) => CloseReason::Lost { what: status.to_string() },
        },
        Err(error) => CloseReason::Lost { what: error.to_string() },
    }
}
