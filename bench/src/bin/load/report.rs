//! Tables of medians with their spread, and the figures that are wanted.

mod chart;
mod page;
mod target;

use std::fmt::Write as _;

use rejoin_bench::sorted;

use crate::contestant::Kind;
use crate::workload::{Pass, Workload};

pub(crate) use page::write;
pub(crate) use target::targets;

/// One contestant at one workload.
#[derive(Default)]
struct Row {
    values: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    megabytes: Vec<f64>,
    /// What it could not do.
    failure: Option<String>,
}

/// All passes so far.
#[derive(Default)]
pub(crate) struct Report(Vec<(Workload, Kind, Row)>);

impl Report {
    pub(crate) fn add(&mut self, workload: Workload, kind: Kind, pass: &Pass, bytes: u64) {
        let row = self.row_mut(workload, kind);
        row.values.push(pass.value);
        row.p50_us.extend(pass.percentile_us(50));
        row.p99_us.extend(pass.percentile_us(99));
        row.megabytes.push(bytes as f64 / 1e6);
    }

    /// It cannot do that, which is a result too.
    pub(crate) fn add_failure(&mut self, workload: Workload, kind: Kind, why: String) {
        self.row_mut(workload, kind).failure = Some(why);
    }

    /// One workload as a Markdown table.
    pub(crate) fn of(&self, workload: Workload) -> String {
        let mut text = format!(
            "| {} | median | from | to | of rmcp | of the proxy | p50 us | p99 us | MB |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            workload.name()
        );
        for (_, kind, row) in self.0.iter().filter(|(of, ..)| *of == workload) {
            let name = kind.name();
            // Writing to a string does not fail.
            let _ = match (&row.failure, median(&row.values)) {
                (Some(why), _) => writeln!(text, "| {name} | {why} | | | | | | | |"),
                (None, None) => Ok(()),
                (None, Some(value)) => {
                    writeln!(text, "| {name} | {} |", self.cells(workload, row, value))
                }
            };
        }
        text
    }

    fn cells(&self, workload: Workload, row: &Row, value: f64) -> String {
        let (from, to) = ends(&row.values);
        let ratio = |kind| {
            let other = self.median(workload, kind, |row| &row.values)?;
            Some(format!("{:.2}", value / other))
        };
        let [bare, proxy] = [Kind::Bare, Kind::Proxy].map(|kind| ratio(kind).unwrap_or_default());
        let [p50, p99, megabytes] = [&row.p50_us, &row.p99_us, &row.megabytes]
            .map(|values| median(values).map(|value| format!("{value:.0}")).unwrap_or_default());
        let digits = usize::from(workload.is_cost());
        format!(
            "{value:.digits$} | {from:.digits$} | {to:.digits$} | {bare} | {proxy} | {p50} | {p99} \
             | {megabytes}"
        )
    }

    /// The median of what the passes of a contestant measured.
    fn median(&self, workload: Workload, kind: Kind, of: fn(&Row) -> &Vec<f64>) -> Option<f64> {
        let (.., row) = self.0.iter().find(|(of, who, _)| *of == workload && *who == kind)?;
        median(of(row))
    }

    fn row_mut(&mut self, workload: Workload, kind: Kind) -> &mut Row {
        let known = self.0.iter().position(|(of, who, _)| *of == workload && *who == kind);
        let at = known.unwrap_or_else(|| {
            self.0.push((workload, kind, Row::default()));
            self.0.len() - 1
        });
        &mut self.0[at].2
    }
}

fn median(values: &[f64]) -> Option<f64> {
    sorted(values).get(values.len() / 2).copied()
}

fn ends(values: &[f64]) -> (f64, f64) {
    let values = sorted(values);
    let end = |value: Option<&f64>| value.copied().unwrap_or_default();
    (end(values.first()), end(values.last()))
}
