//! `cargo xtask mutants`: changes of the rule's code, one at a time; a test must notice each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::metadata::{self, cargo, workspace_root};
use crate::plan;
use crate::runner::{Runner, print_lines, read_log};

/// The version whose changes docs/proof.md speaks of.
const VERSION: &str = "27.1.0";
const SOURCE: &str = "crates/core/src";
/// What decides.
const FILES: [&str; 5] = ["policy.rs", "ledger.rs", "cursor.rs", "session.rs", "session/*.rs"];
/// Over a thousand changes, each built and tested in seconds.
const TIME_MAX: Duration = Duration::from_secs(6 * 60 * 60);
const INSTALL_TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// Exit codes of cargo-mutants: all caught, some missed, some ran out of time.
const CODES: [i32; 3] = [0, 2, 3];
/// Where the changes that no test can notice are explained, a row of a table for each.
const EXPLAINED: &str = "docs/proof.md";

/// What `cargo xtask mutants --help` says.
pub(crate) const USAGE: &str = "\
usage: cargo xtask mutants [FILE...] [--shard K/N]

  FILE         below crates/core/src, such as cursor.rs or session/claim.rs (policy.rs, ledger.rs,
               cursor.rs, session.rs and session/)
  --shard K/N  the Kth of N parts of the changes, counted from 0: so that several machines, or
               several evenings, do all of them

Each change of the code is built and tested in a copy of the workspace, two at a time. A change that
no test notices, and that docs/proof.md does not explain, is a failure. The first run builds
cargo-mutants below target/tools.
";

/// Tests every change of the files that are named below `crates/core/src`, or of all that decide.
/// Fails if one is missed that docs/proof.md does not explain.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let (files, shard) = read_args(args)?;
    let mut runner = plan::runner()?;
    let program = installed(&mut runner)?;
    let output = metadata::target_dir()?.join("xtask");
    let mut command = Command::new(program);
    command.args(["mutants", "--package", "rejoin-core", "--jobs", "2", "--colors", "never"]);
    for file in if files.is_empty() { &FILES } else { &files[..] } {
        command.args(["--file", &source(file)]);
    }
    if let Some(shard) = shard {
        command.args(["--shard", shard]);
    }
    command.arg("--output").arg(&output).current_dir(workspace_root());
    // The tests end at the first that fails, by a flag that is unstable.
    command.env("RUSTC_BOOTSTRAP", "1");
    runner.finding_command("mutants", command, TIME_MAX, &CODES, |log| {
        let explained = read_log(&workspace_root().join(EXPLAINED))?;
        let missed = read(&output.join("mutants.out/missed.txt"))?;
        let unexplained = unexplained(&missed, &explained);
        if !unexplained.is_empty() {
            print_lines(&unexplained);
            let count = unexplained.len();
            return Err(Failure::new(format!(
                "{count} changes that no test notices, listed above: test them, or explain them \
                 in {EXPLAINED}"
            )));
        }
        Ok(count(&read_log(log)?))
    })?;
    runner.print_summary();
    Ok(())
}

/// The files, each of which is there, and the part of the changes.
fn read_args<'a>(args: &[&'a str]) -> Result<(Vec<&'a str>, Option<&'a str>), Failure> {
    let (mut files, mut shard, mut rest) = (Vec::new(), None, args);
    loop {
        match rest {
            [] => return Ok((files, shard)),
            ["--shard", part, after @ ..] if is_part(part) => (shard, rest) = (Some(*part), after),
            ["--shard", ..] => {
                let text = "--shard needs a part, such as 0/4: the first of four";
                return Err(Failure::new(text));
            }
            [file, after @ ..] if workspace_root().join(source(file)).is_file() => {
                files.push(*file);
                rest = after;
            }
            [file, ..] => {
                return Err(Failure::new(format!(
                    "{file}: no such file below crates/core/src; for instance: cargo xtask \
                     mutants session/claim.rs"
                )));
            }
        }
    }
}

fn is_part(text: &str) -> bool {
    let numbers = text.split_once('/').map(|(k, n)| (k.parse::<u32>(), n.parse::<u32>()));
    matches!(numbers, Some((Ok(part), Ok(parts))) if part < parts)
}

