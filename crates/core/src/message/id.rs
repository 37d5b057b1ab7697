//! Ids and progress tokens as keys.
use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::scan::Scanner;
use super::text::{string_value, write_string};

/// A JSON-RPC id or progress token in canonical form, to compare and look up.
///
/// Strings are equal if they are after unescaping; integers of any size are exact; the number `1`
/// is not the string `"1"`. Integers sort before strings, by value. Held, shown and serialised as
/// its JSON text, for instance `7` or `"a"`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdKey(Box<str>);

/// Why a text is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id is {found}: only strings and integers are ids")]
pub struct IdKeyError {
    /// What it is instead.
    pub found: &'static str,
}

impl IdKey {
    /// The key of a string id.
    pub fn text(text: &str) -> Self {
        let mut token = Vec::with_capacity(text.len() + 2);
        write_string(text.as_bytes(), &mut token);
        Self(String::from_utf8_lossy(&token).into())
    }

    /// The key of an id as written in JSON, with quotes if it is a string.
    ///
    /// # Errors
    /// If `token` is not exactly one JSON string of Unicode characters or one integer without
    /// fraction and exponent.
    pub fn from_json(token: &[u8]) -> Result<Self, IdKeyError> {
        let mut scanner = Scanner::new(token, usize::MAX);
        if scanner.value().is_err() || scanner.position() != token.len() {
            return Err(IdKeyError { found: "not one JSON value" });
        }
        let found = match token.first() {
            Some(b'"') => match string_value(token) {
                Some(text) => return Ok(Self::text(&text)),
                None => "a string with half a surrogate pair",
            },
            Some(b'-' | b'0'..=b'9') => match std::str::from_utf8(token) {
                Ok("-0") => return Ok(Self("0".into())),
                Ok(number) if !number.contains(['.', 'e', 'E']) => return Ok(Self(number.into())),
                _ => "a number with fraction or exponent",
            },
            Some(b'n') => "null",
            Some(b't' | b'f') => "true or false",
            Some(b'[') => "an array",
            _ => "an object",
        };
        Err(IdKeyError { found })
    }

    /// The id as JSON text, ready to be written into a message.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The integer, if it is one of 64 bits.
    pub fn as_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    fn order(&self) -> (bool, bool, usize, &str) {
        let text = &*self.0;
        (text.starts_with('"'), !text.starts_with('-'), text.len(), text)
    }
}

impl From<u64> for IdKey {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl TryFrom<String> for IdKey {
    type Error = IdKeyError;

    fn try_from(token: String) -> Result<Self, IdKeyError> {
        Self::from_json(token.as_bytes())
    }
}

impl From<IdKey> for String {
    fn from(key: IdKey) -> Self {
        key.0.into()
    }
}

impl Ord for IdKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let (self_order, other_order) = (self.order(), other.order());
        if self_order.0 && other_order.0 {
            return self.0.cmp(&other.0);
        }
        let by_value = self_order.cmp(&other_order);
        let both_negative = self.0.starts_with('-') && other.0.starts_with('-');
        if both_negative { by_value.reverse() } else { by_value }
    }
}

impl PartialOrd for IdKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for IdKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "IdKey({})", self.0)
    }
}

impl fmt::Display for IdKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
