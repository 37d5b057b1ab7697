//! What repeating a request means (design section 5, "Idempotent"; spec GAP-16).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::Message;
use crate::settings::Settings;

/// Effect class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// Never gated, never a repeat: it may be what unblocks a call.
    Ungated,
    /// A read of the protocol, or a setting that may be set twice.
    Read,
    /// A call that may be repeated.
    Idempotent,
    /// A call that must not run twice.
    Effectful,
}

impl Class {
    /// True if the request may be executed again.
    pub fn is_repeatable(self) -> bool {
        self != Self::Effectful
    }
}

/// What is known of the upstream's tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tools {
    annotated: BTreeMap<String, bool>,
}

impl Tools {
    /// Learns the annotations of a `tools/list` result (raw JSON); true if they are news. Anything
    /// unexpected is ignored: an unknown tool is not idempotent.
    pub fn learn(&mut self, result: &[u8]) -> bool {
        let Ok(result) = serde_json::from_slice::<Value>(result) else { return false };
        let Some(tools) = result.get("tools").and_then(Value::as_array) else { return false };
        let mut is_news = false;
        for tool in tools {
            let Some(name) = tool.get("name").and_then(Value::as_str) else { continue };
            let hint = |key: &str| {
                tool.get("annotations").and_then(|all| all.get(key)) == Some(&Value::Bool(true))
            };
            let repeatable = hint("readOnlyHint") || hint("idempotentHint");
            is_news |= self.annotated.insert(name.to_owned(), repeatable) != Some(repeatable);
        }
        is_news
    }

    /// Classifies a request.
    pub fn classify(&self, request: &Message, settings: &Settings) -> Class {
        let method = request.method().unwrap_or_default();
        match method {
            "ping" | "initialize" | "tasks/get" | "tasks/list" | "tasks/result"
            | "tasks/cancel" => Class::Ungated,
            "tools/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "prompts/list"
            | "prompts/get"
            | "completion/complete"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe" => Class::Read,
            "tools/call" => self.classify_tool(request.tool_name().unwrap_or_default(), settings),
            _ => Class::Effectful,
        }
    }

    fn classify_tool(&self, name: &str, settings: &Settings) -> Class {
        let trusted = settings.trust_annotations && self.annotated.get(name) == Some(&true);
        if trusted || settings.idempotent_tools.contains(name) {
            Class::Idempotent
        } else {
            Class::Effectful
        }
    }
}
