//! Tells JSON-RPC messages from everything else a program prints, without touching their bytes.
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What the adapter must know of one JSON-RPC message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Probe<'a> {
    /// The id as it is written; of several the last.
    pub(super) id: Option<&'a str>,
    /// Whether it has a method: a request or a notification.
    pub(super) method: bool,
    /// Whether it is an error response.
    pub(super) error: bool,
}

impl<'a> Probe<'a> {
    /// Reads one message. `None`: not a JSON-RPC 2.0 message.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let members: Members<'a> = serde_json::from_str(text).ok()?;
        let Members { version, id, method, result, error } = members;
        (version && (method || result || error)).then_some(Self { id, method, error })
    }

    /// The id of a response, when it is a number as Rejoin mints them.
    pub(super) fn answered(&self) -> Option<u64> {
        if self.method { None } else { self.id?.parse().ok() }
    }
}

/// Whether two ids, as written, are the same JSON value.
pub(super) fn same_id(one: &str, other: &str) -> bool {
    let value = |text| serde_json::from_str::<serde_json::Value>(text).ok();
    one == other || value(one).is_some_and(|one| Some(one) == value(other))
}

/// The members of a batch (revision 2025-03-26 only).
pub(super) fn batch(text: &str) -> Option<Vec<&str>> {
    let members: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(members.into_iter().map(RawValue::get).collect())
}

