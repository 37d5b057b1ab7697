//! Figures of several passes, as Markdown.

use std::fmt;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// How many in a second.
    PerSecond,
    /// Microseconds.
    Microseconds,
}

struct Row {
    what: &'static str,
    unit: Unit,
    beside: Option<&'static str>,
    values: Vec<f64>,
}

/// Figures in the order in which they were first added. It is shown as a Markdown table: the
/// median of the passes, the least and the most, and the ratio to the baseline.
#[derive(Default)]
pub struct Table(Vec<Row>);

impl Table {
    /// Adds what a pass measured; `beside` is the figure that it is a ratio of.
    pub fn add(
        &mut self,
        what: &'static str,
        unit: Unit,
        beside: Option<&'static str>,
        value: f64,
    ) {
        match self.0.iter_mut().find(|row| row.what == what) {
            Some(row) => row.values.push(value),
            None => self.0.push(Row { what, unit, beside, values: vec![value] }),
        }
    }

    fn median(&self, what: &str) -> Option<f64> {
        let row = self.0.iter().find(|row| row.what == what)?;
        Some(sorted(&row.values)[row.values.len() / 2])
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "| | median | from | to | of the raw loop's |\n|---|---:|---:|---:|---:|")?;
        for row in &self.0 {
            let values = sorted(&row.values);
            let (median, last) = (values[values.len() / 2], values[values.len() - 1]);
            let unit = match row.unit {
                Unit::PerSecond => "/s",
                Unit::Microseconds => " us",
            };
            let baseline = row.beside.and_then(|beside| self.median(beside));
            let ratio = baseline.map_or(String::new(), |all| format!("{:.2}", median / all));
            let [median, from, to] = [median, values[0], last].map(grouped);
            writeln!(out, "| {} | {median}{unit} | {from} | {to} | {ratio} |", row.what)?;
        }
        Ok(())
    }
}

/// The values from the least to the most.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// A whole number with its thousands apart.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_median_its_spread_and_its_ratio() {
        let mut table = Table::default();
        for value in [2_000.0, 1_000.0, 4_000.0] {
            table.add("raw", Unit::PerSecond, None, value);
            table.add("claims", Unit::PerSecond, Some("raw"), value * 1_000.0 / 2.0);
        }
        let text = table.to_string();
        assert!(
            text.ends_with("| claims | 1,000,000/s | 500,000 | 2,000,000 | 500.00 |\n"),
            "{text}"
        );
        assert!(text.contains("| raw | 2,000/s | 1,000 | 4,000 |  |\n"), "{text}");
    }
}
