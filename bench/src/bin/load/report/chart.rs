//! The rates as a picture: for each workload a bar for each contestant, next to the fastest of it.

use std::fmt::Write as _;

use super::{Report, median};
use crate::contestant::Kind;
use crate::workload::Workload;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 170.0;
const BAR_MAX: f64 = 560.0;
const LINE: f64 = 16.0;

impl Report {
    /// All rates that were measured, as SVG.
    pub(crate) fn chart(&self) -> String {
        let (mut body, mut y) = (String::new(), 0.0);
        for workload in Workload::ALL.into_iter().filter(|workload| !workload.is_cost()) {
            let bars = self.bars(workload);
            let most = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
            if bars.is_empty() {
                continue;
            }
            y += LINE * 1.5;
            let name = workload.name();
            // Writing to a string does not fail.
            let _ = writeln!(body, r#"<text x="4" y="{y}" font-weight="bold">{name}</text>"#);
            for (kind, value) in bars {
                y += LINE;
                let _ = writeln!(body, "{}", bar(kind, value, most, y));
            }
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n",
            y + LINE
        )
    }

    fn bars(&self, workload: Workload) -> Vec<(Kind, f64)> {
        let rows = self.0.iter().filter(|(of, ..)| *of == workload);
        rows.filter_map(|(_, kind, row)| Some((*kind, median(&row.values)?))).collect()
    }
}

fn bar(kind: Kind, value: f64, most: f64, y: f64) -> String {
    let length = BAR_MAX * value / most;
    let colour = if kind.is_own() { "#2b6cb0" } else { "#a0aec0" };
    let (name, top, after) = (kind.name().replace('`', ""), y - 10.0, LEFT + length + 6.0);
    format!(
        "<text x=\"16\" y=\"{y}\">{name}</text>\
         <rect x=\"{LEFT}\" y=\"{top}\" width=\"{length:.1}\" height=\"12\" fill=\"{colour}\"/>\
         <text x=\"{after:.1}\" y=\"{y}\">{value:.0}</text>"
    )
}
