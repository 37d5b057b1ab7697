//! `cargo xtask fuzz`: the targets of `fuzz/` under libFuzzer, with the pinned stable compiler and
//! nothing installed: coverage is one pass of LLVM that its flags switch on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::metadata::{cargo, target_dir, workspace_root};
use crate::plan;
use crate::runner::{Runner, read_log};
use crate::test_count::TestCount;

const MINUTE: Duration = Duration::from_secs(60);
/// Seconds for each target, if nobody says how long.
const SECONDS: u64 = 60;
/// Nothing takes longer than a day.
const RUN_MAX: Duration = Duration::from_secs(24 * 3_600);
/// An input that takes longer is a finding.
const INPUT_SECONDS_MAX: u32 = 25;
/// A target that needs more is a finding.
const MEMORY_MIB_MAX: u32 = 2_048;
/// Longest inputs in bytes; longer ones of these targets are slow and say no more.
const INPUT_BYTES_MAX: [(&str, u32); 7] = [
    ("event_id", 64),
    ("http", 1_024),
    ("options", 1_024),
    ("printed", 512),
    ("session", 160),
    ("sqlite", 96),
    ("sse", 512),
];
/// Longest inputs of all other targets.
const INPUT_BYTES_MAX_ELSE: u32 = 4_096;
/// Exit codes of libFuzzer: nothing found; too slow, too much memory, a panic.
const CODES: [i32; 4] = [0, 70, 71, 77];
/// What a coverage-guided fuzzer needs to see of a program.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// What `cargo xtask fuzz --help` says, before the names of the targets.
const USAGE: &str = "\
usage: cargo xtask fuzz [TARGET...] [--seconds S | --runs N | --input FILE | --keep]

  TARGET        one or several (default: all), see below
  --seconds S   each for so long (60)
  --runs N      each for so many executions
  --input FILE  one input again, as a finding names it
  --keep        what was grown (target/fuzz/corpus) goes into fuzz/corpus, as far as it shows
                anything new

The first run builds the targets, in minutes; a C++ compiler is needed.";

/// What is asked of each target.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Task {
    Seconds(u64),
    Runs(u64),
    /// One input, again.
    Input(PathBuf),
    /// What was grown goes into the corpus, as far as it shows anything new.
    Keep,
}

/// What can be asked, and the targets that there are.
pub(crate) fn usage() -> Result<String, Failure> {
    Ok(format!("{USAGE}\n\ntargets: {}\n", targets()?.join(", ")))
}

/// `fuzz [TARGET...] [--seconds S | --runs N | --input FILE | --keep]`.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let known = targets()?;
    let (named, task) = read(args, &known)?;
    let mut runner = plan::runner()?;
    let programs = build(&mut runner)?;
    let mut findings = Vec::new();
    for target in &named {
        let name = format!("fuzz-{target}");
        let command = command(target, &programs.join(target), &task)?;
        // One finding does not keep the other targets from being run.
        let ended = runner.finding_command(&name, command, RUN_MAX, &CODES, |log| {
            let text = read_log(log)?;
            match finding(target, &text) {
                Some(found) => findings.push(found),
                None if text.contains("ERROR: libFuzzer") => {
                    return Err(Failure::new(format!("{target}: the input is a finding")));
                }
                None => return note(&text),
            }
            Ok("1 finding, below".to_owned())
        });
        findings.extend(ended.err().map(|failure| failure.to_string()));
    }
    if findings.is_empty() {
        runner.print_summary();
        return Ok(());
    }
    Err(Failure::new(findings.join("\n")))
}

/// Replays what is kept of the corpus and of former findings, without libFuzzer: as a test that
/// finds the packages that the workspace's own tests have built.
pub(crate) fn replay_step(runner: &mut Runner) -> Result<(), Failure> {
    let mut tests = cargo();
    tests.current_dir(workspace_root().join("fuzz")).env("CARGO_TARGET_DIR", target_dir()?);
    tests.args(["test", "--locked"]);
    runner.command("fuzz-corpus", tests, 15 * MINUTE, |log| {
        let TestCount { passed, .. } = TestCount::from_log(&read_log(log)?);
        Ok(format!("{passed} passed"))
    })
}

