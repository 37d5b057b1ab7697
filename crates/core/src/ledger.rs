//! The call ledger: every request that was admitted, and how it stands (design section 2, "call").

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, Digest32, Seq, StreamId};
use crate::message::IdKey;
use crate::session::UpstreamCursor;
use crate::token::DedupKey;
use crate::tool::Class;

/// Where a call stands: `claimed -> sent -> finished | cancelled | unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Claimed, durable; no byte has left as far as is known.
    Claimed,
    /// A byte may have left.
    Sent,
    /// Its response is in the log.
    Finished,
    /// Cancelled. Not an end: a result may still come.
    Cancelled {
        /// True once the late result is in the log.
        result: bool,
    },
    /// Nobody knows whether it took effect.
    Unknown,
}

impl Phase {
    /// True while the call runs as far as the ledger knows.
    pub fn is_in_flight(self) -> bool {
        matches!(self, Self::Claimed | Self::Sent)
    }

    /// True if it may still produce (condition 2 fails): in flight, unknown, cancelled without
    /// result.
    pub fn may_produce(self) -> bool {
        !matches!(self, Self::Finished | Self::Cancelled { result: true })
    }

    /// Its name in logs and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Sent => "sent",
            Self::Finished => "finished",
            Self::Cancelled { .. } => "cancelled",
            Self::Unknown => "unknown",
        }
    }
}

/// One admitted request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Its number: what upstream sees as JSON-RPC id and progress token.
    pub id: CallId,
    /// The client's JSON-RPC id, raw. It is echoed, and never evidence.
    #[serde(with = "crate::text")]
    pub request_id: Bytes,
    /// The same id, canonical: for `notifications/cancelled`.
    pub request_key: IdKey,
    /// The client's progress token, raw.
    #[serde(with = "crate::text::option")]
    pub progress_token: Option<Bytes>,
    /// Method.
    pub method: String,
    /// Name of the tool, for `tools/call`.
    pub tool: Option<String>,
    /// What a repetition of it means.
    pub class: Class,
    /// SHA-256 of method and canonical params.
    pub params: Digest32,
    /// SHA-256 of the whole body it came in.
    pub body: Digest32,
    /// Its token.
    pub token: Option<DedupKey>,
    /// Its row among the sessions of its principal; a tokenless call's.
    #[serde(default)]
    pub scope: Option<ScopeRow>,
    /// Where it stands.
    pub phase: Phase,
    /// The stream that carries its answer; `None`: it is answered as JSON.
    pub stream: Option<StreamId>,
    /// The stream on which its progress came, since a record moved it from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_on: Option<StreamId>,
    /// The event with its response.
    pub result: Option<(StreamId, Seq)>,
    /// When it was claimed.
    pub claimed_ms: u64,
    /// When bytes last came from upstream for it.
    pub heard_ms: u64,
    /// When its response was recorded.
    pub ended_ms: Option<u64>,
    /// When it was abandoned, cancelled or lost: the later of this and its end starts the
    /// `repeat_window`.
    pub lost_ms: Option<u64>,
    /// Why nobody waits for its own stream any more, if nobody does.
    pub settled_by: Option<Settled>,
    /// While it runs: where the server's own stream of it stands. `None`: it cannot be picked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_cursor: Option<UpstreamCursor>,
}

/// A tokenless call's row among all sessions of its principal (`repeat_scope = "principal"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeRow {
    /// Its key. Of several calls with one key the newest owns the row.
    pub key: DedupKey,
    /// When the row ends by itself, as last written (Unix ms).
    pub expires_ms: u64,
    /// False once its answer is known to be delivered: it needs the row no longer.
    pub open: bool,
}

/// Why nobody waits for a call's own stream any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Settled {
    /// A newer idempotent repeat took its place.
    Superseded,
    /// An operator released it.
    ByHand,
    /// Its claim was released: upstream never saw it, or refused it as malformed.
    Freed,
}

impl Call {
    /// The key of the row that it shares with other sessions: its token's, or its scope's while it
    /// needs that.
    pub fn key(&self) -> Option<DedupKey> {
        self.token.or_else(|| self.open_scope().map(|row| row.key))
    }

    /// Its row among the sessions of its principal, while it needs one.
    pub fn open_scope(&self) -> Option<ScopeRow> {
        self.scope.filter(|row| row.open)
    }

    /// When the `repeat_window` starts: the later of its end and its loss.
    pub fn window_start_ms(&self) -> u64 {
        self.ended_ms.max(self.lost_ms).unwrap_or(self.claimed_ms)
    }
}

/// All calls of a session, with the ways to look them up.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    calls: BTreeMap<CallId, Call>,
    by_params: HashMap<Digest32, Vec<CallId>>,
    by_key: HashMap<DedupKey, CallId>,
    running: BTreeSet<CallId>,
    /// Params of calls that were forgotten although a repeat must not run, and until when.
    forgotten: HashMap<Digest32, u64>,
    last: CallId,
}

