//! `--durability`.

use clap::ValueEnum;
use rejoin_store::sqlite;

/// What of the log outlives a power cut (design section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// Claims, results and ends, before they count.
    Calls,
    /// Every event, before it is sent.
    Events,
    /// Nothing that counts.
    Memory,
}

impl From<Durability> for sqlite::Durability {
    fn from(chosen: Durability) -> Self {
        match chosen {
            Durability::Calls => Self::Calls,
            Durability::Events => Self::Events,
            Durability::Memory => Self::Memory,
        }
    }
}
