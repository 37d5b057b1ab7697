//! A refusal as it arrives: as an answer of its own, or as the final event of a stream.

use serde_json::Value;

use crate::raw::{Connection, Head, WireError};

/// What a refused POST was told (design section 5, "A refusal on the wire").
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The answer's head.
    pub head: Head,
    /// The JSON-RPC id.
    pub id: Value,
    /// The error's code.
    pub code: i64,
    /// The error's message.
    pub message: String,
    /// `data.reason`.
    pub reason: String,
    /// The whole `data`.
    pub data: Value,
}

impl Refusal {
    /// Reads an answer that must be a refusal.
    pub async fn read(connection: &mut Connection) -> Result<Self, WireError> {
        let head = connection.head().await?;
        let message = connection.response().await?;
        Self::of(head, &message).ok_or_else(|| WireError::Unexpected {
            expected: "a refusal".into(),
            account: message.to_string(),
        })
    }

    /// The refusal in a JSON-RPC error; `None` if `message` is none or has no reason.
    pub fn of(head: Head, message: &Value) -> Option<Self> {
        let error = message.get("error")?;
        let data = error.get("data")?;
        Some(Self {
            head,
            id: message.get("id").cloned().unwrap_or(Value::Null),
            code: error.get("code")?.as_i64()?,
            message: error.get("message")?.as_str()?.to_owned(),
            reason: data.get("reason")?.as_str()?.to_owned(),
            data: data.clone(),
        })
    }

    /// The cursor to resume from: the header, else `data.lastEventId`.
    pub fn cursor(&self) -> Option<&str> {
        self.head
            .header("last-event-id")
            .or_else(|| self.data.get("lastEventId").and_then(Value::as_str))
    }
}
