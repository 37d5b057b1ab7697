//! Runs the steps of a plan: one line when a step starts, one when it ends, output in a file.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::process_tree;

/// A step that writes more than this is stopped.
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How much of a log's end is ever looked at for the terminal.
const TAIL_BYTES_MAX: u64 = 64 * 1024;
/// Longest line shown.
const LINE_CHARS_MAX: usize = 200;
/// Lines of a failed step's log that are shown.
const FAILED_LINES_MAX: usize = 80;
/// How often a running command is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs steps one after the other and remembers how long each took.
#[derive(Debug)]
pub(crate) struct Runner {
    log_dir: PathBuf,
    finished: Vec<(String, Duration, String)>,
}

impl Runner {
    /// A runner that keeps the steps' logs in `log_dir`.
    pub(crate) fn new(log_dir: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(log_dir).map_err(|error| {
            Failure::new(format!("cannot create {}: {error}", log_dir.display()))
        })?;
        Ok(Self { log_dir: log_dir.to_path_buf(), finished: Vec::new() })
    }

    /// Runs a check inside this process; `work` returns a note for the summary.
    pub(crate) fn check(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        let started = start(name);
        let note = work().map_err(|failure| failed(name, started, &failure.to_string()))?;
        self.finish(name, started, note);
        Ok(())
    }

    /// Runs `command` for at most `time_max`; `note` reads its log once it succeeded.
    pub(crate) fn command(
        &mut self,
        name: &str,
        command: Command,
        time_max: Duration,
        note: impl FnOnce(&Path) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        self.step(name, command, time_max, End::into_result, note)
    }

    /// As [`Runner::command`], for a command that must fail; `note` tells from its log whether it
    /// failed as it should.
    pub(crate) fn failing_command(
        &mut self,
        name: &str,
        command: Command,
        time_max: Duration,
        note: impl FnOnce(&Path) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        self.step(name, command, time_max, End::into_failure, note)
    }

    /// As [`Runner::command`], for a command that tells what it found by its exit code: any of
    /// these will do.
    pub(crate) fn finding_command(
        &mut self,
        name: &str,
        command: Command,
        time_max: Duration,
        codes: &[i32],
        note: impl FnOnce(&Path) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        self.step(name, command, time_max, |end| end.into_one_of(codes), note)
    }

    fn step(
        &mut self,
        name: &str,
        mut command: Command,
        time_max: Duration,
        judge: impl FnOnce(End) -> Result<(), String>,
        note: impl FnOnce(&Path) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        let started = start(name);
        let log = self.log_dir.join(format!("{name}.log"));
        let outcome = run(&mut command, &log, time_max, LOG_BYTES_MAX)
            .map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))
            .and_then(judge)
            .and_then(|()| note(&log).map_err(|failure| failure.to_string()));
        match outcome {
            Ok(note) => self.finish(name, started, note),
            Err(reason) => {
                print_lines(&tail(&log, FAILED_LINES_MAX));
                let reason = format!("{reason}; whole log: {}", log.display());
                return Err(failed(name, started, &reason));
            }
        }
        Ok(())
    }

    /// Prints what was done and how long it took.
    pub(crate) fn print_summary(&self) {
        let total: Duration = self.finished.iter().map(|(_, time, _)| *time).sum();
        println!("\nall {} steps passed in {:.1} s", self.finished.len(), total.as_secs_f64());
        for (name, time, note) in &self.finished {
            println!("  {name:<27} {:>7.1} s  {note}", time.as_secs_f64());
        }
    }

    fn finish(&mut self, name: &str, started: Instant, note: String) {
        let time = started.elapsed();
        println!("   ok in {:.1} s  {note}", time.as_secs_f64());
        self.finished.push((name.to_owned(), time, note));
    }
}

fn start(name: &str) -> Instant {
    println!("== {name}");
    let _ = io::stdout().flush();
    Instant::now()
}

fn failed(name: &str, started: Instant, reason: &str) -> Failure {
    let seconds = started.elapsed().as_secs_f64();
    Failure::new(format!("step {name} after {seconds:.1} s: {reason}"))
}

/// How a command ended.
#[derive(Debug)]
enum End {
    Exited(ExitStatus),
    OutOfTime(Duration),
    LogTooLong(u64),
}

impl End {
    fn into_result(self) -> Result<(), String> {
        match self {
            Self::Exited(status) if status.success() => Ok(()),
            Self::Exited(status) => Err(format!("{status}")),
            Self::OutOfTime(limit) => Err(format!("stopped, it ran over {} s", limit.as_secs())),
            Self::LogTooLong(limit) => Err(format!("stopped, it wrote over {limit} bytes")),
        }
    }

