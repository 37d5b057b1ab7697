//! From events to the bytes of one frame.

use bytes::{Bytes, BytesMut};
use rejoin_core::effect::{Event, gap_comment};
use rejoin_core::id::{Epoch, EventId, Seq, StreamId};
use rejoin_core::sse::{self, EventWriter};

use crate::exchange::{BodyEnd, Milestones};

/// One frame, ready to be handed over.
#[derive(Debug)]
pub(super) struct Encoded {
    /// Empty only if the body ends without a further byte.
    pub(super) bytes: Bytes,
    /// The stream's last event in this frame or an earlier one.
    pub(super) sent: Seq,
    pub(super) milestones: Milestones,
    pub(super) end: Option<BodyEnd>,
}

/// An event larger than a page, of which a part was written.
pub(super) struct Unfinished {
    pub(super) seq: Seq,
    pub(super) last: bool,
    /// Payload bytes that were written, and that were not.
    pub(super) written_bytes: usize,
    rest_bytes: usize,
    writer: EventWriter,
}

/// A frame that is being written.
pub(super) struct FrameWriter {
    epoch: Epoch,
    stream: StreamId,
    bytes: BytesMut,
    milestones: Milestones,
}

impl FrameWriter {
    pub(super) fn new(epoch: Epoch, stream: StreamId) -> Self {
        Self { epoch, stream, bytes: BytesMut::new(), milestones: Milestones::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn comment(&mut self, text: &str) {
        sse::write_comment(&mut self.bytes, text);
    }

    pub(super) fn probe(&mut self) {
        self.comment("probe");
        self.milestones.probe = true;
    }

    pub(super) fn prime(&mut self, id: EventId, retry_ms: u64) {
        sse::write_retry_event(&mut self.bytes, Some(&id.to_string()), retry_ms);
    }

    /// Sets the reconnection time and nothing else: no id, so that the cursor stays.
    pub(super) fn retry(&mut self, retry_ms: u64) {
        sse::write_retry_event(&mut self.bytes, None, retry_ms);
    }

    pub(super) fn event(&mut self, event: &Event) {
        self.message(event.seq, &event.payload);
    }

    /// The message of an event alone.
    pub(super) fn bare(&mut self, event: &Event) {
        self.bytes.extend_from_slice(&event.payload);
    }

    /// Begins an event of which `rest_bytes` of the payload are not there yet.
    pub(super) fn begin(&mut self, event: &Event, rest_bytes: usize) -> Unfinished {
        let id = self.id(event.seq);
        let mut writer = EventWriter::begin(&mut self.bytes, Some(&id));
        writer.data(&mut self.bytes, &event.payload);
        let (seq, last, written_bytes) = (event.seq, event.last, event.payload.len());
        Unfinished { seq, last, written_bytes, rest_bytes, writer }
    }

    /// Goes on with an event; gives it back if it is not finished with that.
    pub(super) fn go_on(&mut self, mut event: Unfinished, part: &[u8]) -> Option<Unfinished> {
        event.writer.data(&mut self.bytes, part);
        event.written_bytes += part.len();
        event.rest_bytes = event.rest_bytes.saturating_sub(part.len());
        if event.rest_bytes > 0 {
            return Some(event);
        }
        event.writer.end(&mut self.bytes);
        None
    }

    /// Leaves an event unfinished, so that its client drops it and asks for it again.
    pub(super) fn break_off(&mut self, event: Unfinished, retry_ms: u64) {
        event.writer.break_off(&mut self.bytes, retry_ms);
    }

    pub(super) fn message(&mut self, seq: Seq, payload: &[u8]) {
        let id = self.id(seq);
        sse::write_event(&mut self.bytes, Some(&id), payload);
    }

    pub(super) fn gap(&mut self, through: Seq) {
        self.comment(&gap_comment(self.event_id(through)));
    }

    pub(super) fn replay_end(&mut self, until: Seq) {
        let text = format!("replay-end {}", self.id(until));
        self.comment(&text);
        self.milestones.replay = true;
    }

    pub(super) fn finish(self, sent: Seq, end: Option<BodyEnd>) -> Encoded {
        Encoded { bytes: self.bytes.freeze(), sent, milestones: self.milestones, end }
    }

    fn id(&self, seq: Seq) -> String {
        self.event_id(seq).to_string()
    }

    fn event_id(&self, seq: Seq) -> EventId {
        EventId { epoch: self.epoch, stream: self.stream, seq }
    }
}
