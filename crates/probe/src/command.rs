//! Commands of the user: one that counts executions, one that restarts the server.

use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use crate::limits::{COMMAND_MAX_MS, ms};
use crate::session::Trouble;

/// Runs a command line by `sh -c`; gives what it prints.
///
/// # Errors
/// It failed, or did not end in time.
pub(crate) async fn run(option: &str, line: &str) -> Result<String, Trouble> {
    let failed = |what: String| Trouble::Unexpected(format!("the command of {option} {what}"));
    let running = Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let output = timeout(ms(COMMAND_MAX_MS), running)
        .await
        .map_err(|_| failed(format!("did not end within {COMMAND_MAX_MS} ms")))?
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command line that may leave a server behind: what it prints is not waited for.
///
/// # Errors
/// As [`run`].
pub(crate) async fn run_silently(option: &str, line: &str) -> Result<(), Trouble> {
    run(option, &format!("{{ {line}\n}} >/dev/null 2>&1")).await.map(drop)
}

/// The number that a counting command prints.
///
/// # Errors
/// It failed, or printed no number.
pub(crate) async fn count(line: &str) -> Result<u64, Trouble> {
    let printed = run("--count-cmd", line).await?;
    let number = printed.split_whitespace().next().and_then(|word| word.parse().ok());
    number.ok_or_else(|| {
        let what = "the command of --count-cmd printed no number: how often tools ran so far";
        Trouble::Unexpected(what.to_owned())
    })
}
