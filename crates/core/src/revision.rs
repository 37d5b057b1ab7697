//! Protocol revisions and what differs between them (spec digest 1.1, design section 6).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A protocol revision, a date such as `2025-11-25`; dates compare as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(String);

impl Revision {
    /// The first revision with Streamable HTTP; assumed where nothing else is known (spec VER-3).
    pub const FIRST: &'static str = "2025-03-26";
    /// Revisions with sessions that Rejoin guards.
    pub const GUARDED: [&'static str; 3] = [Self::FIRST, "2025-06-18", "2025-11-25"];
    /// The first revision without sessions: passed through.
    pub const FIRST_STATELESS: &'static str = "2026-07-28";

    /// Wraps a revision's date.
    pub fn new(date: impl Into<String>) -> Self {
        Self(date.into())
    }

    /// The date.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if a client that asked for this revision understands a priming event with empty data
    /// (spec SSE-1).
    pub fn primes(&self) -> bool {
        self.0.as_str() >= "2025-11-25"
    }

    /// True if a POST may carry several requests (spec B-7).
    pub fn batches(&self) -> bool {
        self.0.as_str() == Self::FIRST
    }

    /// True if the revision has no sessions, and a disconnect is a cancel.
    pub fn is_stateless(&self) -> bool {
        self.0.as_str() >= Self::FIRST_STATELESS
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
