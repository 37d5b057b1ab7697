//! From a body to messages.
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::scan::{Object, Scanner, Span};
use super::text::string_value;
use super::{IdKey, Incoming, Kind, Message, ParseError, Shape};
use crate::limits::BATCH_MESSAGES_MAX;

/// Reads a body as one JSON-RPC message or a batch of them (revision 2025-03-26), in one pass. The
/// messages share the body's memory.
///
/// The whole text is checked: UTF-8, grammar, at most `depth_max` objects and arrays inside each
/// other, nothing after it. Keys must be unique, compared after unescaping, in the objects a
/// message is routed by: the message, `params`, `params._meta`, `error`.
/// Of `result` and `error` one may be there and null beside the other: then it counts as absent. A
/// batch has at most [`BATCH_MESSAGES_MAX`] messages.
///
/// # Errors
/// [`ParseError`], for the first thing found wrong.
pub fn parse(body: Bytes, depth_max: usize) -> Result<Incoming, ParseError> {
    if u32::try_from(body.len()).is_err() {
        return Err(ParseError::TooLarge { bytes: body.len() });
    }
    if let Err(error) = std::str::from_utf8(&body) {
        let offset = error.valid_up_to();
        return Err(ParseError::NotJson { offset, expected: "UTF-8" });
    }
    let mut scanner = Scanner::new(&body, depth_max);
    scanner.whitespace();
    if scanner.peek() != Some(b'[') {
        return parse_message(body, depth_max).map(Incoming::One);
    }
    let elements = scanner.array(BATCH_MESSAGES_MAX)?;
    scanner.end()?;
    if elements.is_empty() {
        return Err(ParseError::EmptyBatch);
    }
    let parse_element = |(index, span): (usize, &Span)| {
        parse_message(body.slice(span.start()..span.end()), depth_max)
            .map_err(|source| ParseError::Element { index, source: Box::new(source) })
    };
    let messages: Result<_, _> = elements.iter().enumerate().map(parse_element).collect();
    messages.map(Incoming::Batch)
}

/// The objects of a message that are looked into.
#[derive(Default)]
struct Entered {
    params: Option<Object>,
    meta: Option<Object>,
    error: Option<Object>,
}

fn parse_message(bytes: Bytes, depth_max: usize) -> Result<Message, ParseError> {
    let mut scanner = Scanner::new(&bytes, depth_max);
    scanner.whitespace();
    if scanner.peek() != Some(b'{') {
        scanner.value()?;
        scanner.end()?;
        return Err(ParseError::NotAnObject);
    }
    let mut entered = Entered::default();
    let top = scanner.object(|scanner, key| read_member(scanner, key, &mut entered))?;
    scanner.end()?;
    top.check_keys(&bytes, "the message")?;
    for (object, place) in
        [(&entered.params, "params"), (&entered.meta, "params._meta"), (&entered.error, "error")]
    {
        object.as_ref().map_or(Ok(()), |object| object.check_keys(&bytes, place))?;
    }
    let shape = shape(&bytes, &top, entered)?;
    Ok(Message { bytes, shape: Arc::new(shape) })
}

fn read_member(
    scanner: &mut Scanner<'_>,
    key: &[u8],
    entered: &mut Entered,
) -> Result<(), ParseError> {
    let is_object = scanner.peek() == Some(b'{');
    match key {
        b"params" if is_object => {
            let params = scanner.object(|scanner, key| match key {
                b"_meta" if scanner.peek() == Some(b'{') => {
                    entered.meta = Some(scanner.object(|scanner, _key| scanner.value())?);
                    Ok(())
                }
                _ => scanner.value(),
            })?;
            entered.params = Some(params);
        }
        b"error" if is_object => {
            entered.error = Some(scanner.object(|scanner, _key| scanner.value())?);
        }
        _ => scanner.value()?,
    }
    Ok(())
}

fn shape(bytes: &[u8], top: &Object, entered: Entered) -> Result<Shape, ParseError> {
    let version = top.get(bytes, "jsonrpc").and_then(|span| string_value(span.of(bytes)));
    if version.as_deref() != Some("2.0") {
        return Err(ParseError::BadVersion);
    }
    let method = top.get(bytes, "method");
    let (result, error) = (top.get(bytes, "result"), top.get(bytes, "error"));
    let is_null = |span: &Span| span.of(bytes) == b"null";
    // Some write both, and one of them null.
    let (result, error, null_outcome) = match (result, error) {
        (Some(result), Some(error)) if is_null(&error) => (Some(result), None, Some("error")),
        (Some(result), Some(error)) if is_null(&result) => (None, Some(error), Some("result")),
        (result, error) => (result, error, None),
    };
    let id = top.get(bytes, "id");
    let kind = kind(method.is_some(), result.is_some(), error.is_some(), id.is_some())?;
    // An error about a request whose id could not be read has none, or null (MCP 1.3, B-3 to B-5).
    let id = id.filter(|span| !(kind == Kind::ErrorResponse && is_null(span)));
    let id_key = match id.map(|span| IdKey::from_json(span.of(bytes))) {
        Some(Ok(key)) => Some(key),
        Some(Err(error)) => return Err(ParseError::BadId { found: error.found }),
        None => None,
    };
    let method: Option<Box<str>> = match method.map(|span| string_value(span.of(bytes))) {
        Some(Some(method)) => Some(method.into()),
        Some(None) => return Err(ParseError::BadMethod),
        None => None,
    };
    let params = top.get(bytes, "params");
    if params.is_some_and(|span| !matches!(bytes[span.start()], b'{' | b'[')) {
        return Err(ParseError::ParamsNotObjectOrArray);
    }
    let param = |key: &str| entered.params.as_ref().and_then(|params| params.get(bytes, key));
    let tool_name = param("name")
        .filter(|_| method.as_deref() == Some("tools/call"))
        .and_then(|span| string_value(span.of(bytes)))
        .map(Box::from);
    Ok(Shape {
        kind,
        id,
        id_key,
        method,
        params,
        param_members: entered.params,
        meta_members: entered.meta,
        tool_name,
        result,
        error,
        null_outcome,
        error_code: error_code(bytes, entered.error.as_ref()),
        params_hash: OnceLock::new(),
    })
}

fn kind(method: bool, result: bool, error: bool, id: bool) -> Result<Kind, ParseError> {
    let ambiguous = |first, second| Err(ParseError::Ambiguous { first, second });
    match (method, result, error) {
        (true, true, _) => ambiguous("method", "result"),
        (true, _, true) => ambiguous("method", "error"),
        (_, true, true) => ambiguous("result", "error"),
        (true, ..) if id => Ok(Kind::Request),
        (true, ..) => Ok(Kind::Notification),
        (_, true, _) if id => Ok(Kind::Response),
        (_, true, _) => Err(ParseError::NoResponseId),
        (_, _, true) => Ok(Kind::ErrorResponse),
        (false, false, false) => Err(ParseError::NoMethodNorResult),
    }
}

fn error_code(bytes: &[u8], error: Option<&Object>) -> Option<i64> {
    let code = error?.get(bytes, "code")?.of(bytes);
    std::str::from_utf8(code).ok()?.parse().ok()
}
