//! Rows that sessions share: those of tokens, and under `repeat_scope = "principal"` those of
//! tokenless calls (design section 2, "repeat"; section 5, "Token").
//!
//! A tokenless call's row is there while a repeat of it in another session would be a repeat: it
//! goes once the answer is known to be delivered, and ends by itself with the repeat window. The
//! session that owns it keeps it alive for as long as the call runs or its answer is owed.

use super::Session;
use super::timer::SWEEP_INTERVAL_MS;
use crate::effect::{DedupWrite, Output};
use crate::id::{CallId, StreamId};
use crate::input::{Request, Scope};
use crate::ledger::{Call, Phase, ScopeRow};
use crate::settings::{Delivery, RepeatScope};
use crate::stream::{Release, StreamState};
use crate::token::{DedupKey, DedupRecord, Outcome, Owner};
use crate::tool::Class;

impl Session {
    /// Where else a request's original is looked up: only what must not run twice, and has no token
    /// that says so better.
    pub(super) fn scope<'a>(&self, request: &'a Request) -> Option<&'a Scope> {
        let settings = &self.start.settings;
        let asked = settings.repeat_scope == RepeatScope::Principal && request.token.is_none();
        let scope = request.scope.as_ref().filter(|_| asked)?;
        let class = self.tools.classify(&request.message, settings);
        (class == Class::Effectful).then_some(scope)
    }

    /// The row of another session's call that a request may repeat.
    pub(super) fn scope_record<'a>(
        &self,
        request: &'a Request,
        now_ms: u64,
    ) -> Option<&'a DedupRecord> {
        let record = self.scope(request)?.record.as_ref()?;
        // What this session's own calls are, its ledger knows better.
        let elsewhere = record.owner.session != self.start.session;
        (elsewhere && record.is_in_repeat_window(now_ms)).then_some(record)
    }

    /// What a claim will write for a tokenless request.
    pub(super) fn scope_row(&self, request: &Request, now_ms: u64) -> Option<ScopeRow> {
        let key = self.scope(request)?.key;
        let expires_ms = self.scope_expiry(&Outcome::Running, now_ms);
        Some(ScopeRow { key, expires_ms, open: true })
    }

    /// The row of a claim: inserted if absent; a supersede, a twin, or a call after the window of
    /// the earlier one replaces what is there by compare-and-swap.
    pub(super) fn write_claim(&self, call: &Call, request: &Request, out: &mut Output) {
        let Some(key) = call.key() else { return };
        let local = self.ledger.with_key(&key).map(|id| self.owner(id));
        let found = || {
            let record = match &request.token {
                Some(_) => self.known_record(request),
                None => self.scope(request).and_then(|scope| scope.record.as_ref()),
            };
            record.filter(|record| record.is_owned()).map(|record| record.owner)
        };
        let expected = local.or_else(found);
        let record = self.dedup_record(call, Outcome::Running, call.claimed_ms);
        out.batch.dedup.push(DedupWrite { key, expected, record });
    }

    /// What the store knew of a request's token when it came. A row of this session that still says
    /// `running`, though the ledger has no such call, is of a claim that was freed since.
    pub(super) fn known_record<'a>(&self, request: &'a Request) -> Option<&'a DedupRecord> {
        request.record.as_ref().filter(|record| {
            let here = record.owner.session == self.start.session;
            let stale = here && record.outcome == Outcome::Running;
            record.is_owned() && !stale
        })
    }

    /// Writes how the call of a row stands now, if it owns the row.
    pub(super) fn write_outcome(
        &mut self,
        id: CallId,
        outcome: Outcome,
        now_ms: u64,
        out: &mut Output,
    ) {
        let Some(call) = self.ledger.get(id) else { return };
        if call.scope.is_some() && outcome == Outcome::Freed {
            return self.release_scope(id, now_ms, out);
        }
        let Some(key) = call.key() else { return };
        let expected = match self.ledger.with_key(&key) {
            Some(owner) if owner == id => Some(owner),
            _ if call.token.is_some() => return,
            // The row of a twin that needs it no longer. A late result starts a window of its own.
            Some(owner) if !self.needs_row(owner, now_ms) => Some(owner),
            Some(_) => return,
            None => None,
        };
        self.ledger.restore_key(id);
        let expected = expected.map(|owner| self.owner(owner));
        if let Outcome::Finished { response, .. } = &outcome {
            self.room_max_bytes = self.room_max_bytes.saturating_sub(response.len() as u64);
        }
        let until_ms = self.scope_expiry(&outcome, now_ms);
        self.write_row(id, expected, outcome, (now_ms, until_ms), out);
    }

    pub(super) fn owner(&self, call: CallId) -> Owner {
        Owner { session: self.start.session, call }
    }

    /// Writes the row of a call over that of `expected`; a tokenless one's ends at `until_ms`.
    fn write_row(
        &mut self,
        id: CallId,
        expected: Option<Owner>,
        outcome: Outcome,
        (now_ms, until_ms): (u64, u64),
        out: &mut Output,
    ) {
        let Some(call) = self.ledger.get_mut(id) else { return };
        if let Some(row) = &mut call.scope {
            row.expires_ms = until_ms;
            self.changed_calls.insert(id);
        }
        let Some(call) = self.ledger.get(id) else { return };
        let Some(key) = call.key() else { return };
        let record = self.dedup_record(call, outcome, now_ms);
        out.batch.dedup.push(DedupWrite { key, expected, record });
    }

    fn dedup_record(&self, call: &Call, outcome: Outcome, now_ms: u64) -> DedupRecord {
        let limits = self.limits();
        let (result_expires_ms, expires_ms) = match call.scope {
            Some(row) => (row.expires_ms, row.expires_ms),
            None => {
                let row_ms = limits.tombstone_ms.max(limits.retention_ms);
                (now_ms + limits.retention_ms, now_ms + row_ms)
            }
        };
        let owner = self.owner(call.id);
        DedupRecord { owner, params: call.params, outcome, result_expires_ms, expires_ms }
    }

    /// When a tokenless call's row ends by itself. One that runs is written again in time: should
    /// its session die, the row outlives that by about the window of a call that was lost.
    fn scope_expiry(&self, outcome: &Outcome, now_ms: u64) -> u64 {
        let window_ms = self.limits().repeat_window_ms;
        let windows = if *outcome == Outcome::Running { 2 } else { 1 };
        now_ms.saturating_add(window_ms.saturating_mul(windows))
    }

    /// Frees the rows of a stream's calls once their answers are known to be delivered, or nobody
    /// waits for them any more. A presumed answer is not known to be delivered while a reset would
    /// still count: the repeat that follows it may come on another connection, and be read first.
    pub(super) fn release_scopes(&mut self, id: StreamId, now_ms: u64, out: &mut Output) {
        let Some(stream) = self.streams.get(&id) else { return };
        let delivered = match stream.state {
            StreamState::Proved => true,
            StreamState::Presumed => {
                self.start.settings.delivery == Delivery::Presumed && !stream.reset_may_come
            }
            _ => false,
        };
        let released =
            matches!(stream.state, StreamState::Released(why) if why != Release::Cancelled);
        if !delivered && !released {
            return;
        }
        let calls = stream.calls.iter().filter_map(|&call| self.ledger.get(call));
        let over: Vec<_> = calls
            .filter(|call| call.stream == Some(id) && call.open_scope().is_some())
            .filter(|call| released || call.phase == Phase::Finished)
            .map(|call| call.id)
            .collect();
        for call in over {
            self.release_scope(call, now_ms, out);
        }
    }

    /// A tokenless call needs its row no longer: a twin that still does gets it, else it is freed.
    pub(super) fn release_scope(&mut self, id: CallId, now_ms: u64, out: &mut Output) {
        let Some(call) = self.ledger.get(id) else { return };
        let Some(row) = call.open_scope() else { return };
        let owns = self.ledger.with_key(&row.key) == Some(id);
        let heir = self.heir(call, row.key, now_ms);
        let freed = self.dedup_record(call, Outcome::Freed, now_ms);
        self.ledger.leave_key(id);
        self.changed_calls.insert(id);
        if !owns {
            return;
        }
        match heir {
            Some(heir) => {
                self.ledger.restore_key(heir);
                let until_ms = now_ms.saturating_add(self.limits().repeat_window_ms);
                self.write_standing(heir, Some(freed.owner), (now_ms, until_ms), out);
            }
            None => {
                let expected = Some(freed.owner);
                out.batch.dedup.push(DedupWrite { key: row.key, expected, record: freed });
            }
        }
    }

    /// A stream is resumed that was presumed to be delivered, or given up long ago: its client says
    /// that its answer is missing, and its calls need their rows again.
    pub(super) fn reopen_scopes(&mut self, stream: StreamId, now_ms: u64, out: &mut Output) {
        let calls = self.streams.get(&stream).map(|stream| stream.calls.clone());
        for id in calls.unwrap_or_default() {
            let call = self.ledger.get(id).filter(|call| call.stream == Some(stream));
            let Some(row) = call.and_then(|call| call.scope) else { continue };
            let owner = self.ledger.with_key(&row.key).filter(|_| row.open);
            if owner != Some(id)
                && let Some(call) = self.ledger.get_mut(id)
            {
                // Whatever is written there is another call's.
                call.scope = Some(ScopeRow { open: true, expires_ms: 0, ..row });
            }
            let owner = self.ledger.with_key(&row.key).unwrap_or(id);
            if owner == id {
                self.ledger.restore_key(id);
            }
            self.renew_scope(owner, now_ms, out);
        }
    }

    /// The other call with this key that needs the row for longest.
    fn heir(&self, of: &Call, key: DedupKey, now_ms: u64) -> Option<CallId> {
        let calls = self.ledger.with_params(&of.params).iter().filter(|&&id| id != of.id);
        calls
            .filter_map(|&id| self.ledger.get(id))
            .filter(|call| call.open_scope().is_some_and(|row| row.key == key))
            .map(|call| (self.needs_row_until_ms(call), call.id))
            .filter(|(end_ms, _)| *end_ms > now_ms)
            .max()
            .map(|(_, id)| id)
    }

    fn needs_row(&self, call: CallId, now_ms: u64) -> bool {
        self.ledger.get(call).is_some_and(|call| now_ms < self.needs_row_until_ms(call))
    }

    /// When a repeat of a call is a repeat no longer; the end of time: not as things stand.
    fn needs_row_until_ms(&self, call: &Call) -> u64 {
        let state = call.stream.and_then(|id| self.streams.get(&id)).map(|stream| stream.state);
        self.repeat_window_end_ms(call, state).unwrap_or(u64::MAX)
    }

    /// Writes a tokenless call's row as far as the ledger knows how it stands. The answer itself is
    /// in the log only: without it the row says no more than that the call must not run again.
    fn write_standing(
        &mut self,
        id: CallId,
        expected: Option<Owner>,
        times: (u64, u64),
        out: &mut Output,
    ) {
        let Some(call) = self.ledger.get(id) else { return };
        let outcome = match call.phase {
            Phase::Claimed | Phase::Sent => Outcome::Running,
            Phase::Finished | Phase::Cancelled { result: true } => Outcome::Tombstone,
            Phase::Cancelled { result: false } => Outcome::Cancelled,
            Phase::Unknown => Outcome::Unknown,
        };
        self.write_row(id, expected, outcome, times, out);
    }

    /// Rows that would end before their calls' windows do are written again in time.
    pub(super) fn renew_scopes(&mut self, now_ms: u64, out: &mut Output) {
        let scoped = self.ledger.iter().filter(|call| call.open_scope().is_some());
        let calls: Vec<_> = scoped.map(|call| call.id).collect();
        for call in calls {
            self.renew_scope(call, now_ms, out);
        }
    }

    fn renew_scope(&mut self, id: CallId, now_ms: u64, out: &mut Output) {
        let Some(call) = self.ledger.get(id) else { return };
        let owned = call.open_scope().filter(|row| self.ledger.with_key(&row.key) == Some(id));
        let Some(row) = owned else { return };
        let end_ms = self.needs_row_until_ms(call);
        let window_ms = self.limits().repeat_window_ms;
        let window_end_ms = now_ms.saturating_add(window_ms);
        let next_sweep_ms = now_ms.saturating_add(SWEEP_INTERVAL_MS);
        if end_ms <= next_sweep_ms && self.heir(call, row.key, end_ms).is_some() {
            // A twin's row refuses the same repeats, and does so for longer.
            return self.release_scope(id, now_ms, out);
        }
        let soon_ms = next_sweep_ms.saturating_add(SWEEP_INTERVAL_MS);
        let (needed_ms, until_ms) = match end_ms {
            u64::MAX if call.phase.is_in_flight() => {
                (window_end_ms, window_end_ms.saturating_add(window_ms))
            }
            u64::MAX => (soon_ms, window_end_ms),
            _ => (end_ms.min(soon_ms), end_ms),
        };
        if row.expires_ms < needed_ms {
            self.write_standing(id, Some(self.owner(id)), (now_ms, until_ms), out);
        }
    }
}
