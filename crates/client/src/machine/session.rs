//! The session: how it is opened, that it was lost, how it is opened anew (spec SES-1 to SES-9).
use bytes::Bytes;
use rejoin_core::backoff::Backoff;
use rejoin_core::message::{Kind, Message};
use rejoin_core::token::CONTINUITY_CAPABILITY;
use serde::Deserialize;

use super::answer::is_success;
use super::call::{Call, CallKey, Era, State};
use super::restore::Told;
use super::status::is_busy;
use super::{
    Because, Exchange, ExchangeId, Head, Machine, Method, Notice, Purpose, Queued, Request,
};

/// Waits in a row between sessions that come to nothing; then they do not grow any more.
const FRUITLESS_WAITS_MAX: u32 = 16;

/// Why requests leave without the session id that the server gave.
const UNFIT: &str = "the id that the server gave the session: it is longer than 1024 bytes, or \
                     not visible ASCII; the server will not know the session";

/// The session with the server.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Grows with every session.
    pub(super) generation: u64,
    pub(super) id: Option<String>,
    pub(super) revision: Option<String>,
    /// The server is a Rejoin.
    pub(super) continuity: Option<Continuity>,
    /// The id that came with the answer to `initialize`.
    pub(super) offered: Option<String>,
    /// The host's `initialize`.
    initialize: Option<Message>,
    /// The host's `notifications/initialized`.
    pub(super) initialized: Option<Bytes>,
    reopening: Reopening,
    /// Id of the `initialize` that opens it anew.
    pub(super) reopen_wire: Option<u64>,
    /// It is not the one that the host opened.
    pub(super) is_anew: bool,
    /// The server has answered something in it.
    pub(super) worked: bool,
    /// Sessions in a row that were lost before the server answered anything in them.
    fruitless: u32,
    /// What a new session must be told again.
    pub(super) told: Told,
}

/// What a Rejoin says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Continuity {
    /// The ledger epoch.
    pub(super) epoch: Option<u64>,
}

/// How far a session is opened anew.
#[derive(Debug, Default)]
enum Reopening {
    #[default]
    No,
    /// It was lost, and cannot be had; the next call tries again.
    Failed,
    Waiting {
        at_ms: u64,
        since_ms: u64,
        backoff: Backoff,
    },
    Asking {
        exchange: ExchangeId,
        since_ms: u64,
        backoff: Backoff,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    #[serde(default)]
    protocol_version: Option<String>,
    #[serde(default)]
    capabilities: serde_json::Value,
}

impl Machine {
    /// The host asks for a session; one that it had is over.
    pub(super) fn begin_session(&mut self, message: &Message) {
        if self.session.id.is_some() || self.session.initialize.is_some() {
            // Late answers to these would be taken for those of the new session.
            let steps =
                self.exchanges.iter().filter(|(_, exchange)| self.is_session_step(exchange));
            let steps: Vec<_> = steps.map(|(id, _)| *id).collect();
            for id in steps {
                self.close(id);
            }
            for key in self.session_calls(true) {
                self.fail(key, "the host began another session");
            }
            self.close_standalone();
            if self.session.id.is_some() {
                let (request, acks) = self.compose(Method::Delete, Bytes::new());
                let exchange = self.open(Purpose::Leftover, request, acks);
                self.linger(exchange);
            }
        }
        self.session = Session {
            generation: self.session.generation + 1,
            initialize: Some(message.clone()),
            ..Session::default()
        };
        self.drop_stale();
    }

    /// Whether an exchange is a step of opening a session, or asks whether one lives.
    fn is_session_step(&self, exchange: &Exchange) -> bool {
        match exchange.purpose {
            Purpose::Reopen | Purpose::Reopened | Purpose::Knock(_) => true,
            Purpose::Call(key) => self.calls.get(&key).is_some_and(Call::is_initialize),
            _ => false,
        }
    }

    /// What belongs to a session that is gone is nobody's any more.
    fn drop_stale(&mut self) {
        self.acks.clear();
        self.asked.clear();
        self.tasks.clear();
        let generation = self.session.generation;
        let stale = self
            .notes
            .iter()
            .filter(|(_, note)| note.generation < generation && note.revision.is_none());
        let stale: Vec<_> = stale.map(|(number, note)| (*number, note.exchange)).collect();
        for (number, exchange) in stale {
            if let Some(exchange) = exchange {
                self.linger(exchange);
            }
            self.drop_note(number);
        }
    }

