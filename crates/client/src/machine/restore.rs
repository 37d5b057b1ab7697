//! What a session was told and a new one must be told again, since the host does not know that
//! there is a new one; and what the host must ask for again.
use std::collections::BTreeMap;

use rejoin_core::message::{self, Kind, Message};
use serde::Deserialize;
use serde_json::Value;

use super::call::{Call, CallKey};
use super::session::Session;
use super::{Machine, Output, Queued};

/// What a server may say has changed, by the capability with which it offers it.
const LISTS: [(&str, &str); 3] = [
    ("tools", "notifications/tools/list_changed"),
    ("resources", "notifications/resources/list_changed"),
    ("prompts", "notifications/prompts/list_changed"),
];

/// What the host told the server, and the server told the host, of the session they know.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The last `logging/setLevel` that the server took.
    level: Option<Message>,
    /// `resources/subscribe` by resource, as far as the server took them.
    subscriptions: BTreeMap<String, Message>,
    /// Bytes of these.
    bytes: usize,
    /// Notifications for what the server offers.
    lists: Vec<&'static str>,
}

#[derive(Deserialize)]
struct Declared {
    #[serde(default)]
    capabilities: serde_json::Map<String, Value>,
}

impl Session {
    /// The host has been told what the server offers.
    pub(super) fn note_declared(&mut self, message: &Message) {
        let declared = serde_json::from_slice::<Declared>(message.result().unwrap_or(b"{}"));
        let capabilities = declared.map(|declared| declared.capabilities).unwrap_or_default();
        let offered = LISTS.iter().filter(|(name, _)| capabilities.contains_key(*name));
        self.told.lists = offered.map(|(_, notification)| *notification).collect();
    }
}

impl Told {
    /// The server took this. What there is no room for is not told again.
    fn note(&mut self, message: &Message, bytes_max: usize) {
        let bytes = message.bytes().len();
        let uri = message.param_str("uri").map(std::borrow::Cow::into_owned).unwrap_or_default();
        let (gone, is_kept) = match message.method().unwrap_or_default() {
            "logging/setLevel" => (self.level.take(), true),
            "resources/subscribe" => (self.subscriptions.remove(&uri), true),
            "resources/unsubscribe" => (self.subscriptions.remove(&uri), false),
            _ => return,
        };
        self.bytes -= gone.map_or(0, |gone| gone.bytes().len());
        if !is_kept || self.bytes + bytes > bytes_max {
            return;
        }
        self.bytes += bytes;
        if message.method() == Some("logging/setLevel") {
            self.level = Some(message.clone());
        } else {
            self.subscriptions.insert(uri, message.clone());
        }
    }
}

impl Machine {
    /// The server took a call of the host: it may be one that lasts as long as the session.
    pub(super) fn note_told(&mut self, key: CallKey) {
        let bytes_max = self.limits().told_bytes_max;
        if let Some(call) = self.calls.get(&key) {
            self.session.told.note(&call.message, bytes_max);
        }
    }

    /// Tells a new session what the last one was told, before anything else of the host, and the
    /// host that what it was told may not hold any more.
    pub(super) fn restore(&mut self) {
        let told = &self.session.told;
        let messages: Vec<_> =
            told.level.iter().chain(told.subscriptions.values()).cloned().collect();
        for message in messages.into_iter().rev() {
            let (Some(id), Some(host_key)) = (message.id(), message.id_key()) else { continue };
            let mut call =
                Call::new(message.clone(), id, host_key, self.now_ms, &self.settings.limits);
            call.is_own = true;
            call.host_progress = None;
            let key = self.number();
            self.pending_bytes += message.bytes().len();
            self.calls.insert(key, call);
            self.queue.push_front(Queued::Call(key));
        }
        self.tools.forget();
        for notification in self.session.told.lists.clone() {
            self.out.push(Output::Deliver(message::notification(notification, None)));
        }
    }

    /// A call of this client's own was answered.
    pub(super) fn settle_own(&mut self, key: CallKey, message: &Message) {
        if message.kind() == Kind::Response {
            return self.settle(key);
        }
        self.fail_own(key, "the server refused it");
    }

    /// A call of this client's own failed.
    pub(super) fn fail_own(&mut self, key: CallKey, what: &str) {
        let method = self.calls.get(&key).map(|call| call.method().to_owned()).unwrap_or_default();
        if self.end_ms.is_none() {
            self.dropped(format!("{method}, told again to the new session: {what}"));
        }
        self.settle(key);
    }
}
