//! TOML as values with their places.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Fault, Field, Node, Value};
use super::expand::{Lookup, expand};

/// Reads a whole file.
///
/// # Errors
/// If it is no TOML, or a text cannot be expanded.
pub(super) fn read(text: &str, lookup: Lookup<'_>) -> Result<Node, Fault> {
    // The error's own text shows the line, and with it perhaps a secret.
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Fault::new(at, format!("this is not TOML: {}", error.message().replace('\n', ", ")))
    })?;
    let at = table.span().start;
    Ok(Node { at, value: fields(table.get_ref(), lookup)? })
}

fn fields(table: &DeTable<'_>, lookup: Lookup<'_>) -> Result<Value, Fault> {
    let fields = table.iter().map(|(key, value)| {
        let name = key.get_ref().to_string();
        Ok(Field { name, at: key.span().start, node: node(value, lookup)? })
    });
    let mut fields = fields.collect::<Result<Vec<_>, Fault>>()?;
    fields.sort_by_key(|field| field.at);
    Ok(Value::Table(fields))
}

fn node(spanned: &Spanned<DeValue<'_>>, lookup: Lookup<'_>) -> Result<Node, Fault> {
    let at = spanned.span().start;
    let value = match spanned.get_ref() {
        DeValue::String(text) => {
            Value::Text(expand(text, lookup).map_err(|problem| Fault::new(at, problem))?)
        }
        DeValue::Integer(number) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix());
            Value::Number(decimal.map_or_else(|_| number.to_string(), |number| number.to_string()))
        }
        DeValue::Float(number) => Value::Number(number.to_string()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(_) => Value::Other("a date or time"),
        DeValue::Array(values) => {
            let nodes = values.iter().map(|value| node(value, lookup));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => fields(table, lookup)?,
    };
    Ok(Node { at, value })
}
