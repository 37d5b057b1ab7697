//! A session on a virtual clock, with a log, a client and a server that the test plays itself.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test uses its own part")]

pub mod conversation;
pub mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::{Attach, Command, DedupWrite, Effect, Event, EventKind, Eviction, Note};
use rejoin_core::effect::{Output, ToUpstream};
use rejoin_core::id::{CallId, ConnectionId, Epoch, EventId, Seq, StreamId, digest};
use rejoin_core::input::{
    Channel, FromUpstream, Get, GetCursor, Input, Post, Request, Scope, WireEvent,
};
use rejoin_core::message::{self, Incoming, Message};
use rejoin_core::rejection::Rejection;
use rejoin_core::revision::Revision;
use rejoin_core::session::{Continuation, Session, SessionStart};
use rejoin_core::settings::{RepeatScope, Settings};
use rejoin_core::token::{DedupKey, DedupRecord, Token};
use rows::Rows;

/// More reviews or deadlines than any test has at one moment.
const REST_MAX: u32 = 2_000;

/// One session under test.
pub struct Rig {
    pub session: Session,
    pub now_ms: u64,
    /// Every event that was ever appended.
    pub log: BTreeMap<StreamId, Vec<Event>>,
    /// What a store would hold no longer.
    pub evictions: Vec<Eviction>,
    pub tokens: BTreeMap<DedupKey, DedupRecord>,
    pub rows: Rows,
    pub effects: Vec<Effect>,
    /// True if the last output had to be durable before anything of it was told.
    pub durable: bool,
    /// True if the sockets of POSTs and GETs can be watched.
    pub observed: bool,
    /// True if requests are looked up in all sessions of the principal.
    pub scoped: bool,
    next_connection: u64,
}

/// A session log that keeps nothing beyond its quota.
pub fn cap_log(settings: &mut Settings, bytes_max: u64) {
    settings.limits.session_log_bytes_max = bytes_max;
    settings.limits.session_log_hard_bytes_max = bytes_max;
}

/// Parses one message.
pub fn parse(text: &str) -> Message {
    match message::parse(Bytes::copy_from_slice(text.as_bytes()), 64) {
        Ok(Incoming::One(message)) => message,
        other => panic!("not one message: {other:?}"),
    }
}

/// A `tools/call` message.
pub fn call(id: &str, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":{id}}}}}}}"#
    )
}

/// The answer of upstream to a call.
pub fn answer_to(call: CallId) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"content":[],"n":{call}}}}}"#)
}

/// Progress of a call, as upstream reports it.
pub fn progress_of(call: CallId, progress: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{call},"progress":{progress}}}}}"#
    )
}

/// The rows after these writes, as a store does it: in order, all or none. A row of anyone but
/// `expected` refuses them and is returned, with the call that was to own it; no row refuses
/// nothing.
pub fn written(
    rows: &BTreeMap<DedupKey, DedupRecord>,
    writes: &[DedupWrite],
) -> Result<BTreeMap<DedupKey, DedupRecord>, Box<(CallId, DedupRecord)>> {
    let mut rows = rows.clone();
    for write in writes {
        match rows.get(&write.key) {
            Some(row) if write.expected != Some(row.owner) => {
                return Err(Box::new((write.record.owner.call, row.clone())));
            }
            _ if write.record.is_owned() => rows.insert(write.key, write.record.clone()),
            _ => rows.remove(&write.key),
        };
    }
    Ok(rows)
}

/// Where a tokenless call is looked up in all sessions of the one principal of a test.
pub fn scope_key(message: &Message) -> DedupKey {
    scope_key_of(&message.canonical_params_hash())
}

/// The same, by the hash of its method and params.
pub fn scope_key_of(params: &[u8; 32]) -> DedupKey {
    DedupKey(digest(&[&b"scope"[..], params].concat()))
}

impl Rig {
    pub fn new(settings: Settings) -> Self {
        Self::named("session", settings, 1_000_000)
    }

    /// A session of its own id that starts at a time.
    pub fn named(name: &str, settings: Settings, now_ms: u64) -> Self {
        let scoped = settings.repeat_scope == RepeatScope::Principal;
        let start = SessionStart {
            session: digest(name.as_bytes()),
            ledger_epoch: 1,
            call_base: CallId(0),
            epoch: Epoch(1),
            asked: Revision::new("2025-11-25"),
            agreed: Revision::new("2025-11-25"),
            origin: Bytes::new(),
            continuation: None,
            settings: Arc::new(settings),
        };
        let rows = Rows::new(&start);
        Self {
            session: Session::new(start, now_ms),
            now_ms,
            log: BTreeMap::new(),
            evictions: Vec::new(),
            tokens: BTreeMap::new(),
            rows,
            effects: Vec::new(),
            durable: false,
            observed: true,
            scoped,
            next_connection: 1,
        }
    }

    pub fn plain() -> Self {
        Self::new(Settings::default())
    }

