//! Changes of a message: spliced where `serde_json` says that the member is.

use rejoin_core::message::{Incoming, Kind, Message, parse};
use serde_json::Value;

use super::DEPTH_MAX;
use super::reference::Members;

/// Keys that Rejoin takes away.
const REMOVED: [&str; 3] = ["dev.rejoin/dedup-token", "a", "progressToken"];
const KEY: &str = "dev.rejoin/\u{e4}\"";

pub(super) fn check(message: &Message, top: &Members<'_>) {
    let bytes = message.bytes();
    assert_eq!(message.edit().finish(), bytes, "nothing was asked for");
    let mut expected = bytes.to_vec();
    let params = top.object("params");
    let meta = params.as_ref().and_then(|params| params.object("_meta"));
    let of_params = |key| params.as_ref().and_then(|params| params.get(key));
    let method = message.method();
    let places = match message.kind() {
        Kind::Request => [
            top.get("id"),
            meta.as_ref().and_then(|meta| meta.get("progressToken")),
            of_params("protocolVersion").filter(|_| method == Some("initialize")),
        ],
        Kind::Notification => [
            None,
            of_params("progressToken").filter(|_| method == Some("notifications/progress")),
            of_params("requestId").filter(|_| method == Some("notifications/cancelled")),
        ],
        Kind::Response | Kind::ErrorResponse => {
            [top.get("id").filter(|id| *id != "null"), None, None]
        }
    };
    let mut places: Vec<_> = places.into_iter().flatten().collect();
    // From the end to the front, so that no position moves.
    places.sort_by_key(|place| std::cmp::Reverse(offset(bytes, place)));
    for place in places {
        let at = offset(bytes, place);
        expected.splice(at..at + place.len(), *b"[\"new\"]");
    }
    let new = b"[\"new\"]";
    let edit = message.edit().id(b"0").id(new).progress_token(new).progress_of(new);
    let edited = edit.cancelled_id(new).protocol_version(new).finish();
    assert_eq!(edited, expected, "ids and tokens are replaced, and nothing else");
    check_removal(message, top);
    check_additions(message, top);
}

/// Where a part of a text begins in it.
fn offset(text: &[u8], part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// Members without those that are left out, each as written.
fn without<'a>(members: &Members<'a>, keys: &[&str]) -> Vec<(Vec<u8>, &'a str)> {
    let is_kept = |key: &[u8]| !keys.iter().any(|removed| removed.as_bytes() == key);
    let kept = members.0.iter().filter(|(key, _)| is_kept(key));
    kept.map(|(key, value)| (key.clone(), value.get())).collect()
}

fn again(text: &str) -> Members<'_> {
    Members::of(text).expect("a changed message is an object")
}

fn check_removal(message: &Message, top: &Members<'_>) {
    let removed = message.edit().remove_meta(&REMOVED).progress_token(b"1").finish();
    let removed = String::from_utf8(removed.to_vec()).expect("it stays UTF-8");
    let after = again(&removed);
    assert_eq!(without(&after, &["params"]), without(top, &["params"]));
    match (after.object("params"), top.object("params")) {
        (Some(after), Some(before)) => {
            assert_eq!(without(&after, &["_meta"]), without(&before, &["_meta"]));
            match (after.object("_meta"), before.object("_meta")) {
                (Some(after), Some(before)) => {
                    assert_eq!(without(&after, &[]), without(&before, &REMOVED));
                }
                _ => assert_eq!(after.get("_meta"), before.get("_meta")),
            }
        }
        _ => assert_eq!(after.get("params"), top.get("params")),
    }
}

/// `result._meta`, `result.capabilities.experimental` and `error.data` get a member each.
fn check_additions(message: &Message, top: &Members<'_>) {
    let edit = message.edit().result_meta(KEY, b"0").result_meta(KEY, b"[1]");
    let edit = edit.experimental_capability(KEY, b"{}").error_data(KEY, b"\"2\"");
    let added = String::from_utf8(edit.finish().to_vec()).expect("it stays UTF-8");
    let after = again(&added);
    assert_eq!(without(&after, &["result", "error"]), without(top, &["result", "error"]));
    check_put(&after, top, &["result", "_meta", KEY], "[1]");
    check_put(&after, top, &["result", "capabilities", "experimental", KEY], "{}");
    check_put(&after, top, &["error", "data", KEY], "\"2\"");
    if let (Some(after), Some(before)) = (after.object("result"), top.object("result")) {
        let changed = ["_meta", "capabilities"];
        assert_eq!(without(&after, &changed), without(&before, &changed));
    }
    let is_deep = super::reference::depth(&added) > DEPTH_MAX;
    if let Some(parsed) = (!is_deep).then(|| parse(added.clone().into(), DEPTH_MAX)) {
        assert!(matches!(parsed, Ok(Incoming::One(_)) | Err(_)));
        let is_same = |edited: &Message| edited.id_key() == message.id_key();
        match parsed {
            Ok(Incoming::One(edited)) => assert!(is_same(&edited)),
            other => panic!("{added} is no message any more: {other:?}"),
        }
    }
}

/// A path whose objects are there, or can be made, ends at the value; one that something else is in
/// the way of is as it was. The first object must be there.
fn check_put(after: &Members<'_>, before: &Members<'_>, path: &[&str], value: &str) {
    let [key, rest @ ..] = path else { return };
    let there = before.get(key);
    if rest.is_empty() {
        assert_eq!(after.get(key), Some(value));
        return;
    }
    match (there, before.object(key)) {
        (Some(_), Some(inner)) => {
            let after = after.object(key).expect("an object stays one");
            if rest.len() == 1 {
                assert_eq!(without(&after, rest), without(&inner, rest));
            }
            check_put(&after, &inner, rest, value);
        }
        (Some(there), None) => assert_eq!(after.get(key), Some(there)),
        (None, _) if matches!(*key, "result" | "error") => assert_eq!(after.get(key), None),
        (None, _) => {
            let made = after.get(key).expect("what is missing is made");
            let mut expected = serde_json::from_str(value).expect("the value is JSON");
            for key in rest.iter().rev() {
                expected = Value::Object([((*key).to_owned(), expected)].into_iter().collect());
            }
            assert_eq!(serde_json::from_str::<Value>(made).ok(), Some(expected));
        }
    }
}
