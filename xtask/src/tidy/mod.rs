//! The rules of this repository that no compiler checks, each in a file of its own.

mod banned_words;
mod deny_file;
mod layers;
mod lengths;
mod licences;
mod limit_names;
mod links;
mod purity;
mod reasons;
mod source;
mod spdx;
mod tree;

use std::fmt;
use std::path::Path;

use crate::failure::Failure;
use crate::metadata;

/// Violations that are printed; the rest is counted.
const SHOWN_MAX: usize = 50;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    /// Path from the workspace root, with `/`.
    path: String,
    /// Line from 1, or 0 for the file as a whole.
    line: usize,
    /// What is wrong and what to do.
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Checks the whole workspace at `root`; the answer says how much was looked at.
pub(crate) fn check_all(root: &Path) -> Result<String, Failure> {
    let files = tree::text_files(root)?;
    let deny = deny_file::load(root)?;
    let graph = metadata::load(&deny.targets)?;
    let mut violations: Vec<Violation> = files
        .iter()
        .flat_map(|file| [lengths::check(file), banned_words::check(file), purity::sources(file)])
        .flatten()
        .collect();
    violations.extend(layers::check(&graph));
    violations.extend(purity::dependencies(&graph));
    violations.extend(licences::check(&graph, &deny));
    violations.extend(reasons::check(&files));
    violations.extend(limit_names::check(&files));
    violations.extend(links::check(&files, |path| root.join(path).exists()));
    violations.sort();
    violations.dedup();
    if violations.is_empty() {
        return Ok(format!("{} files, {} packages", files.len(), graph.packages.len()));
    }
    for violation in violations.iter().take(SHOWN_MAX) {
        println!("   {violation}");
    }
    let hidden = violations.len().saturating_sub(SHOWN_MAX);
    if hidden > 0 {
        println!("   and {hidden} more");
    }
    Err(Failure::new(format!("{} violations, listed above", violations.len())))
}
