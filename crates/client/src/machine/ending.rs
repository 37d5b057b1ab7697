//! Every call ends: with its result, or with an error that says whether the tool may have run. And
//! so does the session.
use bytes::Bytes;
use rejoin_core::message::{self, Kind, Message};
use rejoin_core::rejection::{REFUSED_BY, Reason};
use serde_json::json;

use super::call::{CallKey, Era};
use super::{ExchangeId, Machine, Method, Notice, Output, Purpose};

/// An error for a call that did not run.
pub(super) fn not_run(host_id: &[u8], what: &str) -> Bytes {
    let text = format!("Not run. The call was not sent: {what}.");
    error(host_id, Reason::UpstreamUnavailable, &text, true, false, None)
}

pub(super) fn error(
    host_id: &[u8],
    reason: Reason,
    text: &str,
    send_again: bool,
    may_have_run: bool,
    status: Option<u16>,
) -> Bytes {
    let mut data = json!({
        "by": REFUSED_BY,
        "reason": reason.name(),
        "sendAgain": send_again,
        "mayHaveRun": may_have_run,
        "doc": reason.doc(),
    });
    if let Some(status) = status {
        data["status"] = json!(status);
    }
    let data = data.to_string();
    message::error_response(Some(host_id), reason.code(), text, Some(data.as_bytes()))
}

impl Machine {
    /// Ends a call with the server's own answer.
    pub(super) fn finish(&mut self, key: CallKey, message: &Message) {
        let Some(call) = self.calls.get(&key) else { return };
        if call.is_own {
            return self.settle_own(key, message);
        }
        let relayed = message.edit().id(&call.host_id).without_null_outcome().finish();
        let (method, initializes) = (call.method().to_owned(), call.is_initialize());
        if message.kind() == Kind::Response {
            if initializes {
                self.session_opened(message);
                self.session.note_declared(message);
            }
            self.note_told(key);
            if method == "tools/list"
                && let Some(result) = message.result()
            {
                self.tools.learn(result);
            }
            self.keep_task(key);
        }
        self.out.push(Output::Deliver(relayed));
        self.settle(key);
    }

    /// What runs as a task tells its progress after its call was answered.
    fn keep_task(&mut self, key: CallKey) {
        let Some(call) = self.calls.get(&key) else { return };
        let Some(token) = &call.host_progress else { return };
        if call.message.param("task").is_some() {
            let wires = call.wires.iter().skip(call.progress_from);
            self.tasks.extend(wires.map(|wire| (*wire, token.clone())));
        }
        while self.tasks.len() > self.limits().tasks_max {
            self.tasks.pop_front();
        }
    }

    /// Ends a call with an error of this client.
    pub(super) fn fail(&mut self, key: CallKey, what: &str) {
        let Some(call) = self.calls.get(&key) else { return };
        if call.is_cancelled() {
            return self.forget(key);
        }
        if call.refusal.is_some() && call.may_have_run {
            return self.tell_refusal(key);
        }
        let may_have_run = call.may_have_run || call.may_have_arrived();
        let body = if may_have_run {
            let text = format!(
                "The outcome is unknown. The answer was lost on the way ({what}); the call may \
                 have taken effect. Check before you repeat it."
            );
            error(&call.host_id, Reason::OutcomeUnknown, &text, false, true, None)
        } else {
            not_run(&call.host_id, what)
        };
        self.end_with(key, body, what, may_have_run);
    }

    /// Ends a call whose session was lost.
    pub(super) fn fail_orphan(&mut self, key: CallKey, ran: bool) {
        let Some(call) = self.calls.get(&key) else { return };
        let what = "the server does not know the session any more";
        let body = if ran {
            let text = format!(
                "The outcome is unknown. While the call ran, its session was lost: {what}. It may \
                 have taken effect. Check before you repeat it."
            );
            error(&call.host_id, Reason::OutcomeUnknown, &text, false, true, None)
        } else {
            let text = format!(
                "Not run. {what}, and what it kept for the session is lost. Rebuild what the call \
                 depends on; then it is safe to send it again.",
            );
            let text = text.replacen("Not run. t", "Not run. T", 1);
            error(&call.host_id, Reason::StateLost, &text, true, false, None)
        };
        self.end_with(key, body, what, ran);
    }

    pub(super) fn end_with(&mut self, key: CallKey, body: Bytes, what: &str, may_have_run: bool) {
        if self.tell_record(key) {
            return;
        }
        if self.calls.get(&key).is_some_and(|call| call.is_own) {
            return self.fail_own(key, what);
        }
        let (call, what) = (self.name(key), what.to_owned());
        self.out.push(Output::Deliver(body));
        self.notice(Notice::Failed { call, what, may_have_run });
        self.settle(key);
    }

    /// The host has its answer; the stream is read to its end.
    pub(super) fn settle(&mut self, key: CallKey) {
        self.leave_exchange(key);
        self.forget(key);
    }

    /// Removes a call.
    pub(super) fn forget(&mut self, key: CallKey) {
        let Some(call) = self.calls.remove(&key) else { return };
        for wire in &call.wires {
            self.wires.remove(wire);
        }
        if self.hosts.get(&call.host_key) == Some(&key) {
            self.hosts.remove(&call.host_key);
        }
        let recorded_bytes = call.recorded.map_or(0, |recorded| recorded.message.bytes().len());
        let bytes = call.message.bytes().len() + recorded_bytes;
        self.pending_bytes = self.pending_bytes.saturating_sub(bytes);
        if call.era == Era::Session
            && let Some(exchange) = call.state.exchange()
        {
            self.linger(exchange);
        }
    }

    /// Ends the session: nobody is left to use it.
    pub(super) fn say_goodbye(&mut self) {
        let keys: Vec<_> = self.calls.keys().copied().collect();
        for key in keys {
            self.fail(key, "the client is ending");
        }
        let ids: Vec<_> = self.exchanges.keys().copied().collect();
        for id in ids {
            self.close(id);
        }
        self.queue.clear();
        self.calls.clear();
        self.notes.clear();
        self.standalone.off();
        self.stop_reopening();
        if self.session.id.is_none() {
            return self.done();
        }
        let (request, acks) = self.compose(Method::Delete, Bytes::new());
        let exchange = self.open(Purpose::Goodbye, request, acks);
        let close_ms = self.now_ms.saturating_add(self.limits().delete_max_ms);
        if let Some(exchange) = self.exchanges.get_mut(&exchange) {
            exchange.close_ms = Some(close_ms);
        }
    }

    pub(super) fn goodbye_done(&mut self, id: ExchangeId) {
        self.close(id);
        self.done();
    }

    pub(super) fn done(&mut self) {
        self.out.push(Output::Done);
    }
}
