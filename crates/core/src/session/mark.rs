//! The mark of a record: no rule can tell a retry from a deliberate new call whose predecessor's
//! answer was lost, so every record says that it is one, and where the progress before it is
//! (design section 5).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::input::Request;
use crate::message::{self, Incoming, Message};
use crate::token::{ORIGIN_META, RECORDED_META};

/// What a record says of itself.
pub(super) struct Mark<'a> {
    /// When its original ended.
    pub(super) ended_ms: u64,
    /// The cursor from which the progress before it can be had.
    pub(super) origin: Option<&'a str>,
}

impl Mark<'_> {
    /// Its members, by key, as JSON text. A cursor needs no escapes.
    fn members(&self) -> impl Iterator<Item = (&'static str, String)> {
        let origin = self.origin.map(|cursor| (ORIGIN_META, format!("\"{cursor}\"")));
        [(RECORDED_META, self.ended_ms.to_string())].into_iter().chain(origin)
    }

    /// It as a JSON object, with other members as JSON text.
    fn object(&self, others: &str) -> String {
        let members: Vec<_> =
            self.members().map(|(key, value)| format!(r#""{key}":{value}"#)).collect();
        format!("{{{}{others}}}", members.join(","))
    }
}

/// Gives a recorded response the id of the request it now answers, and the mark: in
/// `result._meta`, for an error in its `data`.
pub(super) fn record(response: Bytes, request: &Request, mark: &Mark<'_>) -> Option<Bytes> {
    // The response was parsed when it came; depth was checked then.
    let Ok(Incoming::One(message)) = message::parse(response, usize::MAX) else { return None };
    let id = request.message.id()?;
    if let Some(marked) = replaced(&message, id, mark) {
        return Some(marked);
    }
    let members: Vec<_> = mark.members().collect();
    let edit = members.iter().fold(message.edit().id(id), |edit, (key, value)| {
        edit.result_meta(key, value.as_bytes()).error_data(key, value.as_bytes())
    });
    Some(edit.finish())
}

/// The member of a result that takes the mark.
#[derive(Deserialize)]
struct MarkedResult<'a> {
    #[serde(borrow, default, rename = "_meta", deserialize_with = "even_null")]
    meta: Option<&'a RawValue>,
}

/// The member of an error that takes the mark.
#[derive(Deserialize)]
struct MarkedError<'a> {
    #[serde(borrow, default, deserialize_with = "even_null")]
    data: Option<&'a RawValue>,
}

/// A member that is there, be it null.
fn even_null<'de, D>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The marked record, if the member that takes the mark is there and is no object: it becomes one.
/// Data of an error stays in it, as `value`; the `_meta` of a result can only have been null.
fn replaced(message: &Message, id: &[u8], mark: &Mark<'_>) -> Option<Bytes> {
    let is_object = |raw: &RawValue| raw.get().starts_with('{');
    let (name, members, key, marked) = if let Some(result) = message.result() {
        let meta = serde_json::from_slice::<MarkedResult<'_>>(result).ok()?.meta?;
        if is_object(meta) {
            return None;
        }
        ("result", result, "_meta", mark.object(""))
    } else {
        let error = message.error()?;
        let data = serde_json::from_slice::<MarkedError<'_>>(error).ok()?.data?;
        if is_object(data) {
            return None;
        }
        let others = match data.get() {
            "null" => String::new(),
            data => format!(r#","value":{data}"#),
        };
        ("error", error, "data", mark.object(&others))
    };
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(members).ok()?;
    members.insert(key.to_owned(), RawValue::from_string(marked).ok()?);
    let members = serde_json::to_string(&members).ok()?;
    let head = [br#"{"jsonrpc":"2.0","id":"#, id, br#",""#, name.as_bytes(), br#"":"#].concat();
    Some([&head[..], members.as_bytes(), b"}"].concat().into())
}
