//! Tables of medians with their spread, and the ratios that are wanted.

use std::fmt::Write as _;

use crate::contestant::{Kind, Log};
use crate::workload::{Pass, Workload};

struct Row {
    workload: Workload,
    kind: Kind,
    per_second: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    megabytes: Vec<f64>,
}

/// All passes so far.
#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

impl Report {
    pub(crate) fn add(&mut self, workload: Workload, kind: Kind, pass: &Pass, bytes: u64) {
        let known = self.0.iter().position(|row| row.workload == workload && row.kind == kind);
        let at = known.unwrap_or_else(|| {
            let [per_second, p50_us, p99_us, megabytes] = [const { Vec::new() }; 4];
            self.0.push(Row { workload, kind, per_second, p50_us, p99_us, megabytes });
            self.0.len() - 1
        });
        let row = &mut self.0[at];
        row.per_second.push(pass.per_second);
        row.p50_us.push(pass.percentile_us(50));
        row.p99_us.push(pass.percentile_us(99));
        row.megabytes.push(bytes as f64 / 1e6);
    }

    /// One workload as a Markdown table.
    pub(crate) fn of(&self, workload: Workload) -> String {
        let mut text = format!(
            "| {} | median | from | to | of rmcp | of the proxy | p50 us | p99 us | MB |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            workload.name()
        );
        for row in self.0.iter().filter(|row| row.workload == workload) {
            let (from, to) = ends(&row.per_second);
            let ratio = |kind| {
                let other = self.rate(workload, kind)?;
                Some(format!("{:.2}", median(&row.per_second) / other))
            };
            let [bare, proxy] =
                [Kind::Bare, Kind::Proxy].map(|kind| ratio(kind).unwrap_or_default());
            let [p50, p99, megabytes] =
                [&row.p50_us, &row.p99_us, &row.megabytes].map(|values| median(values));
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {} | {:.0} | {from:.0} | {to:.0} | {bare} | {proxy} | {p50:.0} | {p99:.0} \
                 | {megabytes:.0} |",
                row.kind.name(),
                median(&row.per_second),
            );
        }
        text
    }

    /// A line for each target: met or not.
    pub(crate) fn targets(&self) -> String {
        let mut text = String::new();
        for target in &TARGETS {
            let ratio = self.ratio(target);
            let (word, ratio) = match ratio {
                None => ("not measured", 0.0),
                Some(ratio) if target.is_met(ratio) => ("met", ratio),
                Some(ratio) => ("NOT MET", ratio),
            };
            let sign = if target.is_at_most { "<=" } else { ">=" };
            let _ = writeln!(
                text,
                "{word:12} {ratio:5.2} {sign} {:.2}  {} / {}, {}{}",
                target.bound,
                target.kind.name(),
                target.beside.name(),
                target.workload.name(),
                if target.is_at_most { ", p50" } else { "" },
            );
        }
        text
    }

    fn ratio(&self, target: &Target) -> Option<f64> {
        let value = |kind| {
            let row = self.row(target.workload, kind)?;
            Some(median(if target.is_at_most { &row.p50_us } else { &row.per_second }))
        };
        Some(value(target.kind)? / value(target.beside)?)
    }

    fn rate(&self, workload: Workload, kind: Kind) -> Option<f64> {
        self.row(workload, kind).map(|row| median(&row.per_second))
    }

    fn row(&self, workload: Workload, kind: Kind) -> Option<&Row> {
        self.0.iter().find(|row| row.workload == workload && row.kind == kind)
    }
}

/// A ratio that is wanted: of calls or events in a second at least, of the median wait at most.
struct Target {
    workload: Workload,
    kind: Kind,
    beside: Kind,
    bound: f64,
    is_at_most: bool,
}

impl Target {
    const fn least(workload: Workload, kind: Kind, beside: Kind, bound: f64) -> Self {
        Self { workload, kind, beside, bound, is_at_most: false }
    }

    fn is_met(&self, ratio: f64) -> bool {
        if self.is_at_most { ratio <= self.bound } else { ratio >= self.bound }
    }
}

const MANY: Workload = Workload::Calls { connections: 64 };
const STREAM: Workload = Workload::Progress { streams: 1, bytes: 100 };
const TARGETS: [Target; 6] = [
    Target::least(MANY, Kind::Layer(Log::Memory), Kind::Bare, 0.85),
    Target::least(MANY, Kind::Layer(Log::Calls), Kind::Bare, 0.5),
    Target::least(MANY, Kind::Gateway(Log::Memory), Kind::Proxy, 0.8),
    Target {
        workload: Workload::Calls { connections: 1 },
        kind: Kind::Gateway(Log::Memory),
        beside: Kind::Proxy,
        bound: 1.3,
        is_at_most: true,
    },
    Target::least(MANY, Kind::Gateway(Log::Calls), Kind::Proxy, 0.5),
    Target::least(STREAM, Kind::Gateway(Log::Calls), Kind::Proxy, 0.9),
];

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    sorted(values)[values.len() / 2]
}

fn ends(values: &[f64]) -> (f64, f64) {
    let values = sorted(values);
    (values[0], values[values.len() - 1])
}
