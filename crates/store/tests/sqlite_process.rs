//! The store in a file, in a process of its own that is killed or whose disk fails.
#![cfg(feature = "sqlite")]

#[path = "sqlite_process/child.rs"]
mod child;
#[path = "sqlite_process/faults.rs"]
mod faults;
#[path = "sqlite_process/kill.rs"]
mod kill;
#[path = "sqlite_process/power.rs"]
mod power;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const DIRECTORY: &str = "REJOIN_TEST_DIRECTORY";
const DURABILITY: &str = "REJOIN_TEST_DURABILITY";

/// Not a test: what the tests here start as another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_process() {
    if let (Ok(directory), Ok(durability)) = (std::env::var(DIRECTORY), std::env::var(DURABILITY)) {
        child::serve(Path::new(&directory), &durability).await;
    }
}

/// That process, which ends with this.
struct Other {
    process: Child,
    words: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Other {
    fn start(directory: &Path, durability: &str, more: &[(&str, &Path)]) -> Self {
        let (other, word) = Self::try_start(directory, durability, more);
        assert_eq!(word, "ready");
        other
    }

    /// Starts it, and returns its first word: `ready`, or why it is not.
    fn try_start(directory: &Path, durability: &str, more: &[(&str, &Path)]) -> (Self, String) {
        let mut command = Command::new(std::env::current_exe().expect("it has a path"));
        command.args(["--exact", "other_process", "--nocapture", "--test-threads=1"]);
        command.env(DIRECTORY, directory).env(DURABILITY, durability);
        command.envs(more.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let words = process.stdin.take().expect("it is a pipe");
        let lines = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let mut other = Self { process, words, lines };
        let word = other.line().expect("it says something");
        (other, word)
    }

    fn say(&mut self, word: &str) {
        writeln!(self.words, "{word}").expect("it listens");
    }

    /// The next line that it says; `None`: it is gone.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.lines.read_line(&mut line).expect("it is text") > 0 {
            // What is cut by the kill was not said.
            if let Some(said) = line.strip_prefix("> ").and_then(|line| line.strip_suffix('\n')) {
                return Some(said.to_owned());
            }
            line.clear();
        }
        None
    }

    fn ask(&mut self, word: &str) -> String {
        self.say(word);
        self.line().expect("it answers")
    }

    fn kill(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}
