//! A JSON-RPC request as a client writes it.

use serde_json::{Value, json};

/// The member of `_meta` that carries a dedup token.
pub const DEDUP_TOKEN: &str = "dev.rejoin/dedup-token";

/// A tool call with its id, arguments and progress token.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The JSON-RPC id.
    pub id: u64,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
    /// The progress token of this very attempt.
    pub progress_token: String,
    /// Other members of `_meta`.
    pub meta: Vec<(String, Value)>,
}

impl Call {
    /// A call of `tool`; its progress token follows from its id.
    pub fn new(id: u64, tool: &str, arguments: Value) -> Self {
        let (tool, progress_token) = (tool.to_owned(), format!("progress-{id}"));
        Self { id, tool, arguments, progress_token, meta: Vec::new() }
    }

    /// The same call posted again by an application: a new id and a new progress token.
    pub fn again(&self, id: u64) -> Self {
        Self { id, progress_token: format!("progress-{id}"), ..self.clone() }
    }

    /// The same call with another progress token, for clients that use one id for everything.
    pub fn with_progress_token(mut self, token: &str) -> Self {
        token.clone_into(&mut self.progress_token);
        self
    }

    /// The same call with a dedup token.
    pub fn with_dedup_token(self, token: &str) -> Self {
        self.with_meta(DEDUP_TOKEN, token.into())
    }

    /// The same call with one more member of `_meta`.
    pub fn with_meta(mut self, name: &str, value: Value) -> Self {
        self.meta.push((name.to_owned(), value));
        self
    }

    /// The JSON-RPC message.
    pub fn message(&self) -> Value {
        let mut meta = json!({"progressToken": self.progress_token});
        for (name, value) in &self.meta {
            meta[name] = value.clone();
        }
        json!({
            "jsonrpc": "2.0",
            "id": self.id,
            "method": "tools/call",
            "params": {"name": self.tool, "arguments": self.arguments, "_meta": meta},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_again_differs_in_id_and_progress_token_only() {
        let call = Call::new(10, "charge", json!({"amount": 1})).with_dedup_token("t");
        let (first, again) = (call.message(), call.again(11).message());
        assert_eq!(first["params"]["_meta"][DEDUP_TOKEN], "t");
        assert_eq!(again["id"], 11);
        assert_eq!(again["params"]["_meta"]["progressToken"], "progress-11");
        assert_eq!(first["params"]["arguments"], again["params"]["arguments"]);
        assert_eq!(call.message(), first);
    }
}
