//! `cargo xtask healthy`: proof that healthy traffic is left alone.

use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::metadata::{cargo, target_dir, workspace_root};
use crate::runner::{Runner, print_lines, tail};

const MINUTE: Duration = Duration::from_secs(60);
/// Lines of the log that are shown when it passed: the table and what explains it.
const LINES_MAX: usize = 170;

/// Builds the release binary and the Rust SDK's client, then runs `e2e/healthy/healthy.py ARGS`.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let mut runner = Runner::new(&target_dir()?.join("xtask"))?;
    let note = |_: &std::path::Path| Ok(String::new());
    let mut build = cargo();
    build.args(["build", "--locked", "--release", "--package", "rejoin"]);
    runner.command("build", build, 30 * MINUTE, note)?;
    let mut client = cargo();
    // Its folder decides where it is built: see its `.cargo/config.toml`.
    client.current_dir(workspace_root().join("e2e/rmcp-client"));
    client.args(["build", "--locked", "--release"]);
    runner.command("client", client, 15 * MINUTE, note)?;
    let mut healthy = Command::new("python3");
    healthy
        .arg("e2e/healthy/healthy.py")
        .args(args)
        .current_dir(workspace_root())
        // Python buffers a log file by the block; a stopped run must show where it stood.
        .env("PYTHONUNBUFFERED", "1");
    runner.command("healthy", healthy, 30 * MINUTE, |log| {
        print_lines(&tail(log, LINES_MAX));
        Ok(String::new())
    })?;
    runner.print_summary();
    Ok(())
}
