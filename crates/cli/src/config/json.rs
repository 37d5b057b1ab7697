//! JSON as values with their places.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::document::{Fault, Field, Node, Value};
use super::expand::{Lookup, expand};

/// Nesting of a file; every level is read once more for each level above it.
const DEPTH_MAX: usize = 16;

/// Reads a whole file.
///
/// # Errors
/// If it is no JSON, or a text cannot be expanded.
pub(super) fn read(text: &str, lookup: Lookup<'_>) -> Result<Node, Fault> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| {
        let at = offset(text, error.line(), error.column());
        let told = error.to_string();
        let what = told.split(" at line ").next().unwrap_or_default();
        Fault::new(at, format!("this is not JSON: {what}"))
    })?;
    Reader { text, lookup }.node(raw, DEPTH_MAX)
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
                let expanded = expand(&text, self.lookup);
                Value::Text(expanded.map_err(|problem| Fault::new(at, problem))?)
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
            if fields.iter().any(|field| field.name == name) {
                return Err(Fault::new(at, "this key is there twice: take one of the two out"));
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
