//! What a hazard is, and what may be said of a server.

use async_trait::async_trait;
use serde::Serialize;

use crate::bench::Bench;
use crate::session::Trouble;

/// What is said of a server about one hazard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does not do this.
    Safe,
    /// It does. No sentence of the specification forbids it, or only a SHOULD does.
    Hazard,
    /// It does, against a MUST: the id of the requirement.
    Violation(&'static str),
    /// It cannot happen here, or what shows it is missing.
    NotApplicable,
    /// What was seen allows no judgement.
    CouldNotTell,
}

impl Verdict {
    /// Whether it is something to repair.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Hazard | Self::Violation(_))
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Safe => f.pad("safe"),
            Self::Hazard => f.pad("HAZARD"),
            Self::Violation(requirement) => f.pad(&format!("VIOLATION {requirement}")),
            Self::NotApplicable => f.pad("not applicable"),
            Self::CouldNotTell => f.pad("could not tell"),
        }
    }
}

/// What a hazard is about.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct About {
    /// Its name on the command line and in reports.
    pub id: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// What the probe does on the wire.
    pub done: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// What repairs it.
    pub fix: &'static str,
}

/// What was seen, and what that means.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What that means.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
}

impl Seen {
    /// A verdict with what was seen.
    pub fn new(verdict: Verdict, seen: impl Into<String>) -> Self {
        Self { verdict, seen: seen.into() }
    }

    /// Nothing bad.
    pub fn safe(seen: impl Into<String>) -> Self {
        Self::new(Verdict::Safe, seen)
    }

    /// Something bad.
    pub fn hazard(seen: impl Into<String>) -> Self {
        Self::new(Verdict::Hazard, seen)
    }

    /// Something that a MUST forbids.
    pub fn violation(requirement: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Verdict::Violation(requirement), seen)
    }

    /// Nothing to judge here.
    pub fn not_applicable(why: impl Into<String>) -> Self {
        Self::new(Verdict::NotApplicable, why)
    }

    /// No judgement.
    pub fn unclear(seen: impl Into<String>) -> Self {
        Self::new(Verdict::CouldNotTell, seen)
    }
}

/// One way in which a server may fail a client that did nothing wrong, or little.
#[async_trait]
pub(crate) trait Hazard: Send + Sync {
    /// What it is about.
    fn about(&self) -> About;

    /// Plays it.
    async fn play(&self, bench: &Bench<'_>) -> Result<Seen, Trouble>;
}
