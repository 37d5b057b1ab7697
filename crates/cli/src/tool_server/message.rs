//! JSON-RPC messages as the tool server reads and writes them. Ids and arguments stay raw text:
//! what came in goes back byte for byte.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// JSON-RPC: the text is no JSON.
pub(super) const PARSE_ERROR: i32 = -32_700;
/// JSON-RPC: JSON, but no request.
pub(super) const INVALID_REQUEST: i32 = -32_600;
/// JSON-RPC: no such method.
pub(super) const METHOD_NOT_FOUND: i32 = -32_601;
/// JSON-RPC: no such tool, or arguments that do not fit.
pub(super) const INVALID_PARAMS: i32 = -32_602;
/// JSON-RPC: the server failed.
pub(super) const INTERNAL_ERROR: i32 = -32_603;

/// Any message from the client. Which kind it is follows from the members present.
#[derive(Debug, Deserialize)]
pub(super) struct Incoming<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// An error to answer with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Failure {
    pub(super) code: i32,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// A request id as a key: equal ids are equal keys however they are spelled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestKey(String);

impl RequestKey {
    pub(super) fn of(id: &RawValue) -> Self {
        // Two spellings of one string are one id; numbers are compared as written.
        let text = id.get();
        Self(match serde_json::from_str::<String>(text) {
            Ok(string) => format!("\"{string}"),
            Err(_) => text.to_owned(),
        })
    }
}

/// The line of a successful response.
pub(super) fn response(id: &RawValue, result: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Response<'a, R> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        result: &'a R,
    }
    line(&Response { jsonrpc: "2.0", id, result })
}

/// The line of an error response; without an id when the request's could not be read.
pub(super) fn error_response(id: Option<&RawValue>, error: &Failure) -> Vec<u8> {
    #[derive(Serialize)]
    struct Response<'a> {
        jsonrpc: &'static str,
        id: Option<&'a RawValue>,
        error: &'a Failure,
    }
    line(&Response { jsonrpc: "2.0", id, error })
}

/// The line of a request to the client.
pub(super) fn request(id: u64, method: &str, params: &impl Serialize) -> Vec<u8> {
    outgoing(Some(id), method, params)
}

/// The line of a notification to the client.
pub(super) fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    outgoing(None, method, params)
}

fn outgoing(id: Option<u64>, method: &str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Outgoing<'a, P> {
        jsonrpc: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        method: &'a str,
        params: &'a P,
    }
    line(&Outgoing { jsonrpc: "2.0", id, method, params })
}

fn line(message: &impl Serialize) -> Vec<u8> {
    match serde_json::to_vec(message) {
        Ok(mut line) => {
            line.push(b'\n');
            line
        }
        // Strings, numbers and raw JSON always serialise; an empty line is no message.
        Err(_) => b"\n".to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> RequestKey {
        RequestKey::of(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn a_string_id_is_the_same_however_it_is_escaped() {
        assert_eq!(key("\"a\""), key("\"\\u0061\""));
    }

    #[test]
    fn a_number_and_the_string_of_its_digits_are_two_ids() {
        assert_ne!(key("1"), key("\"1\""));
    }

    #[test]
    fn ids_beyond_a_double_stay_apart() {
        assert_ne!(key("9007199254740993"), key("9007199254740992"));
    }
}