/// The targets, by the names of their programs.
fn targets() -> Result<Vec<String>, Failure> {
    let folder = workspace_root().join("fuzz/fuzz_targets");
    let unreadable = |error| Failure::new(format!("cannot read {}: {error}", folder.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn read(args: &[&str], known: &[String]) -> Result<(Vec<String>, Task), Failure> {
    let (mut named, mut task, mut rest) = (Vec::new(), Task::Seconds(SECONDS), args);
    let number = |text: &str| match text.parse::<u64>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(Failure::new(format!("{text:?} is no number of seconds or runs"))),
    };
    loop {
        match rest {
            [] => break,
            ["--seconds", seconds, after @ ..] => {
                (task, rest) = (Task::Seconds(number(seconds)?), after)
            }
            ["--runs", runs, after @ ..] => (task, rest) = (Task::Runs(number(runs)?), after),
            ["--input", file, after @ ..] => (task, rest) = (Task::Input(file.into()), after),
            ["--keep", after @ ..] => (task, rest) = (Task::Keep, after),
            [name, after @ ..] if known.iter().any(|target| target == name) => {
                named.push((*name).to_owned());
                rest = after;
            }
            [other, ..] => {
                let known = known.join(", ");
                return Err(Failure::new(format!(
                    "fuzz knows no {other:?}: name targets ({known}), and one of --seconds S, \
                     --runs N, --input FILE, --keep"
                )));
            }
        }
    }
    if matches!(task, Task::Input(_)) && named.len() != 1 {
        return Err(Failure::new("--input FILE needs the one target that it is for"));
    }
    Ok((if named.is_empty() { known.to_vec() } else { named }, task))
}

/// Builds the programs; the folder that has them.
fn build(runner: &mut Runner) -> Result<PathBuf, Failure> {
    let host = host()?;
    let mut build = cargo();
    build.current_dir(workspace_root().join("fuzz")).env("RUSTFLAGS", COVERAGE);
    // With a target of its own, so that build scripts and macros are built without the flags.
    build.args(["build", "--locked", "--release", "--bins", "--features", "libfuzzer"]);
    build.args(["--target", &host]);
    runner.command("fuzz-build", build, 30 * MINUTE, |_| Ok(String::new()))?;
    Ok(target_dir()?.join("fuzz").join(host).join("release"))
}

/// The triple of this machine, as the compiler says it.
fn host() -> Result<String, Failure> {
    let output = Command::new("rustc").arg("-vV").current_dir(workspace_root()).output();
    let output = output.map_err(|error| Failure::new(format!("cannot run rustc: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::new("rustc -vV names no host"))
}

fn command(target: &str, program: &Path, task: &Task) -> Result<Command, Failure> {
    let (fuzz, grown) = (workspace_root().join("fuzz"), target_dir()?.join("fuzz/corpus"));
    let (kept, grown) = (fuzz.join("corpus").join(target), grown.join(target));
    let findings = target_dir()?.join("fuzz/findings");
    for folder in [&kept, &grown, &findings] {
        fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
    }
    let own = INPUT_BYTES_MAX.iter().find(|(name, _)| *name == target);
    let bytes_max = own.map_or(INPUT_BYTES_MAX_ELSE, |(_, bytes_max)| *bytes_max);
    let mut command = Command::new(program);
    command.current_dir(workspace_root());
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    command.arg(format!("-max_len={bytes_max}"));
    command.arg(format!("-artifact_prefix={}/{target}-", findings.display()));
    let dictionary = fuzz.join("dictionaries").join(format!("{target}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    match task {
        Task::Seconds(seconds) => command.arg(format!("-max_total_time={seconds}")),
        Task::Runs(runs) => command.arg(format!("-runs={runs}")),
        Task::Input(file) => return Ok(with_input(command, file)),
        Task::Keep => command.args(["-set_cover_merge=1", "-print_final_stats=1"]),
    };
    if matches!(task, Task::Keep) {
        command.args([&kept, &grown]);
        return Ok(command);
    }
    // The first folder gets what is found; the others are only read.
    command.arg("-print_final_stats=1").args([&grown, &kept]);
    let former = fuzz.join("findings").join(target);
    if former.is_dir() {
        command.arg(former);
    }
    Ok(command)
}

fn with_input(mut command: Command, file: &Path) -> Command {
    command.arg(std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    command
}

/// What a run without a finding did.
fn note(log: &str) -> Result<String, Failure> {
    let after = |line: &str, name: &str| {
        let (_, rest) = line.split_once(name)?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let stat = |name: &str| log.lines().find_map(|line| after(line, name)).unwrap_or_default();
    let Some(done) = log.lines().rev().find(|line| line.contains("DONE   cov:")) else {
        return Ok(String::new());
    };
    let executions = stat("stat::number_of_executed_units:");
    let (each_second, memory) = (stat("stat::average_exec_per_sec:"), stat("stat::peak_rss_mb:"));
    let (edges, corpus) = (after(done, "cov: "), after(done, "corp: "));
    Ok(format!(
        "{executions} executions, {each_second}/s, {} edges, corpus {}, {memory} MiB, 0 findings",
        edges.unwrap_or_default(),
        corpus.unwrap_or_default()
    ))
}

/// What a run found, and how to see it again.
fn finding(target: &str, log: &str) -> Option<String> {
    let (_, file) = log.lines().rev().find_map(|line| line.split_once("Test unit written to "))?;
    let panics = log.lines().position(|line| line.contains("panicked at"));
    let what = panics.map(|at| log.lines().skip(at).take(2).collect::<Vec<_>>().join(" "));
    Some(format!(
        "{target}: {}\n  input: {file}\n  again: cargo xtask fuzz {target} --input {file}",
        what.unwrap_or_else(|| "too slow, or too much memory".to_owned())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<String> {
        ["http", "sse"].map(str::to_owned).to_vec()
    }

    fn refusal(args: &[&str]) -> String {
        read(args, &known()).unwrap_err().to_string()
    }

    #[test]
    fn without_names_all_targets_are_run_for_a_minute() {
        assert_eq!(read(&[], &known()).unwrap(), (known(), Task::Seconds(60)));
        let (named, task) = read(&["sse", "--runs", "7"], &known()).unwrap();
        assert_eq!((&named[..], task), (&["sse".to_owned()][..], Task::Runs(7)));
    }

    #[test]
    fn what_is_no_target_and_no_number_is_refused() {
        assert!(refusal(&["ssl"]).contains("name targets (http, sse)"));
        assert!(refusal(&["--seconds", "0"]).contains("no number"));
        assert!(refusal(&["--input", "x"]).contains("the one target"));
    }

    #[test]
    fn a_finding_names_its_input_and_the_command_that_shows_it_again() {
        let log = "thread '<unnamed>' panicked at src/a.rs:1:1:\nit broke\nstack backtrace:\n\
                   artifact_prefix='/t/'; Test unit written to /t/sse-crash-1\n";
        let told = finding("sse", log).unwrap();
        assert!(told.contains("panicked at src/a.rs:1:1: it broke"), "{told}");
        assert!(told.ends_with("again: cargo xtask fuzz sse --input /t/sse-crash-1"), "{told}");
        assert_eq!(finding("sse", "killed"), None);
    }
}
