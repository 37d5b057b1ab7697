//! What `rejoin sessions` prints: whatever strangers had stored, or answers at the admin address,
//! no terminal obeys it, and what is JSON still means the same.

use bytes::Bytes;
use rejoin::fuzz::{exported, said_of, shown};
use rejoin_core::effect::{Event, EventKind};
use rejoin_core::id::{Seq, StreamId};
use serde_json::Value;
use serde_json::value::RawValue;

/// The input is what the admin address answered; the payload of an event; and a name in every
/// place of an answer.
pub fn run(data: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<Value>(data) {
        check(&value);
    }
    check_export(data);
    let name = String::from_utf8_lossy(data).into_owned();
    let message = shown(&name);
    assert!(message.chars().all(|c| c == '\n' || is_harmless(c)), "{message:?}");
    assert_eq!(message.chars().count(), name.chars().count());
    let entry = |key: &str| {
        let keys = ["id", "session", "path", "principal", "method", "tool", "state", "waiting"];
        let members = keys.map(|of| (of.to_owned(), Value::from(name.as_str())));
        Value::Object(
            [(key.to_owned(), Value::Object(members.into_iter().collect()))].into_iter().collect(),
        )
    };
    let list = |of: &str| Value::Array(vec![entry(of)[of].clone(), Value::from(name.as_str())]);
    let places = ["sessions", "streams", "calls"].map(|of| (of.to_owned(), list(of)));
    check(&Value::Object(places.into_iter().collect()));
}

fn check(value: &Value) {
    let [json, tables @ ..] = said_of(value);
    assert!(json.chars().all(|c| c == '\n' || is_harmless(c)), "{json:?}");
    let meant = serde_json::from_str::<Value>(&json).expect("it is JSON still");
    // A number with a fraction, which no answer has, is not read to its last digit.
    assert!(has_fraction(value) || &meant == value, "{json} of {value}");
    for table in tables {
        assert!(table.chars().all(|c| c == '\n' || is_harmless(c)), "{table:?}");
        assert!(table.ends_with('\n'));
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(values) => values.iter().any(has_fraction),
        Value::Object(members) => members.values().any(has_fraction),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// One line, whose message is what was stored.
fn check_export(payload: &[u8]) {
    let event = Event {
        stream: StreamId(1),
        seq: Seq(2),
        previous: Seq(1),
        kind: EventKind::Response,
        last: true,
        payload: Bytes::copy_from_slice(payload),
    };
    let line = exported(&event).expect("it can be written");
    // Between the members of a message a tab may stand.
    assert!(line.chars().all(|c| c == '\t' || is_harmless(c)), "{line:?}");
    let read = serde_json::from_str::<&RawValue>(&line).map(RawValue::get);
    assert_eq!(read.ok(), Some(&line[..]), "it is JSON");
    let (Ok(stored), Ok(line)) =
        (serde_json::from_slice::<Value>(payload), serde_json::from_str::<Value>(&line))
    else {
        return;
    };
    assert_eq!(line["message"], stored);
}

/// Neither a control character (general category Cc) nor one that has the property Bidi_Control.
fn is_harmless(character: char) -> bool {
    !matches!(u32::from(character),
        0..=0x1F | 0x7F..=0x9F | 0x61C | 0x200E..=0x200F | 0x202A..=0x202E | 0x2066..=0x2069)
}
