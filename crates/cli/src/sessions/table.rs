//! Sessions as tables that a person reads at a glance.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::terminal::plain;

/// A line for each session.
pub(super) fn of_sessions(value: &Value) -> String {
    let none = Vec::new();
    let sessions = value["sessions"].as_array().unwrap_or(&none);
    let rows = sessions.iter().map(|session| {
        vec![
            text(&session["session"]),
            text(&session["path"]),
            text(&session["principal"]),
            text(&session["revision"]),
            counted(&session["streams"], "state"),
            counted(&session["calls"], "phase"),
            text(&session["waiting"]),
        ]
    });
    let heads = ["SESSION", "ENDPOINT", "PRINCIPAL", "REVISION", "STREAMS", "CALLS", "HELD"];
    written(&heads, rows.collect())
}

/// A line for each stream of a session.
pub(super) fn of_streams(session: &Value) -> String {
    let none = Vec::new();
    let streams = session["streams"].as_array().unwrap_or(&none);
    let rows = streams.iter().map(|stream| {
        let fields = ["id", "state", "produced", "sent", "acked", "attached", "bytes"];
        fields.map(|field| text(&stream[field])).into()
    });
    let heads = ["STREAM", "STATE", "PRODUCED", "SENT", "ACKED", "ATTACHED", "BYTES"];
    written(&heads, rows.collect())
}

/// A line for each call of a session.
pub(super) fn of_calls(session: &Value) -> String {
    let none = Vec::new();
    let calls = session["calls"].as_array().unwrap_or(&none);
    let rows = calls.iter().map(|call| {
        let fields = ["id", "method", "tool", "phase", "stream"];
        fields.map(|field| text(&call[field])).into()
    });
    written(&["CALL", "METHOD", "TOOL", "PHASE", "STREAM"], rows.collect())
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text),
        other => plain(&other.to_string()),
    }
}

/// How many of each.
fn counted(values: &Value, by: &str) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for value in values.as_array().into_iter().flatten() {
        if value["id"] != 0 || by != "state" {
            *counts.entry(text(&value[by])).or_default() += 1;
        }
    }
    let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn written(heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut all = vec![heads.iter().map(|&head| head.to_owned()).collect::<Vec<_>>()];
    all.extend(rows);
    let width = |column: usize| {
        let cells = all.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    let mut said = String::new();
    for row in &all {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        said.push_str(line.trim_end());
        said.push('\n');
    }
    said
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_cell_has_what_a_terminal_would_obey_whatever_it_is_made_of() {
        let calls = json!({ "calls": [{ "method": "a\u{1b}[2J", "tool": ["\u{9b}2J"] }] });
        let said = of_calls(&calls);
        assert!(said.contains("a?[2J") && said.contains("[\"?2J\"]"), "{said}");
    }
}
