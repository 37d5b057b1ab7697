//! `-c FILE`: the options of `rejoin serve` and its servers from a file, TOML or JSON. What is also
//! given on the command line wins; what the file says of it is checked all the same.

mod document;
mod expand;
mod json;
mod keys;
mod nearest;
mod server;
mod toml;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::args::ServeArgs;
use crate::limit::LimitSetting;
use crate::serve::upstream::{UpstreamChoice, UpstreamCommand};
use document::Fault;
use expand::Lookup;

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why a file cannot be used. No message holds a value of the file: it may be a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It cannot be read.
    #[error("-c {}: the file cannot be read; check its path and permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is too long.
    #[error("-c {}: the file has more than {FILE_BYTES_MAX} bytes; shorten it", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It is not text.
    #[error("-c {}: the file is not UTF-8 text; save it as such", path.display())]
    NoText {
        /// The file.
        path: PathBuf,
    },
    /// A place in it.
    #[error("{place}: {problem}")]
    At {
        /// File, line and column.
        place: String,
        /// What is wrong, and what to do.
        problem: String,
    },
}

/// What a file says that has no option on the command line, and where it says what it says.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileSettings {
    /// Where the options were set.
    pub(crate) origins: Origins,
    /// Limits, those that the command line sets too among them.
    pub(crate) limits: Vec<LimitSetting>,
    /// The one server, if it is a command.
    pub(crate) command: Option<UpstreamCommand>,
    /// The servers that have names.
    pub(crate) servers: Vec<FileServer>,
}

/// A server that has a name.
#[derive(Clone, Debug)]
pub(crate) struct FileServer {
    /// A segment of a path.
    pub(crate) name: String,
    /// The server.
    pub(crate) upstream: UpstreamChoice,
    /// What is known of it.
    pub(crate) facts: ServerFacts,
}

/// What an operator says of one server; `None`: as of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerFacts {
    /// Tools that may run twice.
    pub(crate) idempotent_tools: Option<Vec<String>>,
    /// Whether its own hints are believed.
    pub(crate) trust_annotations: Option<bool>,
    /// Whether it keeps nothing between calls.
    pub(crate) stateless_upstream: Option<bool>,
}

/// Where a file set what, to name it to the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origins(BTreeMap<&'static str, String>);

impl Origins {
    /// How a setting is named to the operator: as `FILE:LINE:COLUMN: KEY`, or as this option of the
    /// command line.
    pub(crate) fn name(&self, setting: &str, option: &str) -> String {
        self.0.get(setting).cloned().unwrap_or_else(|| option.to_owned())
    }

    fn set(&mut self, setting: &'static str, place: String) {
        self.0.insert(setting, place);
    }
}

/// The text of a file, to tell places in it.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    /// File, line and column of an offset in bytes, the last two counted from 1.
    fn place(&self, at: usize) -> String {
        let before: String = self.text.bytes().take(at).map(char::from).collect();
        let line = before.matches('\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        let column = self.text.get(begin..at).map_or(1, |text| text.chars().count() + 1);
        format!("{}:{line}:{column}", self.path.display())
    }

    fn error(&self, fault: Fault) -> ConfigError {
        ConfigError::At { place: self.place(fault.at), problem: fault.problem }
    }
}

/// Reads the file that the arguments name, if any, into what they leave open. `is_on_line`: whether
/// an option was given on the command line, or by a variable of its own.
///
/// # Errors
/// See [`ConfigError`].
pub(crate) fn read_into(
    args: &mut ServeArgs,
    is_on_line: &dyn Fn(&str) -> bool,
) -> Result<(), ConfigError> {
    let Some(path) = args.config.clone() else { return Ok(()) };
    let text = read_text(&path)?;
    apply(&Source { path: &path, text: &text }, &|name| std::env::var(name), args, is_on_line)
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(bytes).map_err(|_| ConfigError::NoText { path: path.to_owned() })
}

fn apply(
    source: &Source<'_>,
    lookup: Lookup<'_>,
    args: &mut ServeArgs,
    is_on_line: &dyn Fn(&str) -> bool,
) -> Result<(), ConfigError> {
    let extension = source.path.extension().unwrap_or_default();
    let read = if extension.eq_ignore_ascii_case("json") { json::read } else { toml::read };
    let root = read(source.text, lookup).map_err(|fault| source.error(fault))?;
    let fields = root.table().map_err(|fault| source.error(fault))?;
    keys::apply(fields, source, args, is_on_line).map_err(|fault| source.error(fault))
}

#[cfg(test)]
mod tests;