impl Ledger {
    /// An empty ledger whose first call gets the number after `base`. Sessions start at different
    /// numbers, since some servers mix up sessions that use the same JSON-RPC ids.
    pub fn starting_after(base: CallId) -> Self {
        Self { last: base, ..Self::default() }
    }

    /// Remembers that a repeat by these params must not run until then; false if there is no room.
    pub fn remember_forgotten(
        &mut self,
        params: Digest32,
        until_ms: u64,
        now_ms: u64,
        max: usize,
    ) -> bool {
        if self.forgotten.len() >= max {
            self.forgotten.retain(|_, until_ms| *until_ms > now_ms);
        }
        let has_room = self.forgotten.len() < max || self.forgotten.contains_key(&params);
        if has_room {
            let until = self.forgotten.entry(params).or_default();
            *until = until_ms.max(*until);
        }
        has_room
    }

    /// True if a call with these params was forgotten that must not be repeated yet.
    pub fn has_forgotten(&self, params: &Digest32, now_ms: u64) -> bool {
        self.forgotten.get(params).is_some_and(|until_ms| *until_ms > now_ms)
    }

    /// All params that are remembered so, and until when.
    pub fn all_forgotten(&self) -> impl Iterator<Item = (Digest32, u64)> {
        self.forgotten.iter().map(|(&params, &until_ms)| (params, until_ms))
    }

    /// The last number that was given out.
    pub fn last_id(&self) -> CallId {
        self.last
    }

    /// The number that the next call gets.
    pub fn next_id(&self) -> CallId {
        CallId(self.last.0 + 1)
    }

    /// Adds a call; the newest call of a key owns its row.
    pub fn insert(&mut self, call: Call) {
        self.last = self.last.max(call.id);
        self.remember_params(call.params, call.id);
        if let Some(key) = call.key() {
            self.by_key.insert(key, call.id);
        }
        if call.phase.is_in_flight() {
            self.running.insert(call.id);
        }
        self.calls.insert(call.id, call);
    }

    /// Moves a call to a phase; false if it is there already, or unknown.
    pub fn move_to(&mut self, id: CallId, phase: Phase) -> bool {
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.phase != phase) else {
            return false;
        };
        call.phase = phase;
        if phase.is_in_flight() {
            self.running.insert(id);
        } else {
            call.upstream_cursor = None;
            self.running.remove(&id);
        }
        true
    }

    /// Calls in flight, oldest first.
    pub fn running(&self) -> impl Iterator<Item = &Call> {
        self.running.iter().filter_map(|id| self.calls.get(id))
    }

    /// How many calls are in flight.
    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    /// Forgets a call.
    pub fn remove(&mut self, id: CallId) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        self.running.remove(&id);
        self.forget_params(call.params, id);
        if let Some(key) = call.key()
            && self.by_key.get(&key) == Some(&id)
        {
            self.by_key.remove(&key);
        }
        Some(call)
    }

    /// Stops finding a call by its params; it can no longer be a repeat's original.
    pub fn forget_params(&mut self, params: Digest32, id: CallId) {
        if let Some(ids) = self.by_params.get_mut(&params) {
            ids.retain(|&other| other != id);
            if ids.is_empty() {
                self.by_params.remove(&params);
            }
        }
    }

    /// Finds a call by its params again.
    pub fn remember_params(&mut self, params: Digest32, id: CallId) {
        let ids = self.by_params.entry(params).or_default();
        if let Err(at) = ids.binary_search(&id) {
            ids.insert(at, id);
        }
    }

    /// Takes its row from a call: it never ran, or another call owns the row.
    pub fn forget_key(&mut self, id: CallId) {
        self.leave_key(id);
        if let Some(call) = self.calls.get_mut(&id) {
            call.token = None;
            call.scope = None;
        }
    }

    /// A call needs the row of its scope no longer, or not for now.
    pub fn leave_key(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let key = call.key();
        if let Some(row) = &mut call.scope {
            row.open = false;
        }
        if let Some(key) = key
            && self.by_key.get(&key) == Some(&id)
        {
            self.by_key.remove(&key);
        }
    }

    /// Gives a row to a call that has its key: back, after a claim was undone, or on.
    pub fn restore_key(&mut self, id: CallId) {
        if let Some(key) = self.calls.get(&id).and_then(Call::key) {
            self.by_key.insert(key, id);
        }
    }

    /// A call by number.
    pub fn get(&self, id: CallId) -> Option<&Call> {
        self.calls.get(&id)
    }

    /// A call by number, to change it.
    pub fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.get_mut(&id)
    }

    /// Calls with these params, oldest first.
    pub fn with_params(&self, params: &Digest32) -> &[CallId] {
        self.by_params.get(params).map_or(&[], Vec::as_slice)
    }

    /// The call that owns the row of a token or scope.
    pub fn with_key(&self, key: &DedupKey) -> Option<CallId> {
        self.by_key.get(key).copied()
    }

    /// All calls, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.values()
    }

    /// How many calls are found by their params.
    pub fn found_count(&self) -> usize {
        self.by_params.values().map(Vec::len).sum()
    }

    /// How many calls are kept.
    pub fn count(&self) -> usize {
        self.calls.len()
    }
}
