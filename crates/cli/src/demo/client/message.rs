//! What an app makes of an event, as far as the demo tells it.

use serde_json::Value;

/// One thing a client received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// The cursor it set, if any.
    pub(crate) id: Option<String>,
    pub(crate) what: What,
}

/// What an event said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Progress of a call.
    Progress(u64),
    /// The first text of a tool's result.
    Result(String),
    /// An error response.
    Error { code: i64, message: String },
    /// A comment, or an event without a message.
    Sign(String),
    /// Any other message.
    Other,
}

/// What a message says, as far as the demo tells it.
pub(crate) fn what_of(message: &Value) -> What {
    if let Some(progress) = message["params"]["progress"].as_u64() {
        return What::Progress(progress);
    }
    let text = message["result"]["content"][0]["text"].as_str();
    let error = &message["error"];
    match (text, error["code"].as_i64()) {
        (Some(text), _) => What::Result(text.to_owned()),
        (None, Some(code)) => {
            What::Error { code, message: error["message"].as_str().unwrap_or_default().to_owned() }
        }
        (None, None) => What::Other,
    }
}
