//! Streams and their states (design section 3).

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cursor::Cursors;
use crate::id::{CallId, ConnectionId, Seq, StreamId};
use crate::session::UpstreamCursor;

/// State of a call stream: exactly one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StreamState {
    /// Its POST waits, with headers out; nothing was claimed.
    Held,
    /// A connection is attached, the final event was not handed over.
    Live,
    /// The final event was handed over; gates nothing, its repeats wait.
    Ending,
    /// It lost its connection while live.
    Owed,
    /// Owed, and not resumed within the grace: holds nothing, stays resumable.
    Abandoned,
    /// The peer's kernel acknowledged every byte, no reset was seen.
    Presumed,
    /// A reset followed the end, or the end was never acknowledged. Gates nothing.
    Doubtful,
    /// The client confirmed the final event.
    Proved,
    /// Nobody is owed it any more.
    Released(Release),
}

/// Why a stream was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Release {
    /// Another POST collected its call.
    Collected,
    /// A newer idempotent repeat took its place.
    Superseded,
    /// Its call was cancelled.
    Cancelled,
    /// Its POST was refused, withdrawn, or freed before a byte went upstream.
    NotRun,
    /// An operator released it.
    ByHand,
    /// Its time is over.
    Expired,
}

impl StreamState {
    /// True if a connection carries it (`live` or `ending`).
    pub fn is_attached(self) -> bool {
        matches!(self, Self::Live | Self::Ending)
    }

    /// True if its answer may be missing at the client: owed, abandoned or doubtful.
    pub fn is_unsettled(self) -> bool {
        matches!(self, Self::Owed | Self::Abandoned | Self::Doubtful)
    }

    /// True if nobody is owed it any more.
    pub fn is_released(self) -> bool {
        matches!(self, Self::Released(_))
    }

    /// Its name in logs, tables and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Live => "live",
            Self::Ending => "ending",
            Self::Owed => "owed",
            Self::Abandoned => "abandoned",
            Self::Presumed => "presumed",
            Self::Doubtful => "doubtful",
            Self::Proved => "proved",
            Self::Released(_) => "released",
        }
    }
}

/// One stream of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// Its number.
    pub id: StreamId,
    /// Its calls; more than one only for a batch, none for the standalone stream.
    pub calls: Vec<CallId>,
    /// Raw JSON-RPC ids of the requests that it answers, as they were when it took them: a call may
    /// move to a newer request, and whoever resumes this stream waits for the id that it sent.
    #[serde(default)]
    pub request_ids: Vec<Bytes>,
    /// False for requests that are never gated: losing its connection owes nothing.
    pub owes: bool,
    /// State; meaningless for the standalone stream.
    pub state: StreamState,
    /// How far it got.
    pub cursors: Cursors,
    /// Last event that this connection or, without one, the last one was handed.
    #[serde(default)]
    pub taken: Seq,
    /// The connection that carries it.
    pub connection: Option<Connection>,
    /// True once it was dropped or resumed: it has no twins (design section 2).
    pub scarred: bool,
    /// When it was opened.
    pub opened_ms: u64,
    /// When its final event was handed over.
    pub ended_ms: Option<u64>,
    /// When it became presumed, proved, doubtful or released.
    pub settled_ms: Option<u64>,
    /// The event it ends with, once that is in the log.
    pub last: Option<Seq>,
    /// True while a reset would still make it doubtful: no FIN, no next request since the end.
    pub reset_may_come: bool,
    /// Since when it has no connection.
    pub detached_since_ms: Option<u64>,
    /// Detached time before that, since `acked` last moved.
    pub detached_before_ms: u64,
    /// Bytes of its events in the log.
    pub bytes: u64,
    /// Those of them that are responses; they outlive the rest.
    pub response_bytes: u64,
    /// The rest of them, in pieces that go together when the log is full; oldest first.
    #[serde(default)]
    pub segments: VecDeque<Segment>,
    /// When its state ends by itself.
    #[serde(skip)]
    pub deadline_ms: Option<u64>,
    /// Events up to this one are no longer in the log, but for responses.
    pub evicted: Seq,
    /// True if responses were dropped too.
    pub emptied: bool,
    /// Of the standalone stream: where the server's own stands. `None`: it is read anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_cursor: Option<UpstreamCursor>,
}

/// A run of a stream's progress: all its events but responses, up to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its last event.
    pub through: Seq,
    /// Bytes of its events.
    pub bytes: u64,
}

/// The connection that carries a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The exchange.
    pub id: ConnectionId,
    /// True if its socket can be watched.
    pub observed: bool,
}

impl Stream {
    /// A new stream.
    pub fn new(id: StreamId, state: StreamState, now_ms: u64) -> Self {
        Self {
            id,
            calls: Vec::new(),
            request_ids: Vec::new(),
            owes: true,
            state,
            cursors: Cursors::default(),
            taken: Seq::ORIGIN,
            connection: None,
            scarred: false,
            opened_ms: now_ms,
            ended_ms: None,
            settled_ms: None,
            last: None,
            reset_may_come: false,
            detached_since_ms: None,
            detached_before_ms: 0,
            bytes: 0,
            response_bytes: 0,
            segments: VecDeque::new(),
            deadline_ms: None,
            evicted: Seq::ORIGIN,
            emptied: false,
            upstream_cursor: None,
        }
    }

    /// True if this is the session's standalone stream.
    pub fn is_standalone(&self) -> bool {
        self.id == StreamId::STANDALONE
    }

    /// Its connection was handed everything up to an event.
    pub fn take(&mut self, sent: Seq) {
        self.cursors.send(sent);
        self.taken = self.taken.max(sent.min(self.cursors.produced));
    }

    /// Bytes of its events in the log but for responses.
    pub fn progress_bytes(&self) -> u64 {
        self.bytes - self.response_bytes
    }

    /// Counts an event of progress: to the newest segment, or a new one if that has its fill.
    pub fn extend_segments(&mut self, seq: Seq, bytes: u64, segment_bytes_max: u64) {
        match self.segments.back_mut() {
            Some(segment) if segment.bytes + bytes <= segment_bytes_max => {
                *segment = Segment { through: seq, bytes: segment.bytes + bytes };
            }
            _ => self.segments.push_back(Segment { through: seq, bytes }),
        }
    }

    /// True if its final event was confirmed by the client.
    pub fn is_proved(&self) -> bool {
        self.last.is_some_and(|last| self.cursors.acked >= last)
    }

    /// Time since it ended: since its final event was handed over, or acknowledged if that was
    /// later. What lay in a full connection until then could not be read before.
    pub fn since_end_ms(&self, now_ms: u64) -> Option<u64> {
        let ended_ms = self.ended_ms?;
        let presumed_ms = self.settled_ms.filter(|_| self.state == StreamState::Presumed);
        Some(now_ms.saturating_sub(presumed_ms.unwrap_or(ended_ms).max(ended_ms)))
    }

    /// Detached time since `acked` last moved.
    pub fn detached_ms(&self, now_ms: u64) -> u64 {
        let current = self.detached_since_ms.map_or(0, |since| now_ms.saturating_sub(since));
        self.detached_before_ms + current
    }
}
