//! The steps of each command, in their order.

use std::path::Path;
use std::time::Duration;

use crate::failure::Failure;
use crate::metadata::{cargo, python, workspace_root};
use crate::needs::Kind;
use crate::required::{NODE, PYTHON};
use crate::runner::{Runner, print_lines, read_log, tail};
use crate::test_count::TestCount;
use crate::{bench, fuzz, matrix, metadata, proofs, tidy};

const MINUTE: Duration = Duration::from_secs(60);
/// Lines of the end-to-end log that are shown when it passed.
const E2E_LINES_MAX: usize = 40;

/// How much `cargo xtask test` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Everything that needs no release build and no other software but Python.
    Quick,
    /// Everything.
    Full,
}

/// `cargo xtask tidy`.
pub(crate) fn tidy() -> Result<(), Failure> {
    let mut runner = runner()?;
    runner.check("tidy", || tidy::check_all(&workspace_root()))
}

/// `cargo xtask test`.
pub(crate) fn test(depth: Depth) -> Result<(), Failure> {
    PYTHON.require()?;
    if depth == Depth::Full {
        NODE.require()?;
    }
    let mut runner = runner()?;
    let fmt = ["fmt", "--all", "--check", "--", "--color", "never"];
    run_cargo(&mut runner, "fmt", 5, &fmt)?;
    runner.check("tidy", || tidy::check_all(&workspace_root()))?;
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run_cargo(&mut runner, "clippy", 30, &clippy)?;
    let mut tests = cargo();
    tests.args(["test", "--locked", "--workspace"]);
    runner.command("test", tests, 40 * MINUTE, note_tests)?;
    fuzz::replay_step(&mut runner)?;
    deny(&mut runner)?;
    if depth == Depth::Full {
        // Over stdio the matrix was among the tests.
        matrix::steps(&mut runner, &[Kind::Fastmcp, Kind::Everything])?;
        build_and_e2e(&mut runner, &["--all"])?;
        proofs::crash_step(&mut runner)?;
        proofs::bridge_step(&mut runner)?;
        bench::steps(&mut runner, "store", &["--quick"])?;
        proofs::model_step(&mut runner, &[])?;
        proofs::sim_step(&mut runner, &[])?;
        proofs::conformance_steps(&mut runner, &[])?;
    }
    runner.print_summary();
    if depth == Depth::Quick {
        println!("not done by --quick: the wire matrix over HTTP (cargo xtask matrix),");
        println!("release build, end to end (cargo xtask e2e), crash, bridge, bench, model, sim,");
        println!("conformance");
    }
    Ok(())
}

/// `cargo xtask e2e`.
pub(crate) fn e2e(args: &[&str]) -> Result<(), Failure> {
    let mut runner = runner()?;
    build_and_e2e(&mut runner, args)?;
    runner.print_summary();
    Ok(())
}

/// `cargo xtask matrix`, over all servers if none is named.
pub(crate) fn matrix(names: &[&str]) -> Result<(), Failure> {
    let named = names.iter().map(|name| {
        let known = Kind::ALL.map(Kind::name).join(", ");
        Kind::named(name)
            .ok_or_else(|| Failure::new(format!("no server is called {name:?}: there are {known}")))
    });
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let mut runner = runner()?;
    matrix::steps(&mut runner, if named.is_empty() { &Kind::ALL } else { &named })?;
    runner.print_summary();
    Ok(())
}

pub(crate) fn runner() -> Result<Runner, Failure> {
    Runner::new(&metadata::target_dir()?.join("xtask"))
}

fn run_cargo(
    runner: &mut Runner,
    name: &str,
    minutes_max: u32,
    args: &[&str],
) -> Result<(), Failure> {
    let mut command = cargo();
    command.args(args);
    runner.command(name, command, minutes_max * MINUTE, |_| Ok(String::new()))
}

/// A run in which no test ran is a failure: a filter or a broken manifest must not look green.
pub(crate) fn note_tests(log: &Path) -> Result<String, Failure> {
    let count = TestCount::from_log(&read_log(log)?);
    if count.passed == 0 {
        return Err(Failure::new("no test ran"));
    }
    let TestCount { binaries, passed, ignored } = count;
    Ok(format!("{passed} passed, {ignored} left out, in {binaries} binaries"))
}

/// Licences, bans and sources are always checked by tidy; cargo-deny is a second opinion.
fn deny(runner: &mut Runner) -> Result<(), Failure> {
    let is_installed =
        cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if is_installed {
        return run_cargo(runner, "deny", 5, &["deny", "check", "bans", "licenses", "sources"]);
    }
    runner.check("deny", || {
        Ok("cargo-deny is not installed: tidy alone checked deny.toml; no advisories".to_owned())
    })
}

/// Builds the release binary.
pub(crate) fn build(runner: &mut Runner) -> Result<(), Failure> {
    run_cargo(runner, "build", 30, &["build", "--locked", "--release", "--package", "rejoin"])
}

fn build_and_e2e(runner: &mut Runner, args: &[&str]) -> Result<(), Failure> {
    NODE.require()?;
    PYTHON.require()?;
    build(runner)?;
    runner.command("e2e", python("e2e/run.py", args), 60 * MINUTE, |log| {
        print_lines(&tail(log, E2E_LINES_MAX));
        Ok(note_rows(&read_log(log)?))
    })
}

/// The last line of a run, as the note of its step: `63 passed, 0 failed`. There is none if
/// no row ran, as with `--install`.
pub(crate) fn note_rows(log: &str) -> String {
    let is_count = |line: &&str| line.ends_with(" failed") && line.contains(" passed, ");
    log.lines().rev().find(is_count).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_to_end_step_says_how_many_rows_passed() {
        let log = "ok    tools  ts\n\n63 passed, 0 failed\n";
        assert_eq!(note_rows(log), "63 passed, 0 failed");
        assert_eq!(note_rows("installed\n"), "");
    }
}
