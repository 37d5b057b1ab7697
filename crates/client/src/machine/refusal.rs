//! Refusals, whether they came as 409, as 200 or on a stream: resume first, then decide
//! (`docs/protocol.md` section 7).
use bytes::Bytes;
use rejoin_core::message::{self, Incoming, Kind, Message};
use rejoin_core::rejection::{REFUSED_BY, Reason};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::call::{CallKey, Era, State};
use super::ending::error;
use super::notice::shown;
use super::status::says_not_run;
use super::track::is_cursor;
use super::{Because, Machine, Notice};

/// What a refusal says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Refusal {
    by: String,
    /// Empty where nothing about a call was decided (503).
    #[serde(default)]
    reason: String,
    #[serde(default)]
    pub(super) send_again: bool,
    #[serde(default)]
    retry_after_ms: u64,
    #[serde(default)]
    last_event_id: Option<String>,
    #[serde(default)]
    original_request_id: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ErrorObject {
    data: Refusal,
}

impl Refusal {
    /// Reads an error response. `None`: it is something else.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let error = (message.kind() == Kind::ErrorResponse).then(|| message.error()).flatten()?;
        let mut refusal = serde_json::from_slice::<ErrorObject>(error).ok()?.data;
        refusal.reason = shown(&refusal.reason);
        (refusal.by == REFUSED_BY).then_some(refusal)
    }

    fn is(&self, reason: Reason) -> bool {
        self.reason == reason.name()
    }
}

impl Machine {
    /// The refusal of a call by the server itself. Only a Rejoin may say that a call did not run
    /// and may be sent again: what looks so and comes from another server is its own error, as of
    /// one that ran the call and relays what a Rejoin behind it refused. `initialize` runs no tool,
    /// and a Rejoin without room refuses it before it can say what it is.
    pub(super) fn refusal(&self, key: CallKey, message: &Message) -> Option<Refusal> {
        let call = self.calls.get(&key)?;
        let is_rejoin = self.session.continuity.is_some() && call.era == Era::Session;
        if is_rejoin || call.is_initialize() { Refusal::of(message) } else { None }
    }

    /// A call was refused, or ended without its answer.
    pub(super) fn refused(&mut self, key: CallKey, message: &Message, refusal: &Refusal) {
        let call = self.name(key);
        self.notice(Notice::Refused { call, reason: refusal.reason.clone() });
        let original = refusal.original_request_id.as_ref();
        let original = original.and_then(|id| id.get().parse::<u64>().ok());
        // The stream that holds a call is another call's, and has no answer for this one.
        let is_ours = original.is_some_and(|wire| self.wires.get(&wire) == Some(&key));
        let resends_max = self.limits().resends_max;
        let Some(call) = self.calls.get_mut(&key) else { return };
        call.refusal = Some(message.clone());
        call.resends += 1;
        let exhausted = call.resends > resends_max;
        if let Some(cursor) = refusal.last_event_id.clone()
            && is_cursor(cursor.as_bytes(), &self.settings.limits)
            && is_ours
            && !exhausted
        {
            // The answer of the original is the answer to this call.
            self.leave_exchange(key);
            let (now_ms, limits) = (self.now_ms, self.settings.limits.clone());
            if let Some(call) = self.calls.get_mut(&key) {
                call.track.cursor = Some(cursor);
                call.track.renew(now_ms, &limits);
                call.state = State::Waiting { at_ms: now_ms };
            }
            return;
        }
        if refusal.send_again && !refusal.is(Reason::StateLost) && !exhausted {
            self.leave_exchange(key);
            // This attempt did not run.
            self.not_arrived(key);
            let random = self.random.number();
            let asked_ms = refusal.retry_after_ms.min(self.limits().retry_max_ms);
            let asked_ms = asked_ms + random % (asked_ms / 4 + 1);
            let Some(call) = self.calls.get_mut(&key) else { return };
            // A server that says so again and again is asked less and less often.
            let at_ms = self.now_ms.saturating_add(call.backoff.next_ms(random).max(asked_ms));
            return self.send_again(key, Because::Refusal, at_ms);
        }
        self.tell_refusal(key);
    }

    /// Ends a call with what it was refused with. Whether it may have run is the refusal's to say
    /// for this attempt, and known for the earlier ones.
    pub(super) fn tell_refusal(&mut self, key: CallKey) {
        let Some(call) = self.calls.get(&key) else { return };
        let Some(message) = call.refusal.clone() else { return };
        let refusal = Refusal::of(&message);
        let not_run = refusal.as_ref().is_some_and(|refusal| {
            let unsent = [Reason::StateLost, Reason::DedupTokenReused];
            refusal.send_again || unsent.iter().any(|reason| refusal.is(*reason))
        });
        // What is said of the last attempt is not said of those before.
        let may_have_run = !not_run || call.attempts > 1;
        let reason = refusal.map(|refusal| refusal.reason).unwrap_or_default();
        if may_have_run && not_run {
            let text = format!(
                "The outcome is unknown. An earlier attempt of the call may have taken effect; the \
                 last one was refused ({reason}). Check before you repeat it."
            );
            let body = error(&call.host_id, Reason::OutcomeUnknown, &text, false, true, None);
            return self.end_with(key, body, "refused when it was sent again", true);
        }
        let marked = marked(&message, may_have_run);
        match marked.map(|body| message::parse(body, self.limits().json_depth_max)) {
            Some(Ok(Incoming::One(marked))) => self.finish(key, &marked),
            _ => self.finish(key, &message),
        }
    }

    /// The exchange of a call has done its work.
    pub(super) fn leave_exchange(&mut self, key: CallKey) {
        if let Some(exchange) = self.calls.get(&key).and_then(|call| call.state.exchange()) {
            self.linger(exchange);
        }
    }
}

/// A refusal for the host, to whom it must say whether the call may have run. To a repeat of the
/// host's own it would say that this attempt did not; the host knows of no attempts.
fn marked(message: &Message, may_have_run: bool) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct Told {
        code: i64,
        message: String,
        data: serde_json::Map<String, Value>,
    }
    let mut told: Told = serde_json::from_slice(message.error()?).ok()?;
    told.data.insert("mayHaveRun".to_owned(), may_have_run.into());
    if may_have_run && says_not_run(&told.message) {
        let reason = told.data.get("reason").and_then(Value::as_str).unwrap_or_default();
        told.message = may_have_run_text(reason).to_owned();
    }
    let data = serde_json::to_vec(&told.data).ok()?;
    Some(message::error_response(message.id(), told.code, &told.message, Some(&data)))
}

/// What stands in place of "Not run." where the call itself may be what the refusal protects.
fn may_have_run_text(reason: &str) -> &'static str {
    let is = |known: Reason| known.name() == reason;
    if is(Reason::StreamNotDrained) || is(Reason::NotIdempotent) {
        "The call ran to its end, and its answer was lost on the way. Do not send it again. \
         Check its effect with another tool."
    } else if is(Reason::RequestInFlight) {
        "The outcome is unknown. The call is in progress, and its answer cannot be had. Do not \
         send it again. Check its effect with another tool."
    } else {
        "The outcome is unknown. Nobody knows whether the call took effect. Check before you \
         repeat it."
    }
}