#[derive(Default)]
struct Members<'a> {
    version: bool,
    id: Option<&'a str>,
    method: bool,
    result: bool,
    error: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Name {
    Jsonrpc,
    Id,
    Method,
    Result,
    Error,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Members::default();
                while let Some(name) = map.next_key()? {
                    let value: &'de RawValue = match name {
                        Name::Other => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                        _ => map.next_value()?,
                    };
                    match name {
                        Name::Jsonrpc => members.version = value.get() == "\"2.0\"",
                        Name::Id => members.id = Some(value.get()),
                        Name::Method => members.method = value.get().starts_with('"'),
                        Name::Result => members.result = true,
                        Name::Error => members.error = true,
                        Name::Other => {}
                    }
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// The id of a response of which only the first and last bytes are known, if they tell it.
///
/// It is read only from a top-level member, and only when a top-level `result` or `error` and no
/// `method` was seen: a wrong guess would answer another call.
pub(super) fn answered_by_ends(head: &[u8], tail: &[u8]) -> Option<u64> {
    let mut scan = Scan { bytes: head, at: 0 };
    let (mut id, mut outcome) = (None, false);
    scan.skip_if(b'{')?;
    while let Some(name) = scan.name() {
        match name {
            b"\"method\"" => return None,
            b"\"result\"" | b"\"error\"" => outcome = true,
            b"\"id\"" => id = scan.number(),
            _ => {}
        }
        if scan.value().is_none() {
            break;
        }
    }
    if outcome { id.or_else(|| last_member_id(tail)) } else { None }
}

/// The number in `,"id":N}` at the very end of a line, which can only be a top-level member.
fn last_member_id(tail: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(&tail[tail.iter().rposition(|&byte| byte == b',')?..]).ok()?;
    let text = text.strip_prefix(',')?.trim_start().strip_prefix("\"id\"")?;
    let text = text.trim_start().strip_prefix(':')?.trim().strip_suffix('}')?;
    text.trim().parse().ok()
}

/// A walk over the top level of a JSON object that may be cut off anywhere.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn skip_if(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// The next member's name in its quotes; the walk stands behind its colon.
    fn name(&mut self) -> Option<&'a [u8]> {
        if self.peek()? == b',' {
            self.at += 1;
        }
        self.peek()?;
        let start = self.at;
        self.string()?;
        let name = &self.bytes[start..self.at];
        self.skip_if(b':')?;
        Some(name)
    }

    fn string(&mut self) -> Option<()> {
        self.skip_if(b'"')?;
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return Some(());
            }
        }
    }

    /// The number here, if a whole one is; the walk does not move.
    fn number(&mut self) -> Option<u64> {
        self.peek()?;
        let rest = &self.bytes[self.at..];
        let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
        let ends = matches!(rest[digits], b',' | b'}') || rest[digits].is_ascii_whitespace();
        if ends { std::str::from_utf8(&rest[..digits]).ok()?.parse().ok() } else { None }
    }

    /// Walks over a value. `None`: it is cut off.
    fn value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b'}' | b']' => return Some(()),
                _ => self.at += 1,
            }
            if depth == 0 && matches!(self.peek()?, b',' | b'}') {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_rpc_is_told_from_other_output() {
        for good in [
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#" { "result" : null , "id" : 7 , "jsonrpc" : "2.0" } "#,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}"#,
            r#"{"json\u0072pc":"2.0","id":7,"result":1,"id":7}"#,
        ] {
            assert_eq!(Probe::read(good).and_then(|probe| probe.answered()), Some(7), "{good}");
        }
        for bad in [
            "",
            "Listening on port 3000",
            "\u{1b}[32mready\u{1b}[0m",
            r#"{"level":"info","msg":"started"}"#,
            r#"{"jsonrpc":"1.0","id":7,"result":1}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":1} trailing"#,
            r#"loading... {"jsonrpc":"2.0","id":7,"result":1}"#,
            r#"{"jsonrpc":"2.0","id":7,"resu"#,
            "7",
        ] {
            assert_eq!(Probe::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_a_response_with_a_number_answers_a_call() {
        let answered = |text| Probe::read(text).and_then(|probe| probe.answered());
        assert_eq!(answered(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#), None);
        assert_eq!(answered(r#"{"jsonrpc":"2.0","id":"7","result":1}"#), None);
        assert_eq!(answered(r#"{"jsonrpc":"2.0","id":-7,"result":1}"#), None);
        assert_eq!(answered(r#"{"jsonrpc":"2.0","result":1}"#), None);
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let deep = "[".repeat(1_000_000);
        assert_eq!(Probe::read(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}"#)), None);
    }

    #[test]
    fn ids_are_compared_as_values() {
        assert!(same_id("1", "1") && same_id(r#""a""#, r#""\u0061""#));
        assert!(!same_id("1", r#""1""#) && !same_id("1", "2"));
    }

    #[test]
    fn the_id_of_a_cut_response_is_read_from_its_ends() {
        let head = |text: &str| answered_by_ends(text.as_bytes(), b"");
        assert_eq!(head(r#"{"jsonrpc":"2.0","id":12,"result":{"text":"aaa"#), Some(12));
        assert_eq!(head(r#"{ "id" : 12 , "x":[{"id":1}], "error" : {"a"#), Some(12));
        assert_eq!(head(r#"{"id":12,"method":"sampling/createMessage","params":"#), None);
        assert_eq!(head(r#"{"id":12,"params":{"result":1,"#), None);
        assert_eq!(head(r#"{"result":{"id":5,"text":"aaa"#), None);
        assert_eq!(head(r#"{"result":1,"id":5"#), None, "the number may go on");
        assert_eq!(head("not json"), None);

        let start = br#"{"jsonrpc":"2.0","result":{"a"#;
        let both = |tail: &str| answered_by_ends(start, tail.as_bytes());
        assert_eq!(both(r#"aaa"},"id":31}"#), Some(31));
        assert_eq!(both(r#"aaa"}, "id" : 31 } "#), Some(31));
        assert_eq!(both(r#"aaa","id":31}}"#), None);
        assert_eq!(both(r#"aaa,\"id\":31}"}}"#), None);
    }

    #[test]
    fn cut_anywhere_an_id_is_right_or_absent() {
        let text = r#"{"a":"\"id\":9,","b":{"id":8},"id":12,"c":[1,{"d":"}"}],"result":{"id":7}}"#;
        for cut in 0..text.len() {
            let id = answered_by_ends(&text.as_bytes()[..cut], b"");
            assert!(matches!(id, None | Some(12)), "cut at {cut}: {id:?}");
        }
    }
}
