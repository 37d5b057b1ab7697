//! The mark of a record: no rule can tell a retry from a deliberate new call whose predecessor's
//! answer was lost, so every record says that it is one (design section 5).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::input::Request;
use crate::message::{self, Incoming, Message};
use crate::token::RECORDED_META;

/// Gives a recorded response the id of the request it now answers, and the mark with the time when
/// the original ended: in `result._meta`, for an error in its `data`.
pub(super) fn record(response: Bytes, request: &Request, ended_ms: u64) -> Option<Bytes> {
    // The response was parsed when it came; depth was checked then.
    let Ok(Incoming::One(message)) = message::parse(response, usize::MAX) else { return None };
    let id = request.message.id()?;
    if let Some(marked) = replaced(&message, id, ended_ms) {
        return Some(marked);
    }
    let ended = ended_ms.to_string();
    let edit = message.edit().id(id);
    Some(
        edit.result_meta(RECORDED_META, ended.as_bytes())
            .error_data(RECORDED_META, ended.as_bytes())
            .finish(),
    )
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
fn replaced(message: &Message, id: &[u8], ended_ms: u64) -> Option<Bytes> {
    let is_object = |raw: &RawValue| raw.get().starts_with('{');
    let (name, members, key, mark) = if let Some(result) = message.result() {
        let meta = serde_json::from_slice::<MarkedResult<'_>>(result).ok()?.meta?;
        if is_object(meta) {
            return None;
        }
        ("result", result, "_meta", format!(r#"{{"{RECORDED_META}":{ended_ms}}}"#))
    } else {
        let error = message.error()?;
        let data = serde_json::from_slice::<MarkedError<'_>>(error).ok()?.data?;
        if is_object(data) {
            return None;
        }
        let mark = match data.get() {
            "null" => format!(r#"{{"{RECORDED_META}":{ended_ms}}}"#),
            data => format!(r#"{{"{RECORDED_META}":{ended_ms},"value":{data}}}"#),
        };
        ("error", error, "data", mark)
    };
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(members).ok()?;
    members.insert(key.to_owned(), RawValue::from_string(mark).ok()?);
    let members = serde_json::to_string(&members).ok()?;
    let head = [br#"{"jsonrpc":"2.0","id":"#, id, br#",""#, name.as_bytes(), br#"":"#].concat();
    Some([&head[..], members.as_bytes(), b"}"].concat().into())
}
