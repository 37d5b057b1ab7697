//! Messages of the server, from their bytes.

use bytes::Bytes;
use rejoin_core::input::{Channel, FromUpstream};
use rejoin_core::message::{self, Incoming, Kind, Message};
use rejoin_core::session::UpstreamCursor;

use super::Link;
use crate::upstream::CallId;

/// JSON-RPC error code for an answer that cannot be read.
const UNREADABLE_CODE: i64 = -32_603;

impl Link {
    /// `cursor`: where the channel stands with all of it.
    pub(super) fn read(&mut self, channel: Channel, bytes: Bytes, cursor: Option<UpstreamCursor>) {
        if let Some(call) = channel.call() {
            self.heads.let_go(call);
        }
        let mut push = |message: Message, cursor| {
            // A response may come on another channel than its call's own.
            if matches!(message.kind(), Kind::Response | Kind::ErrorResponse)
                && let Some(number) = message.id_key().and_then(|key| key.as_u64())
            {
                self.heads.let_go(CallId(number));
            }
            self.ready.push_back(FromUpstream::Message { channel, message, cursor });
        };
        match message::parse(bytes, self.json_depth_max) {
            Ok(Incoming::One(message)) => push(message, cursor),
            Ok(Incoming::Batch(mut messages)) => {
                let last = messages.pop();
                messages.into_iter().for_each(|message| push(message, None));
                if let Some(last) = last {
                    push(last, cursor);
                }
            }
            Err(error) => {
                tracing::debug!(session = %self.tag, %error, "unreadable message of the server");
                if let Some(call) = channel.call() {
                    self.read_unreadable(call);
                }
            }
        }
    }

    /// The answer to a call cannot be read: its client is told so, rather than left waiting.
    fn read_unreadable(&mut self, call: CallId) {
        let id = call.to_string();
        let text = "The server answered, but its answer cannot be read. The call may have run.";
        let body = message::error_response(Some(id.as_bytes()), UNREADABLE_CODE, text, None);
        if let Ok(Incoming::One(message)) = message::parse(body, self.json_depth_max) {
            let (channel, cursor) = (Channel::Call(call), None);
            self.ready.push_back(FromUpstream::Message { channel, message, cursor });
        }
    }
}