    /// A session whose client asked for a revision.
    pub fn asking(revision: &str) -> Self {
        let mut rig = Self::plain();
        let start = SessionStart { asked: Revision::new(revision), ..rig.session.start().clone() };
        rig.rows = Rows::new(&start);
        rig.session = Session::new(start, rig.now_ms);
        rig
    }

    /// A session whose upstream can go on with it after a restart.
    pub fn continued(settings: Settings) -> Self {
        let mut rig = Self::new(settings);
        let continuation = Some(Continuation::new("server session 1"));
        let start = SessionStart { continuation, ..rig.session.start().clone() };
        rig.rows = Rows::new(&start);
        rig.session = Session::new(start, rig.now_ms);
        rig
    }

    /// Feeds one input, commits, answers loads, and runs reviews that are due at once.
    pub fn feed(&mut self, input: Input) {
        self.step(input);
        for _ in 0..REST_MAX {
            if self.session.poll_timeout() != Some(0) {
                return;
            }
            self.step(Input::Tick);
        }
        panic!("it never comes to rest");
    }

    fn step(&mut self, input: Input) {
        let mut out = Output::default();
        self.session.handle(input, self.now_ms, &mut out);
        match written(&self.tokens, &out.batch.dedup) {
            Ok(tokens) => self.tokens = tokens,
            Err(taken) => {
                let (call, record) = *taken;
                return self.step(Input::TokenTaken { call, record });
            }
        }
        self.rows.apply(&out.batch);
        self.durable = out.batch.durable;
        // It costs time by streams; those of a few tests are many.
        if self.log.len() < 64 {
            self.rows.assert_current(&self.session, &self.session.view());
        }
        for event in out.batch.events {
            let events = self.log.entry(event.stream).or_default();
            let previous = events.last().map_or(Seq::ORIGIN, |event| event.seq);
            assert_eq!(event.previous, previous, "a hole in stream {}", event.stream);
            events.push(event);
        }
        self.evictions.extend(out.batch.evictions);
        for effect in out.effects {
            if let Effect::Load { connection, stream, seq } = effect {
                let event = self.kept(stream).find(|event| event.seq == seq);
                let payload = event.map(|event| event.payload.clone());
                self.step(Input::Loaded { connection, payload });
            } else {
                self.effects.push(effect);
            }
        }
    }

    /// The events of a stream that a store would still hold.
    pub fn kept(&self, stream: StreamId) -> impl Iterator<Item = &Event> {
        let is_gone = move |event: &Event| {
            self.evictions.iter().any(|eviction| {
                let covers = eviction.stream == stream && event.seq <= eviction.through;
                covers && (eviction.responses_too || event.kind != EventKind::Response)
            })
        };
        self.log.get(&stream).into_iter().flatten().filter(move |event| !is_gone(event))
    }

