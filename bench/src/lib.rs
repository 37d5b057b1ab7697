//! What figures have in common: the machine, and a table of medians with their spread, next to a
//! baseline that was taken in the same run.

mod machine;
mod table;

use std::error::Error;

pub use machine::describe;
pub use table::{Table, Unit, sorted};

/// Why there are no figures.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Calls in the ledgers of the sessions in which a decision is timed.
pub const DECISION_CALLS: [u64; 3] = [1, 100, 10_000];

/// How long a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Long enough to be written down.
    Full,
    /// `--quick`: long enough to see that all of it works.
    Quick,
}

impl Length {
    /// What the arguments of a run say.
    ///
    /// # Errors
    /// If they say anything else.
    pub fn from_arguments() -> Result<Self, Failure> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(Self::Full),
            ["--quick"] => Ok(Self::Quick),
            _ => Err(format!("{arguments:?} is not known: only --quick is").into()),
        }
    }
}
