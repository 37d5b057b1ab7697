//! JSON as values with their places.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::document::{Fault, Field, Node, Value};
use super::expand::{Lookup, Text};

/// Nesting of a file; every level is read once more for each level above it.
const DEPTH_MAX: usize = 16;

/// Reads a whole file.
///
/// # Errors
/// If it is no JSON.
pub(super) fn read(text: &str, lookup: Lookup<'_>) -> Result<Node, Fault> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| {
        let at = offset(text, error.line(), error.column());
        let told = error.to_string();
        let what = told.split(" at line ").next().unwrap_or_default();
        Fault::new(at, format!("this is not JSON: {what}{}", remedy(text, at)))
    })?;
    Reader { text, lookup }.node(raw, DEPTH_MAX)
}

/// What to do about the slips that other readers of JSON overlook.
fn remedy(text: &str, at: usize) -> &'static str {
    let (before, after) = text.split_at_checked(at).unwrap_or((text, ""));
    let is_comment = after.starts_with(['/', '#']);
    let is_after_comma = before.trim_end().ends_with(',') && after.starts_with(['}', ']', ',']);
    if text.trim().is_empty() {
        "; the file is empty"
    } else if is_comment {
        "; there are no comments in JSON: take them out"
    } else if is_after_comma {
        "; a comma stands between two values only: take it out before } or ]"
    } else {
        ""
    }
}

/// The offset of a line and a column, in bytes and both counted from 1, as errors have them.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let lines = text.split_inclusive('\n').take(line.saturating_sub(1));
    let before: usize = lines.map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

struct Reader<'a> {
    text: &'a str,
    lookup: Lookup<'a>,
}

impl<'a> Reader<'a> {
    fn node(&self, raw: &'a RawValue, depth: usize) -> Result<Node, Fault> {
        let source = raw.get();
        // What was borrowed from the file knows its place in it.
        let at = (source.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        if depth == 0 {
            return Err(Fault::new(at, "nothing here is nested so deeply: take it out"));
        }
        let broken = |error: serde_json::Error| Fault::new(at, format!("this is no JSON: {error}"));
        let value = match source.as_bytes().first() {
            Some(b'{') => {
                let Pairs(pairs) = serde_json::from_str(source).map_err(broken)?;
                self.fields(at, pairs, depth)?
            }
            Some(b'[') => {
                let raws: Vec<&RawValue> = serde_json::from_str(source).map_err(broken)?;
                let nodes = raws.into_iter().map(|raw| self.node(raw, depth - 1));
                Value::List(nodes.collect::<Result<_, _>>()?)
            }
            Some(b'"') => {
                let text: String = serde_json::from_str(source).map_err(broken)?;
                Value::Text(Text::read(&text, self.lookup))
            }
            Some(b't') => Value::Flag(true),
            Some(b'f') => Value::Flag(false),
            Some(b'n') => Value::Other("null"),
            _ => Value::Number(source.to_owned()),
        };
        Ok(Node { at, value })
    }

    fn fields(
        &self,
        begin: usize,
        pairs: Vec<(String, &'a RawValue)>,
        depth: usize,
    ) -> Result<Value, Fault> {
        let mut fields: Vec<Field> = Vec::new();
        let mut end = begin;
        for (name, raw) in pairs {
            let node = self.node(raw, depth - 1)?;
            // Between two values, the first quote is that of the key.
            let between = self.text.get(end..node.at).unwrap_or_default();
            let at = end + between.find('"').unwrap_or_default();
            end = node.at + raw.get().len();
            if let Some(first) = fields.iter().find(|field| field.name == name) {
                let line = self.text.get(..first.at).unwrap_or_default().matches('\n').count() + 1;
                let problem = format!(
                    "the key {name:?} is there twice, first in line {line}: take one of the two out"
                );
                return Err(Fault::new(at, problem));
            }
            fields.push(Field { name, at, node });
        }
        Ok(Value::Table(fields))
    }
}

/// The fields of an object in their order.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}
