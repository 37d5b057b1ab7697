//! The one error of this tool: a sentence for the person at the terminal.

use std::fmt;

/// Why a step failed: what happened, to what, and what to do.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// A failure with this sentence.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
