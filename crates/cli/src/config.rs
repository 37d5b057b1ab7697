//! `-c FILE`: the options of `rejoin serve` and its servers from a file, TOML or JSON. What is also
//! given on the command line wins; what the file says of it is checked all the same.

mod client;
mod document;
mod expand;
mod json;
mod keys;
mod server;
mod toml;
mod unknown;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::args::ServeArgs;
use crate::limit::LimitSetting;
use crate::serve::upstream::{UpstreamChoice, UpstreamCommand};
use document::{Fault, Field};
use expand::Lookup;

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Places of a file that are told at once.
const PLACES_MAX: usize = 20;

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
    /// It is of a third kind.
    #[error("-c {}: a file of options is TOML, or JSON if its name ends in .json", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
    },
    /// Places in it: of each, file, line and column, what is wrong, and what to do.
    #[error("{}", told(places))]
    At {
        /// A line for each place.
        places: Vec<String>,
    },
}

/// The first of them, a line each.
fn told(places: &[String]) -> String {
    let mut lines = places.get(..PLACES_MAX.min(places.len())).unwrap_or_default().join("\n");
    if places.len() > PLACES_MAX {
        lines.push_str(&format!("\nand {} more", places.len() - PLACES_MAX));
    }
    lines
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
    /// Variables of the environment that it names: secrets of those for whom it names them.
    pub(crate) variables: BTreeSet<String>,
    /// What of it is not used, with places, for the log.
    pub(crate) unused: Vec<String>,
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
pub(crate) struct Origins {
    places: BTreeMap<&'static str, String>,
    /// Settings whose values hold those of variables, which may be secrets.
    hidden: BTreeSet<&'static str>,
}

impl Origins {
    /// How a setting is named to the operator: as `FILE:LINE:COLUMN: KEY`, or as this option of the
    /// command line.
    pub(crate) fn name(&self, setting: &str, option: &str) -> String {
        self.places.get(setting).cloned().unwrap_or_else(|| option.to_owned())
    }

    /// True if a file set it, and the command line did not.
    pub(crate) fn has(&self, setting: &str) -> bool {
        self.places.contains_key(setting)
    }

    /// True if the value must not be shown.
    pub(crate) fn hides(&self, setting: &str) -> bool {
        self.hidden.contains(setting)
    }

    fn set(&mut self, setting: &'static str, place: String, field: &Field) {
        self.places.insert(setting, place);
        if field.node.is_expanded() {
            self.hidden.insert(setting);
        }
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

    fn error(&self, faults: impl Into<Vec<Fault>>) -> ConfigError {
        let mut faults = faults.into();
        faults.sort_by_key(|fault| fault.at);
        let places =
            faults.iter().map(|Fault { at, problem }| format!("{}: {problem}", self.place(*at)));
        ConfigError::At { places: places.collect() }
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
    // Editors of another system begin a file with a mark of its encoding.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    apply(&Source { path: &path, text }, &|name| std::env::var(name), args, is_on_line)
}

/// For `fuzz/` alone: the text of a file of this name, beside an empty command line.
#[cfg(feature = "fuzz")]
pub(crate) fn read_text_into(
    path: &Path,
    text: &str,
    lookup: Lookup<'_>,
    args: &mut ServeArgs,
) -> Result<(), ConfigError> {
    apply(&Source { path, text }, lookup, args, &|_| false)
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
    let is_of = |kind: &str| extension.eq_ignore_ascii_case(kind);
    if is_of("yaml") || is_of("yml") {
        return Err(ConfigError::Yaml { path: source.path.to_owned() });
    }
    let read = if is_of("json") { json::read } else { toml::read };
    let mut root = read(source.text, lookup).map_err(|fault| source.error(fault))?;
    // Those of servers that are disabled too.
    root.add_variables(&mut args.file.variables);
    if is_of("json") {
        args.file.unused = client::adapt(&mut root, source);
    }
    let fields = root.table().map_err(|fault| source.error(fault))?;
    keys::apply(fields, source, args, is_on_line).map_err(|faults| source.error(faults))
}

#[cfg(test)]
mod tests;
