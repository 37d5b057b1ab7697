//! The JSON-RPC envelope, next to what `serde_json` makes of the same bytes; a change of a message
//! changes what it names and not one byte more.

mod edits;
mod reference;

use bytes::Bytes;
use rejoin_core::id::digest;
use rejoin_core::message::{IdKey, Incoming, Kind, Message, ParseError, parse, single_line};
use serde_json::Value;
use serde_json::value::RawValue;

use reference::{Members, bytes_of, canonical, elements, key_of, respelled, text_of};

/// Deep enough for any input to matter, and shallow enough for the reference's recursion.
const DEPTH_MAX: usize = 48;

/// The input is a body; and its first kilobyte an id.
pub fn run(data: &[u8]) {
    check_id(&data[..data.len().min(1_024)]);
    let body = Bytes::copy_from_slice(data);
    let parsed = parse(body.clone(), DEPTH_MAX);
    let text = std::str::from_utf8(data).ok();
    let json = text.filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    let Some(json) = json.map(str::trim_ascii) else {
        let refused = parsed.expect_err("it is no JSON");
        let is_told =
            matches!(innermost(&refused), ParseError::NotJson { .. } | ParseError::TooDeep { .. });
        assert!(is_told, "it is no JSON, but: {refused}");
        return;
    };
    if reference::depth(json) > DEPTH_MAX {
        let refused = parsed.expect_err("it is too deep");
        assert!(matches!(innermost(&refused), ParseError::TooDeep { .. }), "{refused}");
        return;
    }
    let is_one = !json.starts_with('[');
    let texts = if is_one { vec![json] } else { texts(json) };
    let verdicts: Vec<_> = texts.iter().map(|text| problems(text)).collect();
    match parsed {
        Ok(Incoming::One(message)) if is_one => check(&message, json, &verdicts[0]),
        Ok(Incoming::Batch(messages)) if !is_one => {
            assert_eq!(messages.len(), texts.len());
            for ((message, text), verdict) in messages.iter().zip(texts).zip(&verdicts) {
                check(message, text, verdict);
            }
        }
        Ok(_) => panic!("a batch and a message are taken for each other"),
        Err(ParseError::EmptyBatch) => assert!(texts.is_empty() && !is_one),
        Err(ParseError::Element { index, source }) if !is_one => {
            assert!(verdicts[..index].iter().all(Vec::is_empty), "an earlier one is wrong");
            assert!(verdicts[index].contains(&name(&source)), "{:?}: {source}", verdicts[index]);
        }
        Err(refused) => {
            assert!(is_one && verdicts[0].contains(&name(&refused)), "{verdicts:?}: {refused}");
        }
    }
}

fn texts(json: &str) -> Vec<&str> {
    let elements = elements(json).expect("an array has elements");
    elements.into_iter().map(RawValue::get).collect()
}

fn innermost(error: &ParseError) -> &ParseError {
    match error {
        ParseError::Element { source, .. } => innermost(source),
        other => other,
    }
}

/// A reason to refuse a message.
fn name(error: &ParseError) -> &'static str {
    match error {
        ParseError::NotAnObject => "no object",
        ParseError::DuplicateKey { .. } => "key twice",
        ParseError::BadVersion => "version",
        ParseError::BadId { .. } => "id",
        ParseError::NoResponseId => "no id",
        ParseError::BadMethod => "method",
        ParseError::NoMethodNorResult => "nothing",
        ParseError::Ambiguous { .. } => "ambiguous",
        ParseError::ParamsNotObjectOrArray => "params",
        other => panic!("not of a message that is JSON: {other}"),
    }
}

/// Whether a message has a result, and an error: of both, one that is null counts as absent.
fn outcome(top: &Members<'_>) -> (bool, bool) {
    let (result, error) = (top.get("result"), top.get("error"));
    let is_beside = |one: Option<&str>, other: Option<&str>| one == Some("null") && other.is_some();
    let error = error.filter(|_| !is_beside(error, result));
    (result.is_some() && !is_beside(result, error), error.is_some())
}

/// All reasons to refuse a message.
fn problems(text: &str) -> Vec<&'static str> {
    let Some(top) = Members::of(text) else { return vec!["no object"] };
    let mut problems = Vec::new();
    let params = top.object("params");
    let meta = params.as_ref().and_then(|params| params.object("_meta"));
    let inner = [params, meta, top.object("error")];
    if top.has_twice() || inner.iter().flatten().any(Members::has_twice) {
        problems.push("key twice");
    }
    if top.get("jsonrpc").and_then(text_of).as_deref() != Some("2.0") {
        problems.push("version");
    }
    let has = |key| top.get(key).is_some();
    let (has_result, has_error) = outcome(&top);
    match [has("method"), has_result, has_error].iter().filter(|there| **there).count() {
        0 => problems.push("nothing"),
        1 => {}
        _ => problems.push("ambiguous"),
    }
    if has_result && !has("id") {
        problems.push("no id");
    }
    let is_null_of_error = has_error && top.get("id") == Some("null");
    if has("id") && !is_null_of_error && top.get("id").and_then(key_of).is_none() {
        problems.push("id");
    }
    if has("method") && top.get("method").and_then(text_of).is_none() {
        problems.push("method");
    }
    if top.get("params").is_some_and(|params| !params.starts_with(['{', '['])) {
        problems.push("params");
    }
    problems
}

fn value_of(key: Option<IdKey>) -> Option<Value> {
    key.and_then(|key| key_of(key.as_json()))
}

