//! `cargo xtask matrix`: the wire matrix in front of each of its servers.
//!
//! A case that does not apply to a server is left out by name, never passed over in silence: the
//! table of `crates/cli/tests/matrix/needs.rs` names it, this run shows that it fails there for
//! the reason of the table, and that all others ran.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::metadata::{cargo, python};
use crate::needs::{CASES, Case, Kind, VARIABLE};
use crate::runner::{Runner, print_lines, read_log};
use crate::test_count::TestCount;

const MINUTE: Duration = Duration::from_secs(60);

/// Runs the matrix in front of each of `kinds`.
pub(crate) fn steps(runner: &mut Runner, kinds: &[Kind]) -> Result<(), Failure> {
    for kind in kinds {
        install(runner, *kind)?;
    }
    let mut cases = BTreeSet::new();
    runner.command("matrix-list", command(Kind::Stdio, &["--list"]), 40 * MINUTE, |log| {
        cases = listed(&read_log(log)?);
        check_names(&CASES, &cases)?;
        Ok(format!("{} cases", cases.len()))
    })?;
    for kind in kinds {
        run(runner, *kind, cases.len())?;
    }
    Ok(())
}

/// Installs the pinned server, unless it is built in.
fn install(runner: &mut Runner, kind: Kind) -> Result<(), Failure> {
    let peer = match kind {
        Kind::Stdio => return Ok(()),
        Kind::Fastmcp => "fastmcp",
        Kind::Everything => "npm",
    };
    let command = python("e2e/peers.py", &[peer]);
    let name = format!("install-{peer}");
    runner.command(&name, command, 15 * MINUTE, |_| Ok(String::new()))
}

fn run(runner: &mut Runner, kind: Kind, total: usize) -> Result<(), Failure> {
    let left_out: Vec<Case> =
        CASES.into_iter().filter(|case| case.failure(kind).is_some()).collect();
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|case| case.name).collect();
        let arguments = [&["--exact"][..], &names].concat();
        let name = format!("matrix-{}-left-out", kind.name());
        runner.failing_command(&name, command(kind, &arguments), 20 * MINUTE, |log| {
            check_failures(&left_out, kind, &read_log(log)?)?;
            Ok(format!("{} cases fail because they do not apply", left_out.len()))
        })?;
    }
    let skips = left_out.iter().flat_map(|case| ["--skip", case.name]);
    let arguments: Vec<&str> = ["--exact"].into_iter().chain(skips).collect();
    let name = format!("matrix-{}", kind.name());
    runner.command(&name, command(kind, &arguments), 20 * MINUTE, |log| {
        let passed = check_count(&read_log(log)?, total - left_out.len())?;
        let reason = |case: &Case| {
            let reason = kind.lacks(case.need).unwrap_or_default();
            format!("does not apply: {}: {reason}", case.name)
        };
        print_lines(&left_out.iter().map(reason).collect::<Vec<_>>());
        let rest = left_out.len();
        Ok(format!("{passed} of {total} cases ran, {passed} passed, {rest} do not apply"))
    })
}

/// The matrix, built as `cargo test --workspace` builds it, so that nothing is built twice.
fn command(kind: Kind, arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["test", "--locked", "--workspace", "--test", "matrix", "--"]);
    command.args(arguments).env(VARIABLE, kind.name());
    command
}

/// The names of a list as the test runner prints it: `module::name: test`.
fn listed(log: &str) -> BTreeSet<String> {
    log.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Every name of the table, once, is the name of a test.
fn check_names(table: &[Case], listed: &BTreeSet<String>) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for Case { name, .. } in table {
        if !listed.contains(*name) {
            return Err(in_table(name, "no test of the matrix is called that"));
        }
        if !seen.insert(name) {
            return Err(in_table(name, "it stands there twice"));
        }
    }
    Ok(())
}

/// Every case that is left out says in the log that it does not apply.
fn check_failures(left_out: &[Case], kind: Kind, log: &str) -> Result<(), Failure> {
    for case in left_out {
        let said = case.failure(kind).is_some_and(|failure| log.contains(&failure));
        if !said {
            let what = format!("with {} it did not fail for want of {:?}", kind.name(), case.need);
            return Err(in_table(case.name, &what));
        }
    }
    Ok(())
}

fn in_table(name: &str, what: &str) -> Failure {
    Failure::new(format!("CASES in crates/cli/tests/matrix/needs.rs names {name}: {what}"))
}

/// All of `wanted` cases passed; gives their number.
fn check_count(log: &str, wanted: usize) -> Result<usize, Failure> {
    let TestCount { passed, ignored, .. } = TestCount::from_log(log);
    if passed != wanted || passed == 0 {
        let what = format!("{passed} cases passed and {ignored} were ignored, not {wanted} passed");
        return Err(Failure::new(what));
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_test_has_is_refused() {
        let log = "    Finished\nload::j_flat: test\nloss::l_late: test\n\n2 tests, 0 benchmarks\n";
        let listed = listed(log);
        assert_eq!(listed.len(), 2);
        let case = |name| Case { name, ..CASES[0] };
        assert!(check_names(&[case("load::j_flat"), case("loss::l_late")], &listed).is_ok());
        let failure = check_names(&[case("load::j")], &listed).unwrap_err().to_string();
        assert!(failure.ends_with("names load::j: no test of the matrix is called that"));
        assert!(check_names(&[case("load::j_flat"), case("load::j_flat")], &listed).is_err());
    }

    #[test]
    fn a_case_that_fails_for_another_reason_or_not_at_all_is_refused() {
        let kind = Kind::Everything;
        let log: String = CASES.iter().filter_map(|case| case.failure(kind)).collect();
        assert!(check_failures(&CASES, kind, &log).is_ok());
        for case in &CASES {
            let log = log.replace(&case.failure(kind).unwrap(), "Error: timed out");
            let failure = check_failures(&CASES, kind, &log).unwrap_err().to_string();
            assert!(failure.contains(case.name), "{failure}");
        }
    }

    #[test]
    fn fewer_cases_than_there_are_is_refused() {
        let log = "test result: ok. 88 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out";
        assert_eq!(check_count(log, 88).unwrap(), 88);
        assert!(check_count(log, 89).is_err());
        assert!(check_count("error: could not compile", 0).is_err());
    }

    #[test]
    fn over_stdio_every_case_applies() {
        assert!(CASES.iter().all(|case| case.failure(Kind::Stdio).is_none()));
    }
}