/// A file as cargo-mutants knows it: from the root of the workspace.
fn source(file: &str) -> String {
    if file.starts_with(SOURCE) { file.to_owned() } else { format!("{SOURCE}/{file}") }
}

/// The pinned cargo-mutants below the target directory; built once, in minutes.
fn installed(runner: &mut Runner) -> Result<PathBuf, Failure> {
    let root = metadata::target_dir()?.join("tools");
    let program = root.join("bin/cargo-mutants");
    if !is_version(&program) {
        let mut install = cargo();
        install.args(["install", "cargo-mutants", "--locked", "--force", "--version"]);
        install.arg(format!("={VERSION}")).arg("--root").arg(root);
        let note = |_: &Path| Ok(VERSION.to_owned());
        runner.command("mutants-install", install, INSTALL_TIME_MAX, note)?;
    }
    Ok(program)
}

fn is_version(program: &Path) -> bool {
    let output = Command::new(program).args(["mutants", "--version"]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(VERSION))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))
}

/// The missed changes that no row explains; one row explains one change. Lines move, so a row names
/// what is changed in which function: `replace > with >= in Session::enqueue`.
fn unexplained(missed: &str, explained: &str) -> Vec<String> {
    // A bar inside a table is written `\|`.
    let explained = explained.replace(r"\|", "|");
    let mut rows: Vec<&str> = explained.lines().flat_map(|line| line.split('`')).collect();
    let is_explained = |line: &&str| {
        let name = line.split_once(": ").map_or(*line, |(_, name)| name);
        match rows.iter().position(|row| *row == name) {
            Some(at) => {
                rows.swap_remove(at);
                false
            }
            None => true,
        }
    };
    missed.lines().filter(is_explained).map(str::to_owned).collect()
}

/// The count of a run: `12 mutants tested in 3m: 11 caught, 1 unviable`.
fn count(log: &str) -> String {
    let is_count = |line: &&str| line.contains(" tested in ");
    log.lines().rev().find(is_count).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_be_named_below_the_source_or_the_workspace() {
        assert_eq!(source("session/claim.rs"), "crates/core/src/session/claim.rs");
        assert_eq!(source("crates/core/src/policy.rs"), "crates/core/src/policy.rs");
    }

    #[test]
    fn files_and_a_part_of_the_changes_are_read_and_what_names_neither_is_refused() {
        let read = |args: &[&str]| {
            let (files, shard) = read_args(args).map_err(|failure| failure.to_string())?;
            Ok::<_, String>((files.len(), shard.map(str::to_owned)))
        };
        assert_eq!(read(&[]), Ok((0, None)));
        assert_eq!(read(&["cursor.rs", "--shard", "1/4"]), Ok((1, Some("1/4".to_owned()))));
        for part in ["4/4", "x", "1/", "-1/2"] {
            assert!(read(&["--shard", part]).is_err_and(|told| told.contains("such as 0/4")));
        }
        assert!(read(&["cursr.rs"]).is_err_and(|told| told.contains("no such file")));
    }

    #[test]
    fn a_row_explains_one_change_wherever_it_stands() {
        let explained = "| `replace > with >= in Session::enqueue` | equal is impossible |\n\
            | `replace && with \\|\\| in a` | no difference |\n";
        assert!(unexplained("a.rs:1:2: replace && with || in a", explained).is_empty());
        let one =
            "crates/core/src/session/waiting.rs:141:93: replace > with >= in Session::enqueue";
        assert!(unexplained(one, explained).is_empty());
        let other =
            "crates/core/src/session/waiting.rs:150:3: replace > with < in Session::enqueue";
        assert_eq!(unexplained(other, explained), [other]);
        assert_eq!(unexplained(&format!("{one}\n{one}\n"), explained), [one]);
    }

    #[test]
    fn the_step_says_how_many_changes_were_tested() {
        let log = "Found 3 mutants to test\n3 mutants tested in 9s: 2 caught, 1 unviable\n";
        assert_eq!(count(log), "3 mutants tested in 9s: 2 caught, 1 unviable");
        assert_eq!(count(""), "");
    }
}
