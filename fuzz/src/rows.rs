//! Rows of a session as they stand in the file, after somebody changed them: they are read or
//! refused, written they are read again, and a session that starts from them goes on. If they do
//! not contradict each other, its invariants hold from then on, whatever comes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::{Effect, Output};
use rejoin_core::id::{CallId, ConnectionId, Seq, digest};
use rejoin_core::input::{Get, GetCursor, Input, Post, Request, WireEvent};
use rejoin_core::ledger::Call;
use rejoin_core::session::{Session, SessionRow, SessionStart, Stored, Tail, read_row};
use rejoin_core::settings::Settings;
use rejoin_core::stream::{Stream, StreamState};
use rejoin_core::token::DedupRecord;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::support::{call, parse};

/// Ends a row of the input.
const ROW_END: u8 = 0x1E;
const NOW_MS: u64 = 1_000_000;
/// Deadlines that are let come.
const DEADLINES_MAX: usize = 200;

/// The input is rows: the session's own, and then those of its calls and streams in any order.
pub fn run(data: &[u8]) {
    let mut rows = data.split(|byte| *byte == ROW_END);
    let own = rows.next().unwrap_or_default();
    let _record = read::<DedupRecord>(own);
    let Some(row) = read::<SessionRow>(own) else { return };
    let (mut calls, mut streams) = (BTreeMap::new(), BTreeMap::new());
    for text in rows {
        if let Some(call) = read::<Call>(text) {
            calls.insert(call.id, call);
        } else if let Some(stream) = read::<Stream>(text) {
            streams.insert(stream.id, stream);
        }
    }
    let tail = |stream: &Stream| {
        let (produced, bytes) = (stream.cursors.produced, 100);
        Tail { stream: stream.id, produced, bytes, response_bytes: 40 }
    };
    let tails: Vec<_> = streams.values().map(tail).collect();
    let last_seq = tails.iter().map(|tail| tail.produced).max().unwrap_or(Seq::ORIGIN);
    let (calls, streams) = (calls.into_values().collect(), streams.into_values().collect());
    start(Stored { row, calls, streams, tails, last_seq });
}

/// A row, if it is one; and then it is the same after it was written.
fn read<T: DeserializeOwned + Serialize + Debug>(text: &[u8]) -> Option<T> {
    let row: T = read_row(text).ok()?;
    let written = serde_json::to_vec(&row).expect("a row can be written");
    let again: T = read_row(&written).expect("what was written can be read");
    assert_eq!(format!("{row:?}"), format!("{again:?}"));
    Some(row)
}

/// A session starts from what is stored, and is used.
fn start(stored: Stored) {
    let row = &stored.row;
    let start = SessionStart {
        session: digest(b"session"),
        ledger_epoch: 1,
        call_base: row.reserved.call,
        epoch: row.epoch,
        asked: row.asked.clone(),
        agreed: row.agreed.clone(),
        origin: row.origin.clone(),
        continuation: row.continuation.clone(),
        settings: Arc::new(Settings::default()),
    };
    // The standalone stream has one state for ever, which no check looks at.
    let is_like = |stream: &Stream| {
        !stream.is_standalone() || stream.state == StreamState::Live && stream.calls.is_empty()
    };
    let is_possible = stored.streams.iter().all(is_like);
    let streams: Vec<_> = stored.streams.iter().map(|stream| stream.id).collect();
    let calls: Vec<_> = stored.calls.iter().map(|call| call.id).collect();
    let (mut session, first) = Session::restart(start, stored, NOW_MS);
    let mut now_ms = NOW_MS;
    first.into_iter().for_each(|input| handle(&mut session, input, now_ms));
    // Rows that contradict each other are nobody's: each by itself is read, and none is refused.
    let is_sound = is_possible && session.check().is_ok();
    let feed = |session: &mut Session, input: Input, now_ms: u64| {
        handle(session, input, now_ms);
        if is_sound {
            assert_eq!(session.check(), Ok(()));
        }
    };
    let epoch = session.start().epoch;
    for (number, stream) in (1..).zip(streams) {
        let cursor = GetCursor::At(rejoin_core::id::EventId { epoch, stream, seq: Seq::ORIGIN });
        let connection = ConnectionId(number);
        feed(&mut session, Input::Get(Get { connection, observed: true, cursor }), now_ms);
    }
    let message = parse(&call("1", "tool", "{}"));
    let request = Request { message, token: None, record: None, scope: None };
    let (connection, body) = (ConnectionId(1_000), digest(b"body"));
    let requests = vec![request];
    let post = Post { connection, observed: true, requests, batch: false, body };
    feed(&mut session, Input::Post(post), now_ms);
    feed(&mut session, Input::Wire(connection, WireEvent::HeadersAcknowledged), now_ms);
    calls.into_iter().for_each(|call: CallId| feed(&mut session, Input::Release(call), now_ms));
    for _ in 0..DEADLINES_MAX {
        let Some(next_ms) = session.poll_timeout() else { return };
        now_ms = now_ms.max(next_ms);
        feed(&mut session, Input::Tick, now_ms);
    }
}

fn handle(session: &mut Session, input: Input, now_ms: u64) {
    let mut out = Output::default();
    session.handle(input, now_ms, &mut out);
    for effect in out.effects {
        if let Effect::Load { connection, .. } = effect {
            let payload = Some(Bytes::from_static(b"{}"));
            handle(session, Input::Loaded { connection, payload }, now_ms);
        }
    }
}