    /// The server has answered `initialize`.
    pub(super) fn session_opened(&mut self, message: &Message) {
        let result = message.result().unwrap_or(b"{}");
        let Ok(opened) = serde_json::from_slice::<Initialized>(result) else { return };
        let continuity = opened
            .capabilities
            .get("experimental")
            .and_then(|experimental| experimental.get(CONTINUITY_CAPABILITY))
            .map(|told| Continuity {
                epoch: told.get("epoch").and_then(serde_json::Value::as_u64),
            });
        self.session.revision = opened.protocol_version.filter(|text| is_field(text));
        let offered = self.session.offered.take();
        let is_unfit = offered.as_deref().is_some_and(|id| !is_field(id));
        self.session.id = offered.filter(|_| !is_unfit);
        if is_unfit {
            self.dropped(UNFIT);
        }
        self.session.continuity = continuity;
        let continuity = self.session.continuity.is_some();
        self.notice(Notice::Opened { continuity });
    }

    /// Calls of the session that have not ended; with the `initialize` that opens it?
    fn session_calls(&self, with_initialize: bool) -> Vec<CallKey> {
        self.calls
            .iter()
            .filter(|(_, call)| call.era == Era::Session)
            .filter(|(_, call)| with_initialize || !call.is_initialize())
            .map(|(key, _)| *key)
            .collect()
    }

    /// The server does not know the session any more.
    pub(super) fn lose_session(&mut self) {
        self.notice(Notice::SessionLost);
        self.session.generation += 1;
        self.session.id = None;
        let worked = std::mem::take(&mut self.session.worked);
        self.session.fruitless = if worked { 0 } else { self.session.fruitless + 1 };
        self.close_standalone();
        for key in self.session_calls(false) {
            self.orphan(key);
        }
        self.drop_stale();
        self.start_reopening();
    }

    fn orphan(&mut self, key: CallKey) {
        if self.tell_record(key) {
            return;
        }
        let Some(call) = self.calls.get_mut(&key) else { return };
        call.forget_stream();
        call.doubt = None;
        if call.is_cancelled() || call.is_own {
            let exchange = call.state.exchange();
            if let Some(exchange) = exchange {
                self.close(exchange);
            }
            return self.forget(key);
        }
        let (exchange, ran) = (call.state.exchange(), call.may_have_run || call.may_have_arrived());
        match call.state {
            State::Orphaned { .. } => return,
            // It never left: the new session gets it.
            State::Queued if !ran => return,
            _ => call.state = State::Orphaned { ran },
        }
        call.losses += 1;
        if let Some(exchange) = exchange {
            self.close(exchange);
        }
        self.queue.retain(|queued| *queued != Queued::Call(key));
    }

    fn start_reopening(&mut self) {
        let random = self.random.number();
        let limits = self.limits();
        let mut backoff = Backoff::new(limits.backoff_ms, limits.backoff_max_ms);
        // A server that gives sessions which it does not know then is not asked in a storm.
        let waits = 0..self.session.fruitless.saturating_sub(1).min(FRUITLESS_WAITS_MAX);
        let wait_ms = waits.map(|_| backoff.next_ms(random)).last().unwrap_or(0);
        let at_ms = self.now_ms.saturating_add(wait_ms);
        self.session.reopening = Reopening::Waiting { at_ms, since_ms: self.now_ms, backoff };
    }

    /// Whether anything may be sent: not while a session is opened anew. What waits for one that
    /// could not be had tries again.
    pub(super) fn may_send(&mut self) -> bool {
        match self.session.reopening {
            Reopening::No => true,
            Reopening::Failed => {
                self.start_reopening();
                self.reopen_if_due();
                false
            }
            _ => false,
        }
    }

    pub(super) fn reopen_at(&self) -> Option<u64> {
        match self.session.reopening {
            Reopening::Waiting { at_ms, .. } => Some(at_ms),
            _ => None,
        }
    }

    pub(super) fn reopen_if_due(&mut self) {
        let Reopening::Waiting { at_ms, since_ms, backoff } = &self.session.reopening else {
            return;
        };
        if *at_ms > self.now_ms {
            return;
        }
        let (since_ms, backoff) = (*since_ms, backoff.clone());
        let Some(initialize) = self.session.initialize.clone() else {
            return self.give_up_reopening("it was never opened by the host");
        };
        let wire = self.number();
        self.session.reopen_wire = Some(wire);
        let wire = wire.to_string();
        // The host goes on in the revision that it knows.
        let revision = self.session.revision.as_ref().map(|revision| format!("\"{revision}\""));
        let mut edit = initialize.edit().id(wire.as_bytes());
        if let Some(revision) = &revision {
            edit = edit.protocol_version(revision.as_bytes());
        }
        let body = edit.finish();
        let request = Request { method: Method::Post, headers: Vec::new(), body };
        let exchange = self.open(Purpose::Reopen, request, Vec::new());
        self.session.reopening = Reopening::Asking { exchange, since_ms, backoff };
    }

