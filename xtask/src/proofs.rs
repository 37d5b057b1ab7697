//! `cargo xtask healthy`, `conformance`, `proxies`, `isolation`, `bridge`, `soak`, `crash`,
//! `landscape`, `churn`, `model`, `sim`: proofs by programs of their own.

use std::time::Duration;

use crate::failure::Failure;
use crate::metadata::{cargo, python, workspace_root};
use crate::plan;
use crate::required::{NODE, PYTHON};
use crate::runner::{Runner, print_lines, read_log, tail};

const MINUTE: Duration = Duration::from_secs(60);
/// Lines of the log that are shown when it passed: the table and what explains it.
const LINES_MAX: usize = 170;
/// What the simulation can be asked for.
const SIM_USAGE: &str = include_str!("../../sim/src/usage.txt");
/// Sessions of a day of churn, if nobody says how many.
const CHURN_SESSIONS: &str = "100000";

/// Builds the release binary and the Rust SDK's client, then runs `e2e/healthy/healthy.py ARGS`.
pub(crate) fn healthy(args: &[&str]) -> Result<(), Failure> {
    let mut runner = built()?;
    build_apart(&mut runner, "client", "e2e/rmcp-client", &["--release"])?;
    run(&mut runner, "healthy", "e2e/healthy/healthy.py", args)?;
    runner.print_summary();
    Ok(())
}

/// Builds the release binary, then runs the official suites.
pub(crate) fn conformance(args: &[&str]) -> Result<(), Failure> {
    NODE.require()?;
    PYTHON.require()?;
    let mut runner = built()?;
    conformance_steps(&mut runner, args)?;
    runner.print_summary();
    Ok(())
}

/// Builds the Rust SDK's server, then runs the official suites against it; the release binary is
/// there.
pub(crate) fn conformance_steps(runner: &mut Runner, args: &[&str]) -> Result<(), Failure> {
    build_apart(runner, "conformance-server", "e2e/conformance-server", &[])?;
    let program = python("e2e/conformance/conformance.py", args);
    runner.command("conformance", program, 15 * MINUTE, |log| {
        print_lines(&tail(log, LINES_MAX));
        Ok(plan::note_rows(&read_log(log)?))
    })
}

/// Builds a package that is no member of the workspace. Its folder decides where: see its
/// `.cargo/config.toml`.
pub(crate) fn build_apart(
    runner: &mut Runner,
    step: &str,
    folder: &str,
    args: &[&str],
) -> Result<(), Failure> {
    let mut build = cargo();
    build.current_dir(workspace_root().join(folder));
    build.args(["build", "--locked"]).args(args);
    runner.command(step, build, 15 * MINUTE, |_| Ok(String::new()))
}

/// Builds the release binary, then runs `e2e/proxies/proxies.py ARGS`: nginx in front and behind.
pub(crate) fn proxies(args: &[&str]) -> Result<(), Failure> {
    PYTHON.require()?;
    let mut runner = built()?;
    run(&mut runner, "proxies", "e2e/proxies/proxies.py", args)?;
    runner.print_summary();
    Ok(())
}

/// Kills gateways in the midst of calls, as often as CI does; the release binary is there.
pub(crate) fn crash_step(runner: &mut Runner) -> Result<(), Failure> {
    run(runner, "crash", "e2e/proofs/crash.py", &["--rounds", "100"])
}

/// A stock host behind the bridge; the release binary is there.
pub(crate) fn bridge_step(runner: &mut Runner) -> Result<(), Failure> {
    run(runner, "bridge", "e2e/proofs/bridge.py", &[])
}

/// Builds and runs the model check (docs/proof.md).
pub(crate) fn model(args: &[&str]) -> Result<(), Failure> {
    let mut runner = plan::runner()?;
    model_step(&mut runner, args)?;
    runner.print_summary();
    Ok(())
}

/// As `model`, as a step of something larger.
pub(crate) fn model_step(runner: &mut Runner, args: &[&str]) -> Result<(), Failure> {
    build_apart(runner, "model-build", "model", &["--release"])?;
    let mut program = cargo();
    program.current_dir(workspace_root().join("model"));
    program.args(["run", "--quiet", "--locked", "--release", "--"]).args(args);
    runner.command("model", program, 15 * MINUTE, |log| {
        print_lines(&tail(log, LINES_MAX));
        Ok(String::new())
    })
}

/// Builds and runs the simulation (docs/proof.md). What it can be asked for needs no build.
pub(crate) fn sim(args: &[&str]) -> Result<(), Failure> {
    if args.iter().any(|arg| ["--help", "-h"].contains(arg)) {
        print!("{SIM_USAGE}");
        return Ok(());
    }
    let mut runner = plan::runner()?;
    sim_step(&mut runner, args)?;
    runner.print_summary();
    Ok(())
}

/// As `sim`, as a step of something larger. First its checkers are shown broken histories.
pub(crate) fn sim_step(runner: &mut Runner, args: &[&str]) -> Result<(), Failure> {
    let folder = workspace_root().join("sim");
    let mut tests = cargo();
    tests.current_dir(&folder).args(["test", "--locked", "--quiet"]);
    runner.command("sim-checkers", tests, 15 * MINUTE, plan::note_tests)?;
    build_apart(runner, "sim-build", "sim", &[])?;
    let mut program = cargo();
    program.current_dir(&folder).args(["run", "--quiet", "--locked", "--"]).args(args);
    runner.command("sim", program, 60 * MINUTE, |log| {
        print_lines(&tail(log, LINES_MAX));
        Ok(format!("whole log: {}", log.display()))
    })
}

/// Builds the release binary, then runs `e2e/proofs/NAME.py ARGS`.
pub(crate) fn prove(name: &str, args: &[&str]) -> Result<(), Failure> {
    let mut runner = built()?;
    run(&mut runner, name, &format!("e2e/proofs/{name}.py"), args)?;
    runner.print_summary();
    Ok(())
}

/// Runs a day of churn over a log in a file, optimised (`crates/gateway/tests/churn.rs`).
pub(crate) fn churn(args: &[&str]) -> Result<(), Failure> {
    let sessions = match args {
        [] => CHURN_SESSIONS,
        ["--sessions", sessions] if sessions.parse().is_ok_and(|count: u32| count > 0) => *sessions,
        _ => return Err(Failure::new("churn takes --sessions N and nothing else")),
    };
    let test = |last: &[&str]| {
        let mut command = cargo();
        command.args(["test", "--locked", "--release", "--package", "rejoin-gateway"]);
        command.args(["--test", "churn"]).args(last).env("REJOIN_CHURN_SESSIONS", sessions);
        command
    };
    let mut runner = plan::runner()?;
    runner.command("churn-build", test(&["--no-run"]), 30 * MINUTE, |_| Ok(String::new()))?;
    runner.command("churn", test(&["--", "--nocapture"]), 20 * MINUTE, |log| {
        print_lines(&tail(log, LINES_MAX));
        Ok(format!("{sessions} sessions"))
    })?;
    runner.print_summary();
    Ok(())
}

fn built() -> Result<Runner, Failure> {
    let mut runner = plan::runner()?;
    plan::build(&mut runner)?;
    Ok(runner)
}

fn run(runner: &mut Runner, step: &str, program: &str, args: &[&str]) -> Result<(), Failure> {
    runner.command(step, python(program, args), 60 * MINUTE, |log| {
        print_lines(&tail(log, LINES_MAX));
        Ok(String::new())
    })
}
