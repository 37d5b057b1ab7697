//! Settings of a session that its server must be told again once it is started again (design
//! section 5, "State lost"): kept from the successful response on, under caps of their own.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Session;
use super::waiting::Waiter;
use crate::id::{CallId, Digest32, digest};
use crate::limits::UpstreamLimits;
use crate::message::{self, Incoming, Message};
use crate::policy::{Decision, Verdict};
use crate::rejection::Reason;
use crate::token::{ATTEMPT_META, EPOCH_META, TOKEN_META};

/// What bounds the settings of a session.
pub(super) const LIMITS: &[&str] =
    &["upstream.kept_settings_max", "upstream.kept_settings_bytes_max"];

/// What a request sets. A later one replaces an earlier one of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Setting {
    Level,
    /// By its URI.
    Subscription(Digest32),
}

impl Setting {
    fn of(message: &Message) -> Option<Self> {
        match message.method()? {
            "logging/setLevel" => Some(Self::Level),
            "resources/subscribe" => Some(Self::subscription(message)),
            _ => None,
        }
    }

    fn subscription(message: &Message) -> Self {
        Self::Subscription(digest(message.param("uri").unwrap_or_default()))
    }
}

/// Settings by what they set.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptSettings {
    kept: BTreeMap<Setting, Bytes>,
    /// Calls that were not answered yet: the newest for each setting.
    asked: BTreeMap<Setting, (CallId, Bytes)>,
}

impl KeptSettings {
    /// A call is sent. What it takes back is forgotten whatever the server says: its client does
    /// not want it again.
    /// True if what is kept changed.
    pub(super) fn ask(&mut self, call: CallId, message: &Message) -> bool {
        if message.method() == Some("resources/unsubscribe") {
            let setting = Setting::subscription(message);
            self.asked.remove(&setting);
            return self.kept.remove(&setting).is_some();
        }
        let Some(setting) = Setting::of(message) else { return false };
        // Its answer will belong to no call: neither id nor progress token may name one.
        let id = format!("\"restore-{call}\"");
        let edit = message.edit().id(id.as_bytes());
        let again =
            edit.remove_meta(&["progressToken", TOKEN_META, ATTEMPT_META, EPOCH_META]).finish();
        // A copy: what was edited has kept the room of what was taken out.
        self.asked.insert(setting, (call, Bytes::copy_from_slice(&again)));
        false
    }

    /// A call was answered: what a server refused to set is not asked of it again.
    /// True if what is kept changed.
    pub(super) fn answered(&mut self, call: CallId, is_set: bool) -> bool {
        let setting = self.asked.iter().find(|(_, asked)| asked.0 == call);
        let Some(setting) = setting.map(|(&setting, _)| setting) else { return false };
        let granted = self.asked.remove(&setting).filter(|_| is_set);
        if let Some((_, message)) = granted {
            self.kept.insert(setting, message);
            return true;
        }
        false
    }

    /// Those of an earlier process, as [`kept`](Self::kept) gave them.
    pub(super) fn restored(messages: Vec<Bytes>, json_depth_max: usize) -> Self {
        let setting = |bytes: Bytes| match message::parse(bytes.clone(), json_depth_max) {
            Ok(Incoming::One(message)) => Some((Setting::of(&message)?, bytes)),
            _ => None,
        };
        Self { kept: messages.into_iter().filter_map(setting).collect(), ..Self::default() }
    }

    /// The messages to send again.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Bytes> {
        self.kept.values()
    }

    /// Whether there is room for what these requests set; always, if they set nothing.
    fn has_room(&self, requests: &[&Message], limits: &UpstreamLimits) -> bool {
        let new = || requests.iter().filter_map(|request| Some((Setting::of(request)?, request)));
        if new().next().is_none() {
            return true;
        }
        let settings = self.kept.keys().chain(self.asked.keys()).copied();
        let settings: BTreeSet<_> = settings.chain(new().map(|(setting, _)| setting)).collect();
        let asked = self.asked.values().map(|(_, message)| message);
        let bytes = self.kept.values().chain(asked).map(Bytes::len).sum::<usize>()
            + new().map(|(_, request)| request.bytes().len()).sum::<usize>();
        settings.len() <= limits.kept_settings_max && bytes <= limits.kept_settings_bytes_max
    }

    /// Forgets calls that ended without an answer.
    fn forget(&mut self, is_over: impl Fn(CallId) -> bool) {
        self.asked.retain(|_, (call, _)| !is_over(*call));
    }
}

impl Session {
    /// Refuses what sets more than is kept, before it is sent.
    pub(super) fn refuse_settings(&mut self, waiter: &Waiter, decisions: &mut [Decision]) {
        let ledger = &self.ledger;
        let runs = |id| ledger.get(id).is_some_and(|call| call.phase.is_in_flight());
        self.upstream.settings.forget(|id| !runs(id));
        let mut admitted = Vec::new();
        for (request, decision) in waiter.requests.iter().zip(decisions) {
            if !matches!(decision.verdict, Verdict::Claim { .. } | Verdict::Pass) {
                continue;
            }
            admitted.push(&request.message);
            if !self.upstream.settings.has_room(&admitted, &self.limits().upstream) {
                admitted.pop();
                decision.verdict = Verdict::Reject(Reason::UpstreamUnavailable);
                decision.original = None;
            }
        }
    }

    /// True if a request was refused since it sets more than is kept.
    pub(super) fn sets_too_much(&self, request: &Message) -> bool {
        !self.upstream.settings.has_room(&[request], &self.limits().upstream)
    }
}
