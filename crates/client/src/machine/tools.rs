//! What may run twice without harm (design section 5, "Idempotent").
use std::collections::HashMap;

use serde::Deserialize;

/// True for methods of the protocol that only read, or that may be set twice.
pub(super) fn is_repeatable_method(method: &str) -> bool {
    method.ends_with("/list")
        || matches!(
            method,
            "ping"
                | "initialize"
                | "server/discover"
                | "subscriptions/listen"
                | "resources/read"
                | "prompts/get"
                | "completion/complete"
                | "logging/setLevel"
                | "resources/subscribe"
                | "resources/unsubscribe"
                | "tasks/get"
                | "tasks/result"
        )
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    tools: Vec<Tool>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    #[serde(default)]
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Annotations {
    #[serde(default)]
    read_only_hint: Option<bool>,
    #[serde(default)]
    idempotent_hint: Option<bool>,
}

/// The annotations of the server's tools, as far as they were listed.
pub(super) struct Tools {
    repeatable: HashMap<String, bool>,
    tools_max: usize,
}

impl Tools {
    pub(super) fn new(tools_max: usize) -> Self {
        Self { repeatable: HashMap::new(), tools_max }
    }

    /// Reads the result of `tools/list`. What cannot be read teaches nothing.
    pub(super) fn learn(&mut self, result: &[u8]) {
        let Ok(listed) = serde_json::from_slice::<Listed>(result) else { return };
        for tool in listed.tools {
            let is_repeatable = tool.annotations.is_some_and(|hints| {
                hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true)
            });
            if self.repeatable.len() < self.tools_max || self.repeatable.contains_key(&tool.name) {
                self.repeatable.insert(tool.name, is_repeatable);
            }
        }
    }

    /// Forgets them: they have changed.
    pub(super) fn forget(&mut self) {
        self.repeatable.clear();
    }

    pub(super) fn is_repeatable(&self, name: &str) -> bool {
        self.repeatable.get(name).copied().unwrap_or(false)
    }
}
