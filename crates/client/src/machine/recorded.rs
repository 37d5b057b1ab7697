//! A record is the answer alone. Where the server says that what came before it can still be had,
//! that is read first, in its order (`docs/protocol.md` section 6).
use rejoin_core::message::Message;
use serde::Deserialize;

use super::Machine;
use super::call::{CallKey, State};
use super::track::is_cursor;

/// The recorded answer of a call, while what came before it is asked for.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) message: Message,
    /// It waits no longer.
    pub(super) until_ms: u64,
}

/// The mark of a record whose progress can be had.
#[derive(Deserialize)]
struct Mark {
    #[serde(rename = "dev.rejoin/recorded")]
    _ended_ms: u64,
    #[serde(rename = "dev.rejoin/origin")]
    origin: String,
}

#[derive(Deserialize)]
struct MarkedResult {
    #[serde(rename = "_meta")]
    mark: Mark,
}

#[derive(Deserialize)]
struct MarkedError {
    #[serde(rename = "data")]
    mark: Mark,
}

impl Machine {
    /// Takes an answer that is a record of which the host lacks progress: the stream on which the
    /// call ran is read first. False: it is to be told now.
    pub(super) fn keep_record(&mut self, key: CallKey, message: &Message) -> bool {
        let Some(origin) = origin(message) else { return false };
        let has_token = self.honours_token(key);
        let (now_ms, limits) = (self.now_ms, self.settings.limits.clone());
        let bytes = message.bytes().len();
        let has_room = self.pending_bytes.saturating_add(bytes) <= limits.pending_bytes_max;
        let Some(call) = self.calls.get(&key) else { return false };
        // A mark on the answer to the only POST of a call is none of this server's.
        let is_first = call.wires.len() < 2 || call.recorded.is_some() || call.is_own;
        let cursor = match (&call.read_to, call.told_progress) {
            (Some(read_to), _) => read_to.clone(),
            (None, None) => origin,
            // It came on another stream: it would come twice.
            (None, Some(_)) => return false,
        };
        if !has_token || is_first || !has_room || !is_cursor(cursor.as_bytes(), &limits) {
            return false;
        }
        self.leave_exchange(key);
        self.pending_bytes += bytes;
        if let Some(call) = self.calls.get_mut(&key) {
            let until_ms = now_ms.saturating_add(limits.recorded_wait_ms);
            call.recorded = Some(Recorded { message: message.clone(), until_ms });
            call.track.cursor = Some(cursor);
            call.track.renew(now_ms, &limits);
            call.state = State::Waiting { at_ms: now_ms };
        }
        true
    }

    /// Ends a call with the record that waited, if there is one: nothing more comes before it.
    pub(super) fn tell_record(&mut self, key: CallKey) -> bool {
        let Some(call) = self.calls.get_mut(&key) else { return false };
        let Some(recorded) = call.recorded.take() else { return false };
        self.pending_bytes = self.pending_bytes.saturating_sub(recorded.message.bytes().len());
        if call.is_cancelled() {
            self.forget(key);
        } else {
            self.finish(key, &recorded.message);
        }
        true
    }
}

/// The cursor before the first event of the stream on which a recorded call ran.
fn origin(message: &Message) -> Option<String> {
    let mark = match (message.result(), message.error()) {
        (Some(result), _) => serde_json::from_slice::<MarkedResult>(result).ok()?.mark,
        (None, error) => serde_json::from_slice::<MarkedError>(error?).ok()?.mark,
    };
    Some(mark.origin)
}
