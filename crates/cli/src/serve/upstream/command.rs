//! A stdio MCP server, as its operator named it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rejoin_core::limits::Limits;
use rejoin_gateway::upstream::stdio::StdioUpstream;

use super::{UpstreamError, show_word};

/// The command of a stdio MCP server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UpstreamCommand {
    /// The program, looked up in `PATH` if it has no slash.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Variables beside those of Rejoin.
    environment: Vec<(String, String)>,
    /// `None`: the directory of Rejoin.
    directory: Option<PathBuf>,
    /// `None`: the name of the program.
    name: Option<String>,
    /// Variables of Rejoin that its operator means for it.
    variables: BTreeSet<String>,
    /// Variables of Rejoin that it does not get.
    withheld: BTreeSet<String>,
    origin: CommandOrigin,
}

/// Who named a command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CommandOrigin {
    /// Nobody: it is this program's own tool server.
    BuiltIn,
    /// The command line, which anyone on this machine can see.
    CommandLine,
    /// A file, whose arguments may be secrets: this place in it.
    File(String),
}

/// A command as a file names it.
#[derive(Debug)]
pub(crate) struct FileCommand {
    /// The program, looked up in `PATH` if it has no slash.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// Variables beside those of Rejoin.
    pub(crate) environment: Vec<(String, String)>,
    /// `None`: the directory of Rejoin.
    pub(crate) directory: Option<PathBuf>,
    /// Variables of Rejoin that are named for it.
    pub(crate) variables: BTreeSet<String>,
    /// Place and name of its key.
    pub(crate) place: String,
}

/// Variables that programs need to run at all: they stay whoever names them.
const OF_ALL: [&str; 9] =
    ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

impl UpstreamCommand {
    pub(super) fn from_words(words: Vec<OsString>) -> Result<Self, UpstreamError> {
        let mut words = words.into_iter();
        match words.next() {
            Some(program) => {
                Ok(Self::new(program.into(), words.collect(), CommandOrigin::CommandLine))
            }
            None => Self::built_in(),
        }
    }

    /// This program's own tool server.
    fn built_in() -> Result<Self, UpstreamError> {
        let program = std::env::current_exe().map_err(UpstreamError::NoOwnPath)?;
        Ok(Self::new(program, vec!["tool-server".into()], CommandOrigin::BuiltIn))
    }

    /// As a file names it.
    pub(crate) fn from_file(named: FileCommand) -> Self {
        let FileCommand { program, arguments, environment, directory, variables, place } = named;
        let arguments = arguments.into_iter().map(Into::into).collect();
        let command = Self::new(program, arguments, CommandOrigin::File(place));
        Self { environment, directory, variables, ..command }
    }

    /// Withholds these variables from it, except those that are named for it.
    pub(in crate::serve) fn withhold(&mut self, variables: &BTreeSet<String>) {
        let foreign = variables.difference(&self.variables);
        let foreign = foreign.filter(|name| !OF_ALL.contains(&name.as_str()));
        self.withheld = foreign.cloned().collect();
    }

    /// True for this program's own tool server.
    pub(in crate::serve) fn is_built_in(&self) -> bool {
        self.origin == CommandOrigin::BuiltIn
    }

    /// Looks for it, and for its directory.
    pub(super) fn find(&self, limits: Arc<Limits>) -> Result<(), UpstreamError> {
        let place = match &self.origin {
            CommandOrigin::File(place) => format!("{place}: "),
            _ => String::new(),
        };
        let found = self.build(limits)?.find();
        found.map_err(|source| UpstreamError::Missing { told: format!("{place}{source}") })
    }

    /// The same, under this name.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    fn new(program: PathBuf, arguments: Vec<OsString>, origin: CommandOrigin) -> Self {
        let (environment, directory, name) = (Vec::new(), None, None);
        let (variables, withheld) = (BTreeSet::new(), BTreeSet::new());
        Self { program, arguments, environment, directory, name, variables, withheld, origin }
    }

    pub(super) fn build(&self, limits: Arc<Limits>) -> Result<StdioUpstream, UpstreamError> {
        let not_text = || UpstreamError::ProgramNotText { program: self.program.clone() };
        let program = self.program.to_str().ok_or_else(not_text)?;
        let mut upstream = StdioUpstream::new(program, &self.arguments, limits)
            .without_variables(self.withheld.iter().cloned())
            .with_environment(self.environment.iter().cloned());
        if let Some(directory) = &self.directory {
            upstream = upstream.in_directory(directory.clone());
        }
        Ok(match &self.name {
            Some(name) => upstream.named(name),
            None => upstream,
        })
    }

    pub(super) fn describe(&self) -> String {
        match &self.origin {
            CommandOrigin::BuiltIn => {
                return "the built-in tool server (rejoin tool-server)".to_owned();
            }
            CommandOrigin::File(_) => return show_word(&self.program.to_string_lossy()),
            CommandOrigin::CommandLine => {}
        }
        let words = std::iter::once(self.program.as_os_str())
            .chain(self.arguments.iter().map(OsString::as_os_str));
        let shown: Vec<String> = words.map(|word| show_word(&word.to_string_lossy())).collect();
        shown.join(" ")
    }
}

impl fmt::Debug for UpstreamCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UpstreamCommand").field(&self.describe()).finish()
    }
}
