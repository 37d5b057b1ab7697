//! The count file: each execution of a tool appends one synced line `<tool> <json args> <time>`,
//! before any event of it, outside the child and the gateway.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::deadline::{DeadlineError, until};

/// Reads the executions that a tool server recorded.
#[derive(Clone, Debug)]
pub struct CountFile {
    path: PathBuf,
}

/// One execution of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    /// The tool's name.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
}

/// Why executions could not be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// The file cannot be read.
    #[error("cannot read the count file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the count file {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A complete line is not `<tool> <json args> <time>`.
    #[error("not a line of a count file: {line:?}")]
    Line {
        /// The line.
        line: String,
    },
    /// The executions did not come in time.
    #[error(transparent)]
    Deadline(#[from] DeadlineError),
}

impl CountFile {
    /// The count file at `path`, which need not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every execution so far, in order. A file that does not exist yet has none; a last line
    /// without its line end is still being written and is left out.
    pub fn executions(&self) -> Result<Vec<Execution>, CountError> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                return Err(CountError::Read { path: self.path.clone(), source });
            }
        };
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().filter(|line| !line.is_empty()).map(parse).collect()
    }

    /// Adds one execution, synced to disk when this returns.
    pub fn add(&self, tool: &str, arguments: &Value) -> Result<(), CountError> {
        let failed = |source| CountError::Write { path: self.path.clone(), source };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = format!("{tool} {arguments} {}\n", now.as_nanos());
        let opened = OpenOptions::new().append(true).create(true).open(&self.path);
        let mut file = opened.map_err(failed)?;
        file.write_all(line.as_bytes()).map_err(failed)?;
        file.sync_data().map_err(failed)
    }

    /// How often `tool` ran.
    pub fn runs(&self, tool: &str) -> Result<usize, CountError> {
        Ok(self.executions()?.iter().filter(|execution| execution.tool == tool).count())
    }

    /// How often `tool` ran with `member` of its arguments equal to `value`.
    pub fn runs_with(&self, tool: &str, member: &str, value: &Value) -> Result<usize, CountError> {
        let matches = |execution: &&Execution| {
            execution.tool == tool && execution.arguments.get(member) == Some(value)
        };
        Ok(self.executions()?.iter().filter(matches).count())
    }

    /// Waits until `tool` ran at least `wanted` times.
    pub async fn wait(&self, tool: &str, wanted: usize, limit: Duration) -> Result<(), CountError> {
        let what = format!("{wanted} executions of {tool} in {}", self.path.display());
        until(&what, limit, async || Ok((self.runs(tool)? >= wanted).then_some(()))).await
    }
}

fn parse(line: &str) -> Result<Execution, CountError> {
    let refused = || CountError::Line { line: line.to_owned() };
    let (tool, rest) = line.split_once(' ').ok_or_else(refused)?;
    let (arguments, _time) = rest.rsplit_once(' ').ok_or_else(refused)?;
    let arguments = serde_json::from_str(arguments).map_err(|_| refused())?;
    Ok(Execution { tool: tool.to_owned(), arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_lines_are_executions_and_a_torn_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = CountFile::at(folder.path().join("count"));
        assert!(file.executions().unwrap().is_empty());
        let text = "charge {\"amount\": 1, \"note\": \"a b\"} 12\nget {} 13\ncharge {\"amount\"";
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(file.runs("charge").unwrap(), 1);
        assert_eq!(file.runs_with("charge", "amount", &1.into()).unwrap(), 1);
        assert_eq!(file.runs_with("charge", "amount", &2.into()).unwrap(), 0);
        assert_eq!(file.runs("get").unwrap(), 1);
    }

    #[test]
    fn what_is_added_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = CountFile::at(folder.path().join("count"));
        file.add("charge", &serde_json::json!({"amount": 7})).unwrap();
        file.add("charge", &serde_json::json!({"amount": 8})).unwrap();
        assert_eq!(file.runs("charge").unwrap(), 2);
        assert_eq!(file.runs_with("charge", "amount", &7.into()).unwrap(), 1);
    }

    #[test]
    fn a_line_of_another_shape_is_an_error_not_a_smaller_count() {
        let folder = tempfile::tempdir().unwrap();
        let file = CountFile::at(folder.path().join("count"));
        std::fs::write(file.path(), "charge\n").unwrap();
        assert!(matches!(file.executions(), Err(CountError::Line { .. })));
    }
}
