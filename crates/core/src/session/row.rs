//! What of a session is not in its calls, streams and events, as the store keeps it.

use bytes::Bytes;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::continuation::{Continuation, OpenRequest};
use super::{Session, SessionStart};
use crate::effect::Output;
use crate::id::{CallId, Digest32, Epoch, Seq, StreamId};
use crate::revision::Revision;
use crate::tool::Tools;

/// Numbers that one write reserves: so many are given out before the row is written again.
const BLOCK: u32 = 256;
/// As [`BLOCK`], for events: they are many.
const EVENTS_BLOCK: u64 = 4_096;

/// Numbers of rows stay below this: neither times nor what is counted come near it, and sums of
/// two of them fit.
const NUMBER_MAX: u64 = 1 << 62;

/// Reads a row as a store keeps it: of a session, a call, a stream.
///
/// # Errors
/// If it is no such row, or has a number that none was ever written with: it is damaged.
pub fn read_row<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    if has_numbers_beyond(&serde_json::from_slice(json)?) {
        return Err(serde_json::Error::custom("a number in it is larger than any can be"));
    }
    serde_json::from_slice(json)
}

fn has_numbers_beyond(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64().is_none_or(|number| number >= NUMBER_MAX),
        Value::Array(values) => values.iter().any(has_numbers_beyond),
        Value::Object(members) => members.values().any(has_numbers_beyond),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// One row for each session: written when it is made, and whenever something of it changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionRow {
    /// The life of its log.
    pub epoch: Epoch,
    /// What its gateway needs to serve it again; opaque here.
    #[serde(with = "crate::text")]
    pub origin: Bytes,
    /// The revision that the client asked for.
    pub asked: Revision,
    /// The revision that was agreed.
    pub agreed: Revision,
    /// Numbers that may have been given out.
    pub reserved: Reserved,
    /// True if the client has ever resumed or confirmed anything.
    pub presented_cursor: bool,
    /// True once a stream was abandoned although no cursor was ever presented.
    pub never_resumes: bool,
    /// What is known of the server's tools.
    pub tools: Tools,
    /// `notifications/initialized`, as the client sent it.
    #[serde(with = "crate::text::option")]
    pub initialized: Option<Bytes>,
    /// Settings to restore in a server that is started again.
    #[serde(with = "crate::text::list")]
    pub restore: Vec<Bytes>,
    /// Params of calls that were forgotten although a repeat must not run, and until when
    /// (Unix ms).
    pub forgotten: Vec<(Digest32, u64)>,
    /// How its upstream goes on with it. `None`: it cannot, or the server was gone.
    #[serde(default)]
    pub continuation: Option<Continuation>,
    /// True if that server lost what it knew once, and no call was told yet (row 17).
    #[serde(default)]
    pub lost_untold: bool,
    /// Requests of that server that wait for an answer.
    #[serde(default)]
    pub open_requests: Vec<OpenRequest>,
    /// True once it is over: whatever is still there of it is to be removed.
    #[serde(default)]
    pub ended: bool,
}

/// The last number of each kind that may have been given out. A number is used only once a row
/// that covers it is durable, so that none is given out twice, whatever a power cut took: an event
/// id never names two events, and an answer never reaches a younger call (design section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Of its events.
    pub seq: Seq,
    /// Of its streams.
    pub stream: StreamId,
    /// Of its calls.
    pub call: CallId,
    /// Of the server's requests, as its client knows them.
    pub server_request: u64,
}

impl SessionStart {
    /// The row of a session that has just been started.
    pub fn row(&self) -> SessionRow {
        SessionRow {
            epoch: self.epoch,
            origin: self.origin.clone(),
            asked: self.asked.clone(),
            agreed: self.agreed.clone(),
            reserved: Reserved::after(Seq::ORIGIN, StreamId::STANDALONE, self.call_base, 0),
            presented_cursor: false,
            never_resumes: false,
            tools: Tools::default(),
            initialized: None,
            restore: Vec::new(),
            forgotten: Vec::new(),
            continuation: self.continuation.clone(),
            lost_untold: false,
            open_requests: Vec::new(),
            ended: false,
        }
    }
}

impl Reserved {
    /// A block of each kind beyond what was given out.
    pub(super) fn after(seq: Seq, stream: StreamId, call: CallId, server_request: u64) -> Self {
        Self {
            seq: Seq(seq.0.saturating_add(EVENTS_BLOCK)),
            stream: StreamId(stream.0.saturating_add(BLOCK)),
            call: CallId(call.0.saturating_add(BLOCK.into())),
            server_request: server_request.saturating_add(BLOCK.into()),
        }
    }
}

impl Session {
    /// Its row as it is now.
    pub fn row(&self) -> SessionRow {
        SessionRow {
            epoch: self.start.epoch,
            origin: self.start.origin.clone(),
            asked: self.start.asked.clone(),
            agreed: self.start.agreed.clone(),
            reserved: self.reserved,
            presented_cursor: self.presented_cursor,
            never_resumes: self.never_resumes,
            tools: self.tools.clone(),
            initialized: self.upstream.initialized.clone(),
            restore: self.upstream.settings.kept().cloned().collect(),
            forgotten: self.ledger.all_forgotten().collect(),
            continuation: self.upstream.continuation.clone(),
            lost_untold: self.upstream.lost_untold,
            open_requests: self.open_requests(),
            ended: self.ended,
        }
    }

    /// Puts its row into the batch, if something of it changed or a reserved number ran out.
    pub(super) fn write_session_row(&mut self, out: &mut Output) {
        let given = (self.last_seq, self.last_stream, self.ledger.last_id());
        let reserved = self.reserved;
        let is_beyond = given.0 > reserved.seq
            || given.1 > reserved.stream
            || given.2 > reserved.call
            || self.last_server_request > reserved.server_request;
        if is_beyond {
            let (seq, stream, call) = given;
            self.reserved = Reserved::after(seq, stream, call, self.last_server_request);
            out.batch.durable = true;
        }
        if is_beyond || std::mem::take(&mut self.row_changed) {
            self.row_changed = false;
            out.batch.session = Some(Box::new(self.row()));
        }
    }
}
