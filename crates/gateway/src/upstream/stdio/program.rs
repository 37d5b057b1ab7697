//! What a child process is started from.
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use tokio::process::Command;

/// A command with all that it is started with.
pub(super) struct Program {
    pub(super) command: String,
    args: Vec<OsString>,
    /// Beside the environment of this process.
    pub(super) environment: BTreeMap<String, String>,
    /// Variables of this process that it does not get.
    pub(super) withheld: BTreeSet<String>,
    /// `None`: that of this process.
    pub(super) directory: Option<PathBuf>,
}

impl Program {
    pub(super) fn new(command: String, args: Vec<OsString>) -> Self {
        let (environment, withheld) = (BTreeMap::new(), BTreeSet::new());
        Self { command, args, environment, withheld, directory: None }
    }

    /// What starts it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.command);
        command.args(&self.args);
        for name in &self.withheld {
            command.env_remove(name);
        }
        command.envs(&self.environment);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// The list of folders in which the command is looked up if it is a mere name.
    pub(super) fn search_path(&self) -> Option<OsString> {
        let own = self.environment.get("PATH").map(|path| OsStr::new(path).to_owned());
        own.or_else(|| std::env::var_os("PATH").filter(|_| !self.withheld.contains("PATH")))
    }

    /// A path of this program's, as it sees it from its directory.
    pub(super) fn seen(&self, path: &Path) -> PathBuf {
        self.directory.as_ref().map_or_else(|| path.to_owned(), |directory| directory.join(path))
    }
}

impl fmt::Debug for Program {
    /// Arguments and variables may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("command", &self.command).finish_non_exhaustive()
    }
}