    /// Lets time pass, firing every deadline on the way.
    pub fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        let mut late = 0;
        while let Some(at_ms) = self.session.poll_timeout().filter(|&at_ms| at_ms <= until_ms) {
            late = if at_ms > self.now_ms { 0 } else { late + 1 };
            assert!(late < REST_MAX, "a deadline is never over");
            self.now_ms = self.now_ms.max(at_ms);
            self.feed(Input::Tick);
        }
        self.now_ms = until_ms;
    }

    pub fn connection(&mut self) -> ConnectionId {
        self.next_connection += 1;
        ConnectionId(self.next_connection)
    }

    pub fn post(&mut self, body: &str) -> ConnectionId {
        self.post_with(&[body], None)
    }

    pub fn post_token(&mut self, body: &str, token: &str) -> ConnectionId {
        let token = Token { key: DedupKey(digest(token.as_bytes())), attempt: 1, epoch: None };
        self.post_with(&[body], Some(token))
    }

    pub fn post_with(&mut self, bodies: &[&str], token: Option<Token>) -> ConnectionId {
        let connection = self.connection();
        let record = token.and_then(|token| self.tokens.get(&token.key).cloned());
        let requests = bodies.iter().map(|body| {
            let message = parse(body);
            let scope = self.scope(&message).filter(|_| token.is_none());
            Request { message, token, record: record.clone(), scope }
        });
        let requests = requests.collect();
        let batch = bodies.len() > 1;
        let body = digest(bodies.concat().as_bytes());
        let observed = self.observed;
        self.feed(Input::Post(Post { connection, observed, requests, batch, body }));
        connection
    }

    /// What the gateway looks up for a tokenless request.
    pub fn scope(&self, message: &Message) -> Option<Scope> {
        let key = scope_key(message);
        self.scoped.then(|| Scope { key, record: self.tokens.get(&key).cloned() })
    }

    pub fn get(&mut self, cursor: Option<EventId>) -> ConnectionId {
        let connection = self.connection();
        let cursor = cursor.map_or(GetCursor::None, GetCursor::At);
        self.feed(Input::Get(Get { connection, observed: self.observed, cursor }));
        connection
    }

    pub fn notify(&mut self, text: &str) {
        self.feed(Input::Notify(parse(text)));
    }

    pub fn wire(&mut self, connection: ConnectionId, event: WireEvent) {
        self.feed(Input::Wire(connection, event));
    }

    pub fn upstream(&mut self, text: &str) {
        let event =
            FromUpstream::Message { channel: Channel::Unknown, message: parse(text), cursor: None };
        self.feed(Input::Upstream(event));
    }

    /// Upstream says something on the channel of a call, which then stands there.
    pub fn say(&mut self, call: CallId, text: &str, cursor: &str) {
        let (channel, message) = (Channel::Call(call), parse(text));
        let cursor = Some(cursor.into());
        self.feed(Input::Upstream(FromUpstream::Message { channel, message, cursor }));
    }

    /// Upstream answers a call.
    pub fn answer(&mut self, call: CallId) {
        self.upstream(&answer_to(call));
    }

    /// Upstream reports progress of a call.
    pub fn progress(&mut self, call: CallId, progress: u64) {
        self.upstream(&progress_of(call, progress));
    }

    /// The body of a connection delivers everything, and the peer's kernel acknowledges it.
    pub fn deliver(&mut self, connection: ConnectionId) {
        self.wire(connection, WireEvent::FinalHanded);
        self.wire(connection, WireEvent::FinalAcknowledged);
    }

    /// The connection is lost after it carried events up to `sent`.
    pub fn lose(&mut self, connection: ConnectionId, sent: Seq) {
        self.wire(connection, WireEvent::Lost { sent, acknowledged: false });
    }

    /// Calls that went upstream, in order.
    pub fn executed(&self) -> Vec<CallId> {
        let calls = self.effects.iter().filter_map(|effect| match effect {
            Effect::Upstream(ToUpstream::Call { call, .. }) => Some(*call),
            _ => None,
        });
        calls.collect()
    }

    /// The stream opened on a connection.
    pub fn opened(&self, connection: ConnectionId) -> Option<&Attach> {
        self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Open(attach) if attach.connection == connection => Some(attach),
            _ => None,
        })
    }

    /// The connection that carried a stream last.
    pub fn opened_on(&self, stream: StreamId) -> ConnectionId {
        let carried = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Open(attach) if attach.stream == stream => Some(attach.connection),
            _ => None,
        });
        carried.expect("it was opened")
    }

    /// The refusal of a POST.
    pub fn refused(&self, connection: ConnectionId) -> Option<&Rejection> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Refuse { connection: id, rejections, .. } if *id == connection => {
                rejections.first()
            }
            _ => None,
        })
    }

    /// The JSON answer of a POST.
    pub fn replied(&self, connection: ConnectionId) -> Option<String> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Reply { connection: id, body } if *id == connection => {
                Some(String::from_utf8_lossy(body).into_owned())
            }
            _ => None,
        })
    }

    /// True if a GET was answered with 405.
    pub fn not_resumable(&self, connection: ConnectionId) -> bool {
        let found = |e: &Effect| matches!(e, Effect::NotResumable(id) if *id == connection);
        self.effects.iter().any(found)
    }

    /// Commands to a connection.
    pub fn commands(&self, connection: ConnectionId) -> Vec<Command> {
        let commands = self.effects.iter().filter_map(|effect| match effect {
            Effect::Command(id, command) if *id == connection => Some(*command),
            _ => None,
        });
        commands.collect()
    }

    /// The process ends, and another one takes the session from the store.
    pub fn restart(&mut self) {
        let start = self.session.start().clone();
        let (session, first) = Session::restart(start, self.rows.stored(), self.now_ms);
        self.session = session;
        first.into_iter().for_each(|input| self.feed(input));
    }

    /// Rows that decided, in order.
    pub fn decided(&self) -> Vec<(ConnectionId, u8, &'static str)> {
        let rows = self.effects.iter().filter_map(|effect| match effect {
            Effect::Note(Note::Decided { connection, row, verdict, .. }) => {
                Some((*connection, *row, *verdict))
            }
            _ => None,
        });
        rows.collect()
    }

    /// What the log and the metrics learned.
    pub fn notes(&self) -> impl Iterator<Item = &Note> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Note(note) => Some(note),
            _ => None,
        })
    }

    /// Payloads of a stream's events after a cursor, as text.
    pub fn events_after(&self, stream: StreamId, after: Seq) -> Vec<(u64, String)> {
        let events = self.log.get(&stream).into_iter().flatten();
        events
            .filter(|event| event.seq > after)
            .map(|event| (event.seq.0, String::from_utf8_lossy(&event.payload).into_owned()))
            .collect()
    }

    /// State of a stream, by name.
    pub fn state(&self, stream: StreamId) -> &'static str {
        let view = self.session.view();
        view.streams.iter().find(|view| view.id == stream).map_or("gone", |view| view.state)
    }

    pub fn event_id(&self, stream: StreamId, seq: u64) -> EventId {
        EventId { epoch: Epoch(1), stream, seq: Seq(seq) }
    }
}