/// A message that was taken, against what it says.
fn check(message: &Message, text: &str, problems: &[&str]) {
    assert!(problems.is_empty(), "taken, although: {problems:?}");
    let own = std::str::from_utf8(message.bytes()).expect("a part of UTF-8 is UTF-8").trim_ascii();
    assert_eq!(own, text);
    // From here on of the message's own bytes, so that positions are those in them.
    let text = own;
    let top = Members::of(text).expect("it is an object");
    let raw = |bytes: Option<&[u8]>| {
        bytes.map(|bytes| String::from_utf8(bytes.to_vec()).expect("a part of UTF-8 is UTF-8"))
    };
    let (has_result, has_error) = outcome(&top);
    let kind = match (top.get("method"), has_result, top.get("id")) {
        (Some(_), _, Some(_)) => Kind::Request,
        (Some(_), ..) => Kind::Notification,
        (_, true, _) => Kind::Response,
        _ => Kind::ErrorResponse,
    };
    assert_eq!(message.kind(), kind);
    let id = top.get("id").filter(|id| *id != "null");
    assert_eq!(raw(message.id()).as_deref(), id);
    assert_eq!(value_of(message.id_key()), id.and_then(key_of));
    let method = top.get("method").and_then(text_of);
    assert_eq!(message.method(), method.as_deref());
    assert_eq!(raw(message.params()).as_deref(), top.get("params"));
    assert_eq!(raw(message.result()).as_deref(), top.get("result").filter(|_| has_result));
    assert_eq!(raw(message.error()).as_deref(), top.get("error").filter(|_| has_error));
    let code = top.object("error").and_then(|error| error.get("code"));
    let code = code.map(|code| if code == "-0" { "0" } else { code });
    let code = code.and_then(|code| serde_json::from_str::<Value>(code).ok()?.as_i64());
    assert_eq!(message.error_code(), code);

    let params = top.object("params");
    let param = |key: &'static str| params.as_ref().and_then(|params| params.get(key));
    let meta = params.as_ref().and_then(|params| params.object("_meta"));
    for (key, value) in params.iter().flat_map(|params| &params.0) {
        let Ok(key) = std::str::from_utf8(key) else { continue };
        assert_eq!(raw(message.param(key)).as_deref(), Some(value.get()));
        assert_eq!(message.param_str(key).as_deref(), text_of(value.get()).as_deref());
    }
    for (key, value) in meta.iter().flat_map(|meta| &meta.0) {
        let Ok(key) = std::str::from_utf8(key) else { continue };
        assert_eq!(raw(message.meta(key)).as_deref(), Some(value.get()));
        assert_eq!(message.meta_str(key).as_deref(), text_of(value.get()).as_deref());
    }
    let tool = param("name").filter(|_| method.as_deref() == Some("tools/call"));
    assert_eq!(message.tool_name(), tool.and_then(text_of).as_deref());
    let token = meta.as_ref().and_then(|meta| meta.get("progressToken"));
    let token = token.filter(|_| kind == Kind::Request);
    assert_eq!(raw(message.progress_token_raw()).as_deref(), token);
    assert_eq!(value_of(message.progress_token()), token.and_then(key_of));
    let notified = |name: &str, key: &'static str| {
        let is_it = kind == Kind::Notification && method.as_deref() == Some(name);
        param(key).filter(|_| is_it)
    };
    let progress_of = notified("notifications/progress", "progressToken");
    assert_eq!(value_of(message.progress_of()), progress_of.and_then(key_of));
    let cancels = notified("notifications/cancelled", "requestId");
    assert_eq!(value_of(message.cancels()), cancels.and_then(key_of));
    check_spelling(message, &top, text);
    edits::check(message, &top);
}

/// What is the same call, in another spelling and on one line.
fn check_spelling(message: &Message, top: &Members<'_>, text: &str) {
    if let Some(method) = top.get("method") {
        let params = top.get("params").unwrap_or("{}");
        let canonical = [canonical(method, false), canonical(params, true)].concat();
        assert_eq!(message.canonical_params_hash(), digest(&canonical));
    }
    let line = single_line(message.bytes().clone());
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
    for other in [respelled(text).into_bytes(), line.to_vec()] {
        let Ok(Incoming::One(other)) = parse(other.into(), DEPTH_MAX) else {
            panic!("{text} is not taken in another spelling")
        };
        assert_eq!(other.kind(), message.kind());
        assert_eq!(other.id_key(), message.id_key());
        assert_eq!(other.method(), message.method());
        assert_eq!(other.progress_token(), message.progress_token());
        assert_eq!(other.canonical_params_hash(), message.canonical_params_hash());
    }
}

/// Ids and tokens as keys.
fn check_id(token: &[u8]) {
    let text = std::str::from_utf8(token).ok();
    let json = text.filter(|text| {
        let has_space = *text != text.trim_ascii();
        !has_space && serde_json::from_str::<&RawValue>(text).is_ok()
    });
    let expected = json.and_then(key_of);
    let key = IdKey::from_json(token).ok();
    assert_eq!(key.clone().and_then(|key| key_of(key.as_json())), expected);
    if let Some(key) = key {
        assert_eq!(IdKey::from_json(key.as_json().as_bytes()), Ok(key.clone()));
        let number = key.as_json().parse::<u64>().ok();
        assert_eq!(key.as_u64(), number);
        if let Some(text) = json.and_then(bytes_of) {
            assert_eq!(String::from_utf8(text).map(|text| IdKey::text(&text)), Ok(key));
        }
    }
}
