//! TOML as values with their places.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Fault, Field, Node, Value};
use super::expand::{Lookup, Text};

/// Reads a whole file.
///
/// # Errors
/// If it is no TOML.
pub(super) fn read(text: &str, lookup: Lookup<'_>) -> Result<Node, Fault> {
    // The error's own text shows the line, and with it perhaps a secret.
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        let told = error.message().replace('\n', ", ");
        let remedy = if told == "duplicate key" {
            twice(text, span.start, text.get(span.clone()).unwrap_or_default())
        } else {
            remedy(text, span.start).to_owned()
        };
        Fault::new(span.start, format!("this is not TOML: {told}{remedy}"))
    })?;
    let at = table.span().start;
    Ok(Node { at, value: fields(table.get_ref(), lookup) })
}

/// Which key or table is there twice, and where it is first.
fn twice(text: &str, at: usize, key: &str) -> String {
    let before = text.get(..at).unwrap_or_default();
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    let is_table = |line: &str| line.trim_start().starts_with('[');
    let line_of_key = text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let written_as = |line: &str| {
        let written = line.trim_start().strip_prefix(key).map(str::trim_start);
        written.is_some_and(|rest| rest.starts_with(['=', '.']))
    };
    let lines: Vec<&str> = text.get(..begin).unwrap_or_default().lines().collect();
    let first = if is_table(line_of_key) {
        lines.iter().rposition(|line| line.trim() == line_of_key.trim())
    } else {
        let table = lines.iter().rposition(|line| is_table(line)).unwrap_or_default();
        lines.iter().rposition(|line| written_as(line)).filter(|found| *found >= table)
    };
    let first = first.map(|line| format!(", first in line {}", line + 1)).unwrap_or_default();
    format!(": {key:?} is there twice{first}: take one of the two out")
}

/// What to do about a slip at this place.
fn remedy(text: &str, at: usize) -> &'static str {
    if text.trim_start().starts_with('{') {
        return "; if it is JSON, its name must end in .json";
    }
    let before = text.get(..at).unwrap_or_default();
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    match line.split_once('=').map(|(_, value)| value.trim_start()) {
        Some(value) if value.starts_with(|c: char| c.is_alphanumeric() || "/.~-$".contains(c)) => {
            "; a value that is not a number, true or false needs quotes around it"
        }
        Some(value) if value.starts_with('"') && at > begin => {
            "; a string ends with the quotes that it began with, and \\ in it is written \\\\"
        }
        None if line.contains(':') => "; TOML has KEY = VALUE, not KEY: VALUE",
        _ => "",
    }
}

fn fields(table: &DeTable<'_>, lookup: Lookup<'_>) -> Value {
    let fields = table.iter().map(|(key, value)| {
        let name = key.get_ref().to_string();
        Field { name, at: key.span().start, node: node(value, lookup) }
    });
    let mut fields: Vec<_> = fields.collect();
    fields.sort_by_key(|field| field.at);
    Value::Table(fields)
}

fn node(spanned: &Spanned<DeValue<'_>>, lookup: Lookup<'_>) -> Node {
    let value = match spanned.get_ref() {
        DeValue::String(text) => Value::Text(Text::read(text, lookup)),
        DeValue::Integer(number) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix());
            Value::Number(decimal.map_or_else(|_| number.to_string(), |number| number.to_string()))
        }
        DeValue::Float(number) => Value::Number(number.to_string()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(_) => Value::Other("a date or time"),
        DeValue::Array(values) => {
            Value::List(values.iter().map(|value| node(value, lookup)).collect())
        }
        DeValue::Table(table) => fields(table, lookup),
    };
    Node { at: spanned.span().start, value }
}
