//! Messages in rows: as text, so that a row is about as long as what it holds.
//!
//! For `#[serde(with = "..")]`. What is no UTF-8 is kept as a list of numbers; both are read.

use std::fmt;

use bytes::Bytes;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that are nearly always text.
struct Text(Bytes);

/// Writes bytes as text.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => serializer.collect_seq(bytes.iter()),
    }
}

/// Reads bytes that were written as text or as numbers.
///
/// # Errors
/// If they are neither.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    deserializer.deserialize_any(TextVisitor)
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}

/// The same for `Option<Bytes>`.
pub mod option {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Text;

    /// As [`super::serialize`].
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &Option<Bytes>, to: S) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Text).serialize(to)
    }

    /// As [`super::deserialize`].
    ///
    /// # Errors
    /// If they are neither.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Text>::deserialize(from)?.map(|text| text.0))
    }
}

/// The same for `Vec<Bytes>`.
pub mod list {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Text;

    /// As [`super::serialize`].
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(list: &[Bytes], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().cloned().map(Text))
    }

    /// As [`super::deserialize`].
    ///
    /// # Errors
    /// If they are neither.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Bytes>, D::Error> {
        Ok(Vec::<Text>::deserialize(from)?.into_iter().map(|text| text.0).collect())
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Bytes;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text, or a list of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        Ok(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Bytes, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = numbers.next_element::<u8>()? {
            bytes.push(byte);
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        #[serde(with = "super")]
        one: Bytes,
        #[serde(with = "super::option")]
        perhaps: Option<Bytes>,
        #[serde(with = "super::list")]
        several: Vec<Bytes>,
    }

    fn row(bytes: &'static [u8]) -> Row {
        let bytes = Bytes::from_static(bytes);
        Row {
            one: bytes.clone(),
            perhaps: Some(bytes.clone()),
            several: vec![bytes.clone(), bytes],
        }
    }

    #[test]
    fn bytes_of_any_kind_come_back_and_text_takes_no_more_room_than_it_needs() {
        for row in [row(b"{\"id\":1e400,\"text\":\"\xc3\xa4\"}"), row(b"\xff\x00"), row(b"")] {
            let stored = serde_json::to_vec(&row).unwrap();
            assert_eq!(serde_json::from_slice::<Row>(&stored).unwrap(), row);
        }
        let message = Box::leak(vec![b'x'; 1_000].into_boxed_slice());
        assert!(serde_json::to_vec(&row(message)).unwrap().len() < 4_100);
    }

    #[test]
    fn rows_that_were_written_as_numbers_are_read() {
        let former = r#"{"one":[104,105],"perhaps":null,"several":[[104],[]]}"#;
        let row: Row = serde_json::from_str(former).unwrap();
        assert_eq!((&row.one[..], row.several.len()), (&b"hi"[..], 2));
        assert!(
            serde_json::from_str::<Row>(r#"{"one":[256],"perhaps":null,"several":[]}"#).is_err()
        );
    }
}
