//! Calls that a server refused before it ran them.

use bytes::Bytes;
use rejoin_core::message::error_response;
use serde::Deserialize;
use serde_json::value::RawValue;

/// JSON-RPC error code by which the state machine knows that a call was never run, and frees it.
const NOT_RUN_CODE: i64 = -32_600;

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    error: Error<'a>,
}

#[derive(Deserialize)]
struct Error<'a> {
    message: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// The error of such a call with the code that frees its claim; text and data stay.
pub(super) fn as_not_run(answer: &Bytes) -> Bytes {
    match serde_json::from_slice::<Answer<'_>>(answer) {
        Ok(Answer { id, error: Error { message, data } }) => {
            let data = data.map(|data| data.get().as_bytes());
            error_response(Some(id.get().as_bytes()), NOT_RUN_CODE, &message, data)
        }
        Err(_) => answer.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_a_refusal_changes() {
        let data = Some(&br#"{"status":401}"#[..]);
        let answer = error_response(Some(b"7"), -32_603, "Not run.", data);
        let expected = error_response(Some(b"7"), NOT_RUN_CODE, "Not run.", data);
        assert_eq!(as_not_run(&answer), expected);
        let other = Bytes::from_static(b"{}");
        assert_eq!(as_not_run(&other), other);
    }
}
