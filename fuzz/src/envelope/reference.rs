//! What a body means, by `serde_json`: objects as lists of their members, strings as the bytes they
//! stand for, everything else as it is written.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object as written, with keys unescaped (halves of surrogate pairs as WTF-8).
#[derive(Debug)]
pub(super) struct Members<'a>(pub(super) Vec<(Vec<u8>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The members of a value, if it is an object.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The value of a key; the last one if there are several.
    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        let found = self.0.iter().rev().find(|(name, _)| name == key.as_bytes());
        found.map(|(_, value)| value.get())
    }

    /// The members of the object that a key holds.
    pub(super) fn object(&self, key: &str) -> Option<Self> {
        Members::of(self.get(key)?)
    }

    /// True if a key is there twice.
    pub(super) fn has_twice(&self) -> bool {
        let keys = || self.0.iter().map(|(key, _)| key);
        keys().enumerate().any(|(at, key)| keys().skip(at + 1).any(|other| other == key))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Text(key)) = map.next_key()? {
                    members.push((key, map.next_value()?));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

/// The bytes that a string stands for.
struct Text(Vec<u8>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Raw;

        impl Visitor<'_> for Raw {
            type Value = Text;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(bytes.to_vec()))
            }
        }

        deserializer.deserialize_bytes(Raw)
    }
}

/// The bytes of a string value.
pub(super) fn bytes_of(value: &str) -> Option<Vec<u8>> {
    if !value.starts_with('"') {
        return None;
    }
    serde_json::from_str::<Text>(value).ok().map(|text| text.0)
}

/// The text of a string value, unless it has half a surrogate pair.
pub(super) fn text_of(value: &str) -> Option<String> {
    String::from_utf8(bytes_of(value)?).ok()
}

/// What an id or a token is looked up by: a string, or an integer of any size.
pub(super) fn key_of(value: &str) -> Option<serde_json::Value> {
    if let Some(text) = text_of(value) {
        return Some(text.into());
    }
    let is_integer = value.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
    let number = if value == "-0" { "0" } else { value };
    // As a list, so that no string is equal to it.
    is_integer.then(|| vec![number].into())
}

/// The elements of an array.
pub(super) fn elements(text: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(text).ok()
}

/// Objects and arrays inside each other.
pub(super) fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The canonical form of params (design section 5), and the same value written in another way.
pub(super) fn canonical(text: &str, is_params: bool) -> Vec<u8> {
    if let Some(Members(mut members)) = Members::of(text) {
        members.retain(|(key, _)| !is_params || key != b"_meta");
        let written = members.iter().map(|(key, value)| {
            let value = canonical(value.get(), false);
            (string(key), value)
        });
        let mut written: Vec<_> = written.collect();
        // Without the closing quote.
        written.sort_by(|(one, _), (other, _)| one[..one.len() - 1].cmp(&other[..other.len() - 1]));
        let members = written.into_iter().map(|(key, value)| [&key[..], b":", &value].concat());
        let members: Vec<_> = members.collect();
        return [&b"{"[..], &members.join(&b','), b"}"].concat();
    }
    if let Some(elements) = elements(text) {
        let elements: Vec<_> =
            elements.iter().map(|element| canonical(element.get(), false)).collect();
        return [&b"["[..], &elements.join(&b','), b"]"].concat();
    }
    bytes_of(text).map_or_else(|| text.as_bytes().to_vec(), |text| string(&text))
}

/// Another spelling of a message: members backwards, every character of a string as an escape,
/// whitespace everywhere.
pub(super) fn respelled(text: &str) -> String {
    if let Some(Members(members)) = Members::of(text) {
        let mut groups: Vec<(&Vec<u8>, Vec<&str>)> = Vec::new();
        for (key, value) in &members {
            match groups.iter_mut().find(|(name, _)| *name == key) {
                // Equal keys keep their order.
                Some((_, values)) => values.push(value.get()),
                None => groups.push((key, vec![value.get()])),
            }
        }
        let pairs = groups.iter().rev().flat_map(|(key, values)| {
            values.iter().map(|value| format!("{}\t:\r\n{}", escaped(key), respelled(value)))
        });
        return format!("{{ {} }}", pairs.collect::<Vec<_>>().join(" ,\n"));
    }
    if let Some(elements) = elements(text) {
        let elements: Vec<_> = elements.iter().map(|element| respelled(element.get())).collect();
        return format!("[ {} ]", elements.join("\n, "));
    }
    bytes_of(text).map_or_else(|| text.to_owned(), |text| escaped(&text))
}

/// The UTF-16 code units of WTF-8.
fn code_units(text: &[u8]) -> Vec<u16> {
    let mut units = Vec::new();
    for chunk in text.utf8_chunks() {
        units.extend(chunk.valid().encode_utf16());
        // Half a pair is three bytes that are invalid one by one.
        if let [last] = chunk.invalid() {
            match last {
                0xED => units.push(0xD000),
                low => match units.last_mut() {
                    Some(unit) if *unit == 0xD000 => *unit |= u16::from(low & 0x3F) << 6,
                    Some(unit) => *unit |= u16::from(low & 0x3F),
                    None => {}
                },
            }
        }
    }
    units
}

fn string(text: &[u8]) -> Vec<u8> {
    let mut out = String::from('"');
    for unit in char::decode_utf16(code_units(text)) {
        match unit {
            Ok(quoted @ ('"' | '\\')) => out.extend(['\\', quoted]),
            Ok(control @ '\0'..'\u{20}') => out += &format!("\\u{:04x}", u32::from(control)),
            Ok(other) => out.push(other),
            Err(half) => out += &format!("\\u{:04x}", half.unpaired_surrogate()),
        }
    }
    out.push('"');
    out.into_bytes()
}

fn escaped(text: &[u8]) -> String {
    let units = code_units(text);
    let escapes: String = units.iter().map(|unit| format!("\\u{unit:04X}")).collect();
    format!("\"{escapes}\"")
}
