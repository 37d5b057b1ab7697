//! Answers that are none: a status that is no success, or what no MCP server says. What they mean
//! for the call, and what a person can do.
use bytes::Bytes;
use rejoin_core::message::{self, Kind, Message};
use rejoin_core::rejection::Reason;
use serde_json::json;

use super::answer::is_success;
use super::call::{Call, CallKey, Era, State};
use super::ending::error;
use super::stream::may_be_answer;
use super::{Because, Machine};

/// JSON-RPC error code of a request that cannot be understood.
const PARSE_ERROR: i64 = -32_700;

/// What errors about an unknown session have in common, in lower case.
const SESSION_WORDS: [&[u8]; 2] = [b"session", b"not initialized"];

/// What a wrong URL may be mended by.
const CHECK_URL: &str = "check the URL: it must be the server's endpoint for MCP over Streamable \
                         HTTP, whose path is often /mcp";

/// Whether the same request may be answered otherwise a little later: a status of RFC 9110 section
/// 15 or RFC 6585 that is not about the request itself. What is not implemented (501, 505) stays
/// so.
pub(super) fn is_busy(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500 | 502..=504 | 506..=599)
}

/// Whether a status says by its meaning that the request was not processed (RFC 9110 section 15,
/// RFC 6585). 303 points to what a request that ran has brought; and 502, 504 and 503, with
/// `Retry-After` or without, come from a gateway that may have passed the call on.
fn is_not_run(status: u16) -> bool {
    matches!(status, 304 | 305 | 307 | 308 | 400..=407 | 409..=499 | 501)
}

/// A whole body.
pub(super) struct Body {
    pub(super) status: u16,
    pub(super) retry_ms: Option<u64>,
    /// It answers what was sent in the session that there is now.
    pub(super) is_current: bool,
    pub(super) bytes: Bytes,
    pub(super) messages: Vec<Message>,
    /// Why there are none, where it cannot be read.
    pub(super) unread: String,
}

impl Body {
    /// Whether it is something that is no JSON-RPC, such as a page for a browser.
    fn is_foreign(&self) -> bool {
        self.messages.is_empty() && !self.bytes.trim_ascii().is_empty()
    }

    /// Whether it speaks of the session.
    pub(super) fn names_session(&self) -> bool {
        let text = self.bytes.to_ascii_lowercase();
        SESSION_WORDS.iter().any(|word| text.windows(word.len()).any(|part| part == *word))
    }

    /// Whether the server answers the very request, and so knew what to do with it.
    pub(super) fn answers_by_id(&self) -> bool {
        let id = |message: &Message| message.id_key().and_then(|id| id.as_u64());
        self.messages.iter().any(|message| id(message).is_some())
    }
}

impl Machine {
    pub(super) fn call_body(&mut self, key: CallKey, body: &Body) {
        let is_opening = self.calls.get(&key).is_some_and(Call::is_initialize);
        if is_success(body.status)
            && !is_opening
            && let Some(call) = self.calls.get_mut(&key)
        {
            call.may_have_run = true;
        }
        for message in &body.messages {
            self.take_message(super::StreamKey::Call(key), message);
        }
        let is_open =
            self.calls.get(&key).is_some_and(|call| matches!(call.state, State::Whole(..)));
        if !is_open {
            return;
        }
        if self.calls.get(&key).is_some_and(Call::is_cancelled) {
            return self.forget(key);
        }
        if !is_success(body.status) {
            let said = body.messages.first();
            if body.status == 400 && self.is_in_session(key) {
                return self.doubt(key, said, body.names_session());
            }
            return self.refused_by_status(key, body.status, body.retry_ms, said);
        }
        if body.status == 202 && self.standalone.listens() {
            // The server says that the answer comes elsewhere.
            let until_ms = self.now_ms.saturating_add(self.limits().call_silence_max_ms);
            if let Some(call) = self.calls.get_mut(&key) {
                call.state = State::Elsewhere { until_ms };
            }
            return;
        }
        if is_opening && body.is_foreign() {
            return self.tell_foreign(key, body.status);
        }
        if may_be_answer(&body.bytes) && body.messages.is_empty() {
            return self.fail(key, &body.unread);
        }
        self.send_again_or_end(key, "the server answered with nothing");
    }

    /// Whether a call names the session.
    pub(super) fn is_in_session(&self, key: CallKey) -> bool {
        let call = self.calls.get(&key);
        self.session.id.is_some()
            && call.is_some_and(|call| call.era == Era::Session && !call.is_initialize())
    }

