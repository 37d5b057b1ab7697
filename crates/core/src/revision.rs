//! Protocol revisions and what differs between them (spec digest 1.1, design section 6).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A protocol revision, a date such as `2025-11-25`; dates compare as text. What a peer sent may be
/// no date: such a revision is neither before nor after any other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(String);

impl Revision {
    /// The first revision with Streamable HTTP; assumed where nothing else is known (spec VER-3).
    pub const FIRST: &'static str = "2025-03-26";
    /// The newest revision with sessions.
    pub const NEWEST_GUARDED: &'static str = "2025-11-25";
    /// Revisions with sessions that Rejoin guards.
    pub const GUARDED: [&'static str; 3] = [Self::FIRST, "2025-06-18", Self::NEWEST_GUARDED];
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
        self.is_since("2025-11-25")
    }

    /// True if a POST may carry several requests (spec B-7).
    pub fn batches(&self) -> bool {
        self.0.as_str() == Self::FIRST
    }

    /// True if the revision has no sessions, and a disconnect is a cancel.
    pub fn is_stateless(&self) -> bool {
        self.is_since(Self::FIRST_STATELESS)
    }

    /// True for this date and those after it.
    fn is_since(&self, date: &str) -> bool {
        is_date(&self.0) && self.0.as_str() >= date
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True for the form `YYYY-MM-DD`, the only one in which dates compare as text.
fn is_date(text: &str) -> bool {
    text.len() == "YYYY-MM-DD".len()
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_date_can_be_a_revision_without_sessions_or_one_that_primes() {
        for date in ["2026-07-28", "2026-12-15", "2030-01-01"] {
            assert!(Revision::new(date).is_stateless() && Revision::new(date).primes(), "{date}");
        }
        for date in ["2025-11-25", "2026-07-27"] {
            assert!(!Revision::new(date).is_stateless() && Revision::new(date).primes(), "{date}");
        }
        let none = ["draft", "DRAFT-2026-v1", "latest", "v1", "99", "9", "2026-7-28", "\u{ff}", ""];
        let odd = ["2026-07-28 ", "2026-07-280", "2026/07/28", "20260728--", "x026-07-28"];
        for text in none.into_iter().chain(odd) {
            let revision = Revision::new(text);
            assert!(!revision.is_stateless() && !revision.primes(), "{text:?}");
        }
    }
}