    pub(super) fn reopen_head(&mut self, id: ExchangeId, head: &Head) {
        if !is_success(head.status) {
            self.close(id);
            let what = format!("the server answered with status {}", head.status);
            return match is_busy(head.status) {
                true => self.reopen_failed(&what),
                false => self.give_up_reopening(&what),
            };
        }
        self.session.offered = head.session.clone();
    }

    pub(super) fn reopen_body(&mut self, status: u16, messages: &[Message]) {
        for message in messages {
            self.take_message(super::StreamKey::Standalone, message);
        }
        if self.session.reopen_wire.is_some() {
            self.give_up_reopening(&format!("the server answered with status {status}"));
        }
    }

    pub(super) fn reopen_answered(&mut self, message: &Message) {
        self.session.reopen_wire = None;
        if let Reopening::Asking { exchange, .. } = &self.session.reopening {
            let exchange = *exchange;
            self.linger(exchange);
        }
        if message.kind() != Kind::Response {
            return self.give_up_reopening("the server refused it");
        }
        self.session_opened(message);
        let Some(body) = self.session.initialized.clone() else { return self.reopened() };
        let (request, acks) = self.compose(Method::Post, body);
        let exchange = self.open(Purpose::Reopened, request, acks);
        if let Reopening::Asking { exchange: current, .. } = &mut self.session.reopening {
            *current = exchange;
        }
    }

    pub(super) fn reopened_head(&mut self, id: ExchangeId, head: &Head) {
        self.linger(id);
        if is_success(head.status) {
            self.reopened();
        } else {
            self.reopen_failed(&format!("the server answered with status {}", head.status));
        }
    }

    /// A new session is open: what the old one left is decided.
    fn reopened(&mut self) {
        self.session.reopening = Reopening::No;
        self.session.is_anew = true;
        self.notice(Notice::SessionReopened);
        self.open_standalone();
        let orphans = self.calls.iter().filter_map(|(key, call)| match call.state {
            State::Orphaned { ran } => Some((*key, ran)),
            _ => None,
        });
        let orphans: Vec<_> = orphans.collect();
        for (key, ran) in orphans.into_iter().rev() {
            let has_token = self.honours_token(key);
            let gets_token = !ran && self.session.continuity.is_some();
            let is_repeatable =
                self.calls.get(&key).is_some_and(|call| self.is_repeatable(&call.message));
            // The token may have another scope here, in which it is unknown: without an epoch that
            // is answered `outcome_unknown`, and with the ledger's own it would run.
            if let Some(call) = self.calls.get_mut(&key).filter(|call| call.attempts > 0) {
                call.epoch = None;
            }
            let losses = self.calls.get(&key).map_or(0, |call| call.losses);
            let is_again = losses > self.limits().session_losses_max;
            if !is_again && (has_token || is_repeatable || gets_token) {
                let because = match (ran, has_token || gets_token) {
                    (false, _) => Because::Refusal,
                    (true, true) => Because::Token,
                    (true, false) => Because::Repeatable,
                };
                self.send_again(key, because, self.now_ms);
            } else {
                self.fail_orphan(key, ran);
            }
        }
        self.restore();
    }

    pub(super) fn reopen_failed(&mut self, what: &str) {
        let random = self.random.number();
        let (now_ms, max_ms) = (self.now_ms, self.limits().unreachable_max_ms);
        let Reopening::Asking { since_ms, backoff, .. } = &mut self.session.reopening else {
            return;
        };
        let since_ms = *since_ms;
        let wait_ms = backoff.next_ms(random);
        let (at_ms, backoff) = (now_ms.saturating_add(wait_ms), backoff.clone());
        if now_ms.saturating_sub(since_ms) >= max_ms {
            return self.give_up_reopening(what);
        }
        self.session.reopening = Reopening::Waiting { at_ms, since_ms, backoff };
        self.unreachable(what.to_owned(), wait_ms);
    }

    /// No session can be had: whatever waits for one ends.
    fn give_up_reopening(&mut self, what: &str) {
        self.session.reopening = Reopening::Failed;
        self.session.reopen_wire = None;
        self.notice(Notice::NotReopened { what: what.to_owned() });
        for key in self.session_calls(false) {
            match self.calls.get(&key).map(|call| call.state.clone()) {
                Some(State::Orphaned { ran }) => self.fail_orphan(key, ran),
                _ => self.fail(key, what),
            }
        }
    }

    /// No session is wanted any more.
    pub(super) fn stop_reopening(&mut self) {
        self.session.reopening = Reopening::No;
    }
}

/// Whether a text can be the value of a header (spec SES-3).
fn is_field(text: &str) -> bool {
    !text.is_empty() && text.len() <= 1_024 && text.bytes().all(|byte| (0x21..0x7f).contains(&byte))
}