    /// A POST was answered with a status that is no success, and with no answer to the call.
    pub(super) fn refused_by_status(
        &mut self,
        key: CallKey,
        status: u16,
        retry_ms: Option<u64>,
        said: Option<&Message>,
    ) {
        let is_refused = |said| self.refusal(key, said).is_some_and(|refusal| refusal.send_again);
        if is_not_run(status) || said.is_some_and(is_refused) {
            // A Rejoin that has no room may know no more than that there was a request.
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
        if !is_busy(status) || !(has_token || is_repeatable) || call.resends > resends_max {
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

    pub(super) fn tell_status(&mut self, key: CallKey, status: u16, said: Option<&Message>) {
        let Some(call) = self.calls.get(&key) else { return };
        let may_have_run = call.may_have_run || call.may_have_arrived();
        let hint = self.hint(call, status);
        let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        let what = format!(
            "the server at {} answered with HTTP status {status}{hint}",
            self.settings.server
        );
        // What the server said without naming the call is still its word on it.
        if let Some(said) =
            said.filter(|said| said.kind() == Kind::ErrorResponse && said.id().is_none())
            && let (Some(code), Some(text)) = (said.error_code(), error_text(said))
            && !(may_have_run && says_not_run(&text))
        {
            let text = if hint.is_empty() { text } else { format!("{text} ({what})") };
            let data = json!({ "status": status, "mayHaveRun": may_have_run }).to_string();
            let body =
                message::error_response(Some(&call.host_id), code, &text, Some(data.as_bytes()));
            return self.end_with(key, body, &what, may_have_run);
        }
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

    /// What answered `initialize` is no MCP server: it has not run anything, and will not.
    fn tell_foreign(&mut self, key: CallKey, status: u16) {
        let Some(call) = self.calls.get(&key) else { return };
        let what = format!(
            "what answers at {} is no MCP server: HTTP status {status} with a text that is no \
             JSON-RPC message; {CHECK_URL}",
            self.settings.server
        );
        let reason = Reason::UpstreamUnavailable;
        let text = format!("Not run. The call was not taken: {what}.");
        let body = error(&call.host_id, reason, &text, true, false, Some(status));
        self.end_with(key, body, &what, false);
    }

    /// What a person can do about a status.
    fn hint(&self, call: &Call, status: u16) -> Option<String> {
        let is_first = self.session.id.is_none() || call.era != Era::Session;
        let sent = match self.settings.credential.as_str() {
            "" => "no credential was sent".to_owned(),
            named => format!("{named} was sent"),
        };
        let with = match self.settings.credential_option.as_str() {
            "" => String::new(),
            option => format!(" with {option}"),
        };
        match status {
            301 | 302 | 307 | 308 => Some("it is at another URL: give that one".to_owned()),
            401 if self.settings.credential.is_empty() => {
                Some(format!("{sent}: give one that it takes{with}"))
            }
            401 => Some(format!("{sent}: renew it, or give one that it takes{with}")),
            403 => Some(format!("{sent}: check what that allows, or give another{with}")),
            404 | 405 | 501 if is_first => Some(CHECK_URL.to_owned()),
            400..=499 if is_first && !is_busy(status) => Some(CHECK_URL.to_owned()),
            _ => None,
        }
    }
}

/// Whether a text begins by saying that a call did not run.
pub(super) fn says_not_run(text: &str) -> bool {
    text.trim_start().to_ascii_lowercase().starts_with("not run")
}

/// Why a line of the host is no message, and what to send.
pub(super) fn unreadable(error: &message::ParseError) -> Bytes {
    let text = match error {
        message::ParseError::TooDeep { depth_max } => {
            format!("the message is nested deeper than {depth_max} levels: send it flatter")
        }
        error => error.to_string(),
    };
    let data = json!({ "by": rejoin_core::rejection::REFUSED_BY, "mayHaveRun": false });
    let text = if error.json_rpc_code() == PARSE_ERROR {
        format!("Not run. The line cannot be read: {text}.")
    } else {
        format!("Not run. The line is no JSON-RPC message: {text}.")
    };
    message::error_response(None, error.json_rpc_code(), &text, Some(data.to_string().as_bytes()))
}

fn error_text(message: &Message) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Text {
        message: String,
    }
    serde_json::from_slice::<Text>(message.error()?).ok().map(|text| text.message)
}
