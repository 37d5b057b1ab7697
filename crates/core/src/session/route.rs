//! Which stream carries what a server sends of its own (spec SSE-5, GET-4).

use super::Session;
use crate::id::StreamId;
use crate::input::Channel;

impl Session {
    /// The stream for a request of the server. What came with a running call belongs to that call;
    /// what did not goes to the standalone stream. Where one channel carries everything, or nobody
    /// listens to the standalone stream, the only running call is the best guess.
    pub(super) fn stream_of_request(&self, channel: Channel) -> StreamId {
        if let Some(stream) = self.stream_of_channel(channel) {
            return stream;
        }
        let listened = channel != Channel::Unknown && self.is_standalone_attached();
        let guess = if listened { None } else { self.only_running_stream() };
        guess.unwrap_or(StreamId::STANDALONE)
    }

    /// The stream for a notification of the server. The standalone one keeps it for a client that
    /// does not listen yet.
    pub(super) fn stream_of_notification(&self, channel: Channel) -> StreamId {
        self.stream_of_channel(channel).unwrap_or(StreamId::STANDALONE)
    }

    /// The stream of the call whose channel it is, while that call runs and can take events.
    fn stream_of_channel(&self, channel: Channel) -> Option<StreamId> {
        let call = self.ledger.get(channel.call()?).filter(|call| call.phase.is_in_flight())?;
        call.stream
    }

    fn only_running_stream(&self) -> Option<StreamId> {
        let mut streams = self.ledger.running().map(|call| call.stream);
        match (streams.next(), streams.next()) {
            (Some(stream), None) => stream,
            _ => None,
        }
    }

    fn is_standalone_attached(&self) -> bool {
        self.streams.get(&StreamId::STANDALONE).is_some_and(|stream| stream.connection.is_some())
    }

    /// Bytes came on a channel.
    pub(super) fn hear(&mut self, channel: Channel, now_ms: u64) {
        if let Some(call) = channel.call().and_then(|id| self.ledger.get_mut(id)) {
            call.heard_ms = now_ms;
        }
    }
}
