//! Every call ends: with its result, or with an error that says whether the tool may have run. And
//! so does the session.
use bytes::Bytes;
use rejoin_core::message::{self, Kind, Message};
use rejoin_core::rejection::{REFUSED_BY, Reason};
use serde_json::json;

use super::answer::is_success;
use super::call::{CallKey, Era, State};
use super::{Because, ExchangeId, Machine, Method, Notice, Output, Purpose};

/// An error for a call that did not run.
pub(super) fn not_run(host_id: &[u8], what: &str) -> Bytes {
    let text = format!("Not run. The call was not sent: {what}.");
    error(host_id, Reason::UpstreamUnavailable, &text, true, false, None)
}

fn error(
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
        let relayed = message.edit().id(&call.host_id).finish();
        let (method, initializes) = (call.method().to_owned(), call.is_initialize());
        if message.kind() == Kind::Response {
            if initializes {
                self.session_opened(message);
            }
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

    /// A POST was answered with a status that is no success, and with no answer to the call.
    pub(super) fn refused_by_status(
        &mut self,
        key: CallKey,
        status: u16,
        retry_ms: Option<u64>,
        said: Option<&Message>,
    ) {
        // What a status says by its meaning (RFC 9110 section 15, RFC 6585). 303 points to what a
        // request that ran has brought, and 502 and 504 come from a gateway that may have passed
        // the call on.
        let is_not_run = matches!(status, 304 | 305 | 307 | 308 | 400..=407 | 409..=499 | 501)
            || status == 503 && retry_ms.is_some();
        let is_busy = matches!(status, 408 | 425 | 429 | 500..=599);
        if is_not_run {
            self.not_arrived(key);
        } else if let Some(call) = self.calls.get_mut(&key) {
            call.may_have_run = true;
        }
        let has_token = self.honours_token(key);
        let random = self.random.number();
        let (resends_max, wait_max_ms) = (self.limits().resends_max, self.limits().retry_max_ms);
        let is_repeatable =
            self.calls.get(&key).is_some_and(|call| self.is_repeatable(&call.message));
        let Some(call) = self.calls.get_mut(&key) else { return };
        call.resends += 1;
        if !is_busy || !(has_token || is_repeatable) || call.resends > resends_max {
            return self.tell_status(key, status, said);
        }
        let own_ms = call.backoff.next_ms(random);
        let wait_ms = retry_ms.map_or(own_ms, |asked_ms| asked_ms.max(own_ms)).min(wait_max_ms);
        let at_ms = self.now_ms.saturating_add(wait_ms);
        let because = if has_token { Because::Token } else { Because::Repeatable };
        self.send_again(key, because, at_ms);
    }

    /// An error that names no request stands where the answer to a call would: it is its end.
    pub(super) fn call_refused_unnamed(&mut self, key: CallKey, said: &Message) {
        let Some(call) = self.calls.get(&key) else { return };
        let is_answer = match call.state {
            State::Reading(_) => true,
            State::Whole(_, status) => is_success(status),
            _ => false,
        };
        if is_answer && said.kind() == Kind::ErrorResponse {
            let status = if let State::Whole(_, status) = call.state { status } else { 200 };
            self.tell_status(key, status, Some(said));
        }
    }

    fn tell_status(&mut self, key: CallKey, status: u16, said: Option<&Message>) {
        let Some(call) = self.calls.get(&key) else { return };
        let may_have_run = call.may_have_run || call.may_have_arrived();
        // What the server said without naming the call is still its word on it.
        if let Some(said) =
            said.filter(|said| said.kind() == Kind::ErrorResponse && said.id().is_none())
            && let (Some(code), Some(text)) = (said.error_code(), error_text(said))
        {
            let data = json!({ "status": status, "mayHaveRun": may_have_run }).to_string();
            let body =
                message::error_response(Some(&call.host_id), code, &text, Some(data.as_bytes()));
            let what = format!("the server answered with status {status}");
            return self.end_with(key, body, &what, may_have_run);
        }
        let hint = match status {
            301 | 302 | 307 | 308 => "; it is at another URL: give that one",
            401 => "; give a credential that it takes with --auth, or renew the one given",
            _ => "",
        };
        let what = format!("the server answered with HTTP status {status}{hint}");
        let (reason, text) = if may_have_run {
            let text = format!(
                "The outcome is unknown: {what}. The call may have taken effect. Check before you \
                 repeat it."
            );
            (Reason::OutcomeUnknown, text)
        } else {
            (Reason::UpstreamUnavailable, format!("Not run. The server refused the call: {what}."))
        };
        let body = error(&call.host_id, reason, &text, !may_have_run, may_have_run, Some(status));
        self.end_with(key, body, &what, may_have_run);
    }

    fn end_with(&mut self, key: CallKey, body: Bytes, what: &str, may_have_run: bool) {
        let what = what.to_owned();
        self.out.push(Output::Deliver(body));
        self.notice(Notice::Failed { call: key, what, may_have_run });
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
        self.pending_bytes = self.pending_bytes.saturating_sub(call.message.bytes().len());
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

fn error_text(message: &Message) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Text {
        message: String,
    }
    serde_json::from_slice::<Text>(message.error()?).ok().map(|text| text.message)
}
