//! The checkers: each reads the history alone, and knows what a server can promise under the plan's
//! configuration.

mod complete;
mod drained;
mod facts;
mod isolation;
mod known;
mod live;
mod logged;
mod once;
mod order;
mod periods;
mod refused;
mod rows;
mod standalone;
mod told;

use std::collections::BTreeMap;

use crate::history::Record;
use crate::plan::Plan;

use self::facts::Facts;

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub property: &'static str,
    pub at_ms: u64,
    pub what: String,
}

/// What the checkers say of a run.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub violations: Vec<Violation>,
    /// Executions that were too many, and that no server can prevent under this configuration, by
    /// the documented limit.
    pub limits: Vec<&'static str>,
    /// Refusals of clients that did nothing wrong, by their code.
    pub refused: BTreeMap<i64, u64>,
    /// See [`rows::rows`].
    pub rows: BTreeMap<&'static str, u64>,
    pub counts: Counts,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub askings: u64,
    pub posts: u64,
    pub executions: u64,
    pub answered: u64,
    pub recorded: u64,
    pub refused: u64,
    /// Repeats that did not run.
    pub repeats: u64,
    /// POSTs that had to wait for something.
    pub waited: u64,
    pub resumed: u64,
    pub crashes: u64,
    pub drains: u64,
    pub ledgers_lost: u64,
    /// Messages of the standalone stream that were read.
    pub heard: u64,
    pub virtual_ms: u64,
}

/// Runs all checkers.
pub fn check(plan: &Plan, records: &[Record]) -> Verdict {
    let facts = Facts::of(records);
    let mut verdict =
        Verdict { counts: facts.counts, rows: rows::rows(&facts), ..Verdict::default() };
    once::check(plan, &facts, &mut verdict);
    complete::check(plan, &facts, &mut verdict);
    order::check(plan, &facts, &mut verdict);
    logged::check(&facts, &mut verdict);
    isolation::check(&facts, &mut verdict);
    drained::check(&facts, &mut verdict);
    standalone::check(&facts, &mut verdict);
    told::check(plan, &facts, &mut verdict);
    refused::check(plan, &facts, &mut verdict);
    live::check(plan, &facts, &mut verdict);
    verdict.violations.sort_by_key(|violation| violation.at_ms);
    verdict
}

#[cfg(test)]
mod tests;
