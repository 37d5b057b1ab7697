//! `cargo xtask healthy`, `isolation`, `soak`: proofs by a program that takes its time.

use std::time::Duration;

use crate::failure::Failure;
use crate::metadata::{cargo, python, workspace_root};
use crate::plan;
use crate::runner::{Runner, print_lines, tail};

const MINUTE: Duration = Duration::from_secs(60);
/// Lines of the log that are shown when it passed: the table and what explains it.
const LINES_MAX: usize = 170;

/// Builds the release binary and the Rust SDK's client, then runs `e2e/healthy/healthy.py ARGS`.
pub(crate) fn healthy(args: &[&str]) -> Result<(), Failure> {
    let mut runner = built()?;
    let mut client = cargo();
    // Its folder decides where it is built: see its `.cargo/config.toml`.
    client.current_dir(workspace_root().join("e2e/rmcp-client"));
    client.args(["build", "--locked", "--release"]);
    runner.command("client", client, 15 * MINUTE, |_| Ok(String::new()))?;
    run(&mut runner, "healthy", "e2e/healthy/healthy.py", args)?;
    runner.print_summary();
    Ok(())
}

/// Builds the release binary, then runs `e2e/proofs/NAME.py ARGS`.
pub(crate) fn prove(name: &str, args: &[&str]) -> Result<(), Failure> {
    let mut runner = built()?;
    run(&mut runner, name, &format!("e2e/proofs/{name}.py"), args)?;
    runner.print_summary();
    Ok(())
}

fn built() -> Result<Runner, Failure> {
    let mut runner = plan::runner()?;
    plan::build(&mut runner)?;
    Ok(runner)
}

fn run(runner: &mut Runner, step: &str, program: &str, args: &[&str]) -> Result<(), Failure> {
    runner.command(step, python(program, args), 30 * MINUTE, |log| {
        print_lines(&tail(log, LINES_MAX));
        Ok(String::new())
    })
}