    fn into_one_of(self, codes: &[i32]) -> Result<(), String> {
        match self {
            Self::Exited(status) if status.code().is_some_and(|code| codes.contains(&code)) => {
                Ok(())
            }
            other => other.into_result(),
        }
    }

    fn into_failure(self) -> Result<(), String> {
        match self {
            Self::Exited(status) if status.success() => Err("it passed, but must fail".to_owned()),
            Self::Exited(_) => Ok(()),
            stopped => stopped.into_result(),
        }
    }
}

fn run(
    command: &mut Command,
    log: &Path,
    time_max: Duration,
    log_bytes_max: u64,
) -> io::Result<End> {
    let output = File::create(log)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .spawn()?;
    let watched = watch(&mut child, &output, time_max, log_bytes_max);
    if !matches!(watched, Ok(End::Exited(_))) {
        process_tree::kill(&mut child);
    }
    watched
}

fn watch(
    child: &mut Child,
    output: &File,
    time_max: Duration,
    log_bytes_max: u64,
) -> io::Result<End> {
    let deadline = Instant::now() + time_max;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::Exited(status));
        }
        if Instant::now() >= deadline {
            return Ok(End::OutOfTime(time_max));
        }
        if output.metadata()?.len() > log_bytes_max {
            return Ok(End::LogTooLong(log_bytes_max));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The whole log of a step.
pub(crate) fn read_log(log: &Path) -> Result<String, Failure> {
    let bytes = fs::read(log)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", log.display())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a log, each cut to a readable length.
pub(crate) fn tail(log: &Path, lines_max: usize) -> Vec<String> {
    let text = read_end(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(lines_max);
    lines[from..].iter().map(|line| line.chars().take(LINE_CHARS_MAX).collect()).collect()
}

/// Prints lines indented, so that they are told from the steps' own lines.
pub(crate) fn print_lines(lines: &[String]) {
    for line in lines {
        println!("   | {line}");
    }
}

fn read_end(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of this test's own, removed when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_command_fails_its_step_and_names_the_log() {
        let scratch = Scratch::new("fails");
        let mut runner = Runner::new(&scratch.0).unwrap();
        let minute = Duration::from_secs(60);
        let failure = runner
            .command("lint", shell("echo broken; exit 3"), minute, |_| Ok(String::new()))
            .unwrap_err()
            .to_string();
        assert!(failure.starts_with("step lint after"), "{failure}");
        assert!(failure.contains("exit status: 3"), "{failure}");
        assert!(failure.contains("lint.log"), "{failure}");
        assert_eq!(tail(&scratch.0.join("lint.log"), 5), ["broken"]);
    }

    #[test]
    fn a_command_that_must_fail_and_does_not_fails_its_step() {
        let scratch = Scratch::new("passes");
        let mut runner = Runner::new(&scratch.0).unwrap();
        let minute = Duration::from_secs(60);
        let mut run = |script| runner.failing_command("must-fail", shell(script), minute, read_log);
        assert!(run("echo no; exit 3").is_ok());
        let failure = run("exit 0").unwrap_err().to_string();
        assert!(failure.contains("it passed, but must fail"), "{failure}");
    }

    #[test]
    fn a_command_that_found_something_passes_with_these_codes_and_no_other() {
        let scratch = Scratch::new("finds");
        let mut runner = Runner::new(&scratch.0).unwrap();
        let minute = Duration::from_secs(60);
        let mut run =
            |script| runner.finding_command("find", shell(script), minute, &[0, 2], read_log);
        assert!(run("exit 0").is_ok() && run("exit 2").is_ok());
        assert!(run("exit 3").unwrap_err().to_string().contains("exit status: 3"));
    }

    #[test]
    fn a_command_that_never_ends_is_stopped() {
        let scratch = Scratch::new("endless");
        let limit = Duration::from_millis(100);
        let end = run(&mut shell("sleep 600"), &scratch.0.join("log"), limit, LOG_BYTES_MAX);
        assert!(matches!(end, Ok(End::OutOfTime(_))), "{end:?}");
    }

    #[test]
    fn a_command_that_floods_its_log_is_stopped() {
        let scratch = Scratch::new("flood");
        let limit = Duration::from_secs(60);
        let end = run(&mut shell("exec yes"), &scratch.0.join("log"), limit, 10_000);
        assert!(matches!(end, Ok(End::LogTooLong(10_000))), "{end:?}");
    }

    #[test]
    fn a_tail_is_short_and_narrow() {
        let scratch = Scratch::new("tail");
        let log = scratch.0.join("log");
        fs::write(&log, format!("first\nsecond\n{}\n", "x".repeat(5_000))).unwrap();
        let lines = tail(&log, 2);
        assert_eq!(lines[0], "second");
        assert_eq!(lines[1].len(), LINE_CHARS_MAX);
    }
}
