//! The requests that leave: their headers, and what is changed in a message in place.
use bytes::Bytes;
use rejoin_core::message::Message;
use rejoin_core::token::{ATTEMPT_META, EPOCH_META, TOKEN_META};

use super::call::{CallKey, Era};
use super::{Machine, Method, Request, StreamKey};

/// Header fields of requests.
const SESSION: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";
const ACK: &str = "mcp-stream-ack";
const CURSOR: &str = "last-event-id";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

type Composed = (Request, Vec<(StreamKey, String)>);

impl Machine {
    /// A request in the session; it confirms what was processed.
    pub(super) fn compose(&self, method: Method, body: Bytes) -> Composed {
        let mut headers = Vec::new();
        if let Some(session) = &self.session.id {
            headers.push((SESSION, session.clone()));
        }
        if let Some(revision) = &self.session.revision {
            headers.push((REVISION, revision.clone()));
        }
        let newest = self.acks.iter().rev().take(self.limits().acks_max);
        let acks: Vec<_> = newest.map(|(stream, id)| (*stream, id.clone())).collect();
        if !acks.is_empty() {
            let ids: Vec<_> = acks.iter().map(|(_, id)| id.as_str()).collect();
            headers.push((ACK, ids.join(", ")));
        }
        (Request { method, headers, body }, acks)
    }

    /// A GET for what follows a cursor, or for a stream from now on.
    pub(super) fn compose_get(&self, cursor: Option<&str>) -> Composed {
        let (mut request, acks) = self.compose(Method::Get, Bytes::new());
        if let Some(cursor) = cursor {
            request.headers.push((CURSOR, cursor.to_owned()));
        }
        (request, acks)
    }

    pub(super) fn compose_note(&self, number: u64) -> Option<Composed> {
        let note = self.notes.get(&number)?;
        Some(match &note.revision {
            Some(revision) => {
                let headers = vec![(REVISION, revision.clone())];
                (Request { method: Method::Post, headers, body: note.body.clone() }, Vec::new())
            }
            None => self.compose(Method::Post, note.body.clone()),
        })
    }

    /// The next POST of a call. Every one has an id of its own, so that what is said of an earlier
    /// one is never taken for what is said of this one.
    pub(super) fn compose_call(&mut self, key: CallKey) -> Option<Composed> {
        let wire = self.number();
        let epoch = self.session.continuity.as_ref().map(|continuity| continuity.epoch);
        let wants_token = epoch.is_some() && self.wants_token(key);
        let fresh = if wants_token { Some(self.random.token()) } else { None };
        let is_repeatable =
            self.calls.get(&key).is_some_and(|call| self.is_repeatable(&call.message));
        let call = self.calls.get_mut(&key)?;
        if fresh.is_some() {
            call.token = fresh;
        }
        if call.attempts == 0 {
            call.epoch = epoch.flatten();
        }
        if call.token.is_none() && is_repeatable {
            // Another execution: the progress of the first is not this one's.
            call.progress_from = call.wires.len();
            call.told_progress = None;
        }
        call.attempts += 1;
        call.wires.push(wire);
        self.wires.insert(wire, key);
        let call = self.calls.get(&key)?;
        let wire = wire.to_string();
        let attempt = (call.host_attempts + call.attempts).to_string();
        // The epoch of an attempt that the host made before is the host's to say, in the session
        // that the host knows.
        let is_hosts = call.host_attempts > 0 && !self.session.is_anew;
        let epoch = call.epoch.filter(|_| call.host_attempts == 0).map(|epoch| epoch.to_string());
        let mut edit = call.message.edit();
        if !call.is_subscription() {
            edit = edit.id(wire.as_bytes()).progress_token(wire.as_bytes());
        }
        if epoch_known(self)
            && let Some(token) = &call.token
        {
            edit = edit
                .request_meta(TOKEN_META, token.as_bytes())
                .request_meta(ATTEMPT_META, attempt.as_bytes());
            edit = match &epoch {
                Some(epoch) => edit.request_meta(EPOCH_META, epoch.as_bytes()),
                None if is_hosts => edit,
                None => edit.remove_meta(&[EPOCH_META]),
            };
        }
        let body = edit.finish();
        Some(match &call.era {
            Era::Session if call.is_initialize() => {
                (Request { method: Method::Post, headers: Vec::new(), body }, Vec::new())
            }
            Era::Session => self.compose(Method::Post, body),
            Era::Alone(revision) => {
                let headers = headers_alone(&call.message, revision);
                (Request { method: Method::Post, headers, body }, Vec::new())
            }
        })
    }

    /// Whether a call gets a token of its own now: one with an effect, that never left without, and
    /// that the host has given none.
    fn wants_token(&self, key: CallKey) -> bool {
        let Some(call) = self.calls.get(&key) else { return false };
        let has_effect = !super::tools::is_repeatable_method(call.method());
        let has_place = call.message.params().is_some_and(|params| params.starts_with(b"{"));
        has_effect && has_place && !call.is_ungated() && call.token.is_none() && !call.may_have_run
    }
}

/// Tokens are sent only to a server that says what they mean.
fn epoch_known(machine: &Machine) -> bool {
    machine.session.continuity.is_some()
}

/// The headers of a request without session (spec 3.1): what its body says, for those who read only
/// headers.
fn headers_alone(message: &Message, revision: &str) -> Vec<(&'static str, String)> {
    let method = message.method().unwrap_or_default();
    let mut headers = vec![(REVISION, revision.to_owned()), (METHOD, method.to_owned())];
    let name = match method {
        "tools/call" | "prompts/get" => message.param_str("name"),
        "resources/read" => message.param_str("uri"),
        _ if method.starts_with("tasks/") => message.param_str("taskId"),
        _ => None,
    };
    if let Some(name) = name {
        headers.push((NAME, header_text(&name)));
    }
    headers
}

/// A text as the value of a header: as it is, or marked and in base64.
fn header_text(text: &str) -> String {
    let plain = !text.is_empty()
        && text.bytes().all(|byte| (0x21..0x7f).contains(&byte))
        && !text.starts_with("=?base64?");
    if plain { text.to_owned() } else { format!("=?base64?{}?=", base64(text.as_bytes())) }
}

/// Base64 with padding (RFC 4648 section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 0x3f) as usize];
            out.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_no_header_is_marked_and_encoded() {
        assert_eq!(header_text("charge"), "charge");
        for (text, encoded) in
            [("\u{fc}", "w7w="), ("a b", "YSBi"), ("", ""), ("abc d", "YWJjIGQ=")]
        {
            assert_eq!(header_text(text), format!("=?base64?{encoded}?="));
        }
    }
}
