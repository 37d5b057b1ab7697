//! The count file: who ran what when, safe from any crash that follows.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A file with one line per execution: `<tool> <json arguments> <unix time in ns>`.
///
/// Several processes may append to one file: each line is one write with `O_APPEND`.
pub(super) struct CountFile {
    file: File,
}

impl CountFile {
    /// Opens the file, and creates it if need be.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().append(true).create(true).open(path)? })
    }

    /// Adds one execution; on disk when this returns.
    ///
    /// # Errors
    /// Those of the operating system. The execution must not start then.
    pub(super) fn add(&self, tool: &str, arguments: &str) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = format!("{tool} {arguments} {}\n", now.as_nanos());
        (&self.file).write_all(line.as_bytes())?;
        self.file.sync_data()
    }
}
