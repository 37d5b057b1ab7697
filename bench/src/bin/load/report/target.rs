//! What is wanted, and whether it was met.

use std::fmt::Write as _;

use super::{Report, Row};
use crate::contestant::{Kind, Log};
use crate::decision;
use crate::workload::Workload;

/// What of a workload is judged.
#[derive(Clone, Copy)]
enum Measure {
    Value,
    P50,
    P99Ms,
}

/// A figure that is wanted: `beside` makes it a ratio.
struct Target {
    workload: Workload,
    kind: Kind,
    measure: Measure,
    beside: Option<Kind>,
    bound: f64,
    is_at_most: bool,
}

impl Target {
    const fn ratio(workload: Workload, kind: Kind, beside: Kind, bound: f64) -> Self {
        let (measure, beside) = (Measure::Value, Some(beside));
        Self { workload, kind, measure, beside, bound, is_at_most: false }
    }

    const fn least(workload: Workload, kind: Kind, bound: f64) -> Self {
        let measure = Measure::Value;
        Self { workload, kind, measure, beside: None, bound, is_at_most: false }
    }

    const fn most(workload: Workload, kind: Kind, bound: f64) -> Self {
        let measure = Measure::Value;
        Self { workload, kind, measure, beside: None, bound, is_at_most: true }
    }

    fn of(&self, report: &Report) -> Option<f64> {
        let (values, unit): (fn(&Row) -> &Vec<f64>, f64) = match self.measure {
            Measure::Value => (|row| &row.values, 1.0),
            Measure::P50 => (|row| &row.p50_us, 1.0),
            Measure::P99Ms => (|row| &row.p99_us, 1_000.0),
        };
        let value = report.median(self.workload, self.kind, values)? / unit;
        match self.beside {
            None => Some(value),
            Some(beside) => Some(value / report.median(self.workload, beside, values)? * unit),
        }
    }

    fn name(&self) -> String {
        let measure = match self.measure {
            Measure::Value => "",
            Measure::P50 => ", p50",
            Measure::P99Ms => ", ms of others' calls, p99",
        };
        let beside = self.beside.map(|kind| format!(" / {}", kind.name())).unwrap_or_default();
        format!("{}{beside}, {}{measure}", self.kind.name(), self.workload.name())
    }
}

/// A line for each target: met or not.
pub(crate) fn targets(report: &Report) -> String {
    let mut text = String::new();
    for target in &TARGETS {
        let value = target.of(report);
        line(&mut text, value, (target.is_at_most, target.bound), &target.name());
    }
    for (calls, nanoseconds) in decision::known() {
        let name = format!("us for a decision with {calls} calls in the ledger");
        line(&mut text, nanoseconds.map(|value| value / 1_000.0), (true, 1.0), &name);
    }
    text
}

fn line(text: &mut String, value: Option<f64>, (is_at_most, bound): (bool, f64), name: &str) {
    let word = match value {
        None => "not measured",
        Some(value) if is_at_most && value <= bound => "met",
        Some(value) if !is_at_most && value >= bound => "met",
        Some(_) => "NOT MET",
    };
    let value = value.map(|value| format!("{value:.2}")).unwrap_or_default();
    let sign = if is_at_most { "<=" } else { ">=" };
    // Writing to a string does not fail.
    let _ = writeln!(text, "{word:12} {value:>12} {sign} {bound:>10}  {name}");
}

const MANY: Workload = Workload::Calls { connections: 64 };
const STREAM: Workload = Workload::Progress { streams: 1, bytes: 100 };
const HOT: Workload = Workload::Replay { restarted: false };
const DISK: Workload = Workload::Replay { restarted: true };
const CALLS: Kind = Kind::Gateway(Log::Calls);
const TARGETS: [Target; 12] = [
    Target::ratio(MANY, Kind::Layer(Log::Memory), Kind::Bare, 0.85),
    Target::ratio(MANY, Kind::Layer(Log::Calls), Kind::Bare, 0.5),
    Target::ratio(MANY, Kind::Gateway(Log::Memory), Kind::Proxy, 0.8),
    Target {
        workload: Workload::Calls { connections: 1 },
        kind: Kind::Gateway(Log::Memory),
        measure: Measure::P50,
        beside: Some(Kind::Proxy),
        bound: 1.3,
        is_at_most: true,
    },
    Target::ratio(MANY, CALLS, Kind::Proxy, 0.5),
    Target::ratio(STREAM, CALLS, Kind::Proxy, 0.9),
    Target::least(HOT, CALLS, 1e6),
    Target::least(DISK, CALLS, 0.5e6),
    Target::most(Workload::IdleSessions, CALLS, 12.0),
    Target::most(Workload::IdleStreams, CALLS, 20.0),
    Target::most(Workload::Stalled, CALLS, 8.0),
    Target {
        workload: Workload::Stalled,
        kind: CALLS,
        measure: Measure::P99Ms,
        beside: None,
        bound: 10.0,
        is_at_most: true,
    },
];
