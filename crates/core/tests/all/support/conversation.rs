//! Conversations: whatever clients, wires and servers do, in whatever order, the invariants of the
//! session hold after every input. Who makes them up is another matter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::{Effect, Event, Output, ToUpstream};
use rejoin_core::id::{CallId, ConnectionId, Epoch, EventId, Seq, StreamId, digest};
use rejoin_core::input::{
    Channel, FromUpstream, Get, GetCursor, Input, Post, Request, Scope, WireEvent,
};
use rejoin_core::message::Message;
use rejoin_core::revision::Revision;
use rejoin_core::session::{CallView, Continuation, Session, SessionStart, SessionView};
use rejoin_core::settings::{Delivery, OnRepeat, RepeatScope, Settings};
use rejoin_core::token::{DedupKey, DedupRecord, Outcome, Owner, Token};

use super::rows::Rows;
use super::{call, parse, scope_key, scope_key_of, written};

/// Another session of the same principal.
const ELSEWHERE: [u8; 32] = [9; 32];

/// One thing that happens. Small numbers say to whom: the nth of what there is, if there is one.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Post {
        tool: u8,
        id: u8,
        token: u8,
    },
    Batch {
        first: u8,
        second: u8,
    },
    Read {
        progress: bool,
    },
    Get {
        stream: u8,
        back: u8,
    },
    Standalone,
    Acknowledge {
        stream: u8,
        back: u8,
    },
    Wire {
        connection: u8,
        event: u8,
    },
    Deliver {
        connection: u8,
    },
    Answer {
        call: u8,
        error: bool,
    },
    Progress {
        call: u8,
        stands: bool,
    },
    Ask {
        call: u8,
    },
    Respond {
        number: u8,
    },
    Sent {
        call: u8,
    },
    NotSent {
        call: u8,
    },
    Lost {
        call: u8,
    },
    Closed,
    Reopened {
        continues: bool,
    },
    Cancel {
        id: u8,
    },
    Elsewhere {
        tool: u8,
        outcome: u8,
    },
    Room {
        bytes: u64,
    },
    Pass {
        ms: u32,
    },
    Restart,
    /// The client of a POST that has no answer yet leaves.
    Leave {
        post: u8,
    },
    /// Something about what is not there, or not there any more.
    Stray {
        what: u8,
        number: u64,
    },
}

/// What `Op::Room` may free, in bytes.
pub const ROOMS: [u64; 3] = [0, 300, u64::MAX];
/// How long `Op::Pass` may take.
pub const PASSES_MS: [u32; 9] = [1, 50, 300, 1_000, 2_500, 6_000, 11_000, 50_000, 700_000];

/// The settings of a conversation; `tool2` may run twice.
pub fn settings(
    on_repeat: OnRepeat,
    delivery: Delivery,
    repeat_scope: RepeatScope,
    strict: bool,
) -> Settings {
    let mut settings = Settings { on_repeat, delivery, repeat_scope, ..Settings::default() };
    settings.idempotent_tools.insert("tool2".to_owned());
    if strict {
        settings.limits.owed_grace_ms = None;
    }
    settings
}

/// What a request asks for: tool and token, of one call that went upstream.
#[derive(Clone, Debug)]
struct Ran {
    params: [u8; 32],
    token: Option<DedupKey>,
    repeatable: bool,
    /// Upstream never saw it, or refused it.
    freed: bool,
    /// When it ended, was abandoned, cancelled or lost, whichever came last.
    over_ms: u64,
    seen: (&'static str, String),
}

fn notification(name: &str, params: &str) -> Message {
    let method = format!("notifications/{name}");
    parse(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#))
}

struct World {
    session: Session,
    /// The session as it is after the last input: making it is the dearest part of a step.
    view: SessionView,
    settings: Settings,
    observed: bool,
    now_ms: u64,
    log: BTreeMap<StreamId, Vec<Event>>,
    tokens: BTreeMap<DedupKey, DedupRecord>,
    ran: BTreeMap<CallId, Ran>,
    /// Connections that carry or carried a stream.
    carried: BTreeMap<ConnectionId, StreamId>,
    closed: BTreeSet<ConnectionId>,
    /// Those whose final event was handed over.
    handed: BTreeSet<ConnectionId>,
    /// POSTs without answer, and when they came.
    unanswered: BTreeMap<ConnectionId, u64>,
    held: BTreeMap<ConnectionId, StreamId>,
    /// POSTs whose client left: nobody hears what they may still be told, once.
    left: BTreeSet<ConnectionId>,
    /// POSTs whose answer waits for the server, not for a stream.
    jsons: BTreeSet<ConnectionId>,
    last: u64,
    ended: bool,
    /// Calls that went on after the last restart.
    picked_up: Vec<CallId>,
    rows: Rows,
    /// Params that another session ran.
    elsewhere: BTreeSet<[u8; 32]>,
}

impl World {
    fn new(settings: Settings, observed: bool) -> Self {
        let start = SessionStart {
            session: digest(b"session"),
            ledger_epoch: 1,
            call_base: CallId(0),
            epoch: Epoch(1),
            asked: Revision::new("2025-11-25"),
            agreed: Revision::new("2025-11-25"),
            origin: Bytes::new(),
            continuation: Some(Continuation::new("go on")),
            settings: Arc::new(settings.clone()),
        };
        let rows = Rows::new(&start);
        let session = Session::new(start, 1_000_000);
        Self {
            view: session.view(),
            session,
            settings,
            observed,
            now_ms: 1_000_000,
            log: BTreeMap::new(),
            tokens: BTreeMap::new(),
            ran: BTreeMap::new(),
            carried: BTreeMap::new(),
            closed: BTreeSet::new(),
            handed: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            held: BTreeMap::new(),
            left: BTreeSet::new(),
            jsons: BTreeSet::new(),
            last: 0,
            ended: false,
            picked_up: Vec::new(),
            rows,
            elsewhere: BTreeSet::new(),
        }
    }

    fn feed(&mut self, input: Input) {
        self.step(input);
        for _ in 0..10_000 {
            if self.session.poll_timeout() != Some(0) {
                return;
            }
            self.step(Input::Tick);
        }
        panic!("a review that never ends");
    }

    fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        for _ in 0..100_000 {
            let Some(at_ms) = self.session.poll_timeout().filter(|&at_ms| at_ms <= until_ms) else {
                self.now_ms = until_ms;
                return;
            };
            let earlier = self.now_ms;
            self.now_ms = self.now_ms.max(at_ms);
            self.feed(Input::Tick);
            let next = self.session.poll_timeout();
            assert!(next.is_none_or(|at| at > self.now_ms), "no progress at {earlier}: {next:?}");
            self.check_answers();
        }
        panic!("a clock that never comes to {until_ms}");
    }

    fn step(&mut self, input: Input) {
        let before = self.protected();
        let mut out = Output::default();
        self.session.handle(input, self.now_ms, &mut out);
        if let Err(why) = self.session.check() {
            panic!("{why}");
        }
        self.view = self.session.view();
        match written(&self.tokens, &out.batch.dedup) {
            Ok(tokens) => self.tokens = tokens,
            Err(taken) => {
                let (call, record) = *taken;
                return self.step(Input::TokenTaken { call, record });
            }
        }
        self.rows.apply(&out.batch);
        self.rows.assert_current(&self.session, &self.view);
        for event in out.batch.events {
            let events = self.log.entry(event.stream).or_default();
            let previous = events.last().map_or(Seq::ORIGIN, |event| event.seq);
            assert_eq!(event.previous, previous, "a hole in stream {}", event.stream);
            let ended = events.iter().any(|event| event.last);
            assert!(!(ended && event.last), "stream {} ends twice", event.stream);
            events.push(event);
        }
        let mut loads = Vec::new();
        for effect in out.effects {
            self.see(effect, &before, &mut loads);
        }
        self.observe();
        self.check_rows();
        for (connection, stream, seq) in loads {
            let event = self.log[&stream].iter().find(|event| event.seq == seq);
            let payload = event.map(|event| event.payload.clone());
            self.step(Input::Loaded { connection, payload });
        }
    }

    fn see(
        &mut self,
        effect: Effect,
        before: &BTreeSet<[u8; 32]>,
        loads: &mut Vec<(ConnectionId, StreamId, Seq)>,
    ) {
        match effect {
            Effect::Open(attach) => {
                self.carried.insert(attach.connection, attach.stream);
                if attach.held {
                    self.held.insert(attach.connection, attach.stream);
                } else {
                    self.unanswered.remove(&attach.connection);
                }
            }
            Effect::Reply { connection, .. } | Effect::Refuse { connection, .. } => {
                let waited = self.unanswered.remove(&connection).is_some();
                assert!(waited || self.left.remove(&connection), "{connection} answered twice");
            }
            Effect::Load { connection, stream, seq } => loads.push((connection, stream, seq)),
            Effect::Upstream(ToUpstream::Call { call, message, .. }) => {
                let message = parse(&String::from_utf8_lossy(&message));
                let params = message.canonical_params_hash();
                let tool = message.tool_name().unwrap_or_default();
                let repeatable = tool.is_empty() || tool == "tool2";
                let session = self.session.start().session;
                let owner = Owner { session, call };
                let scope = scope_key(&message);
                let key =
                    self.tokens.iter().find(|(key, row)| row.owner == owner && **key != scope);
                let token = key.map(|(key, _)| *key);
                let again = self.ran.values().any(|ran| ran.token == token && !ran.freed);
                assert!(token.is_none() || repeatable || !again, "a token ran twice");
                let wrong = token.is_none() && !repeatable && before.contains(&params);
                assert!(!wrong, "call {call} repeats one that must not run again");
                let (freed, over_ms) = (false, self.now_ms);
                let seen = ("", String::new());
                let ran = Ran { params, token, repeatable, freed, over_ms, seen };
                self.ran.insert(call, ran);
            }
            Effect::Upstream(ToUpstream::Continue { calls, .. }) => {
                self.picked_up = calls.into_iter().map(|(call, _)| call).collect();
            }
            Effect::End => self.ended = true,
            _ => {}
        }
    }

    /// Params that no tokenless effectful request may run with now.
    fn protected(&self) -> BTreeSet<[u8; 32]> {
        let here = self.open_calls().into_iter().map(|ran| ran.params);
        let elsewhere = self.tokens.iter().filter(|(key, row)| {
            row.owner.session == ELSEWHERE
                && row.is_in_repeat_window(self.now_ms)
                && **key == scope_key_of(&row.params)
        });
        here.chain(elsewhere.map(|(_, row)| row.params)).collect()
    }

    /// What must not run again has a row that tells other sessions so. A row names one call: what
    /// another session ran after its window, and its client came back for, only its own knows.
    fn check_rows(&self) {
        let scoped = self.settings.repeat_scope == RepeatScope::Principal;
        let shared = |ran: &&&Ran| ran.token.is_none() && !self.elsewhere.contains(&ran.params);
        for ran in self.open_calls().iter().filter(|_| scoped).filter(shared) {
            let row = self.tokens.get(&scope_key_of(&ran.params));
            let told = row.is_some_and(|row| row.is_in_repeat_window(self.now_ms));
            assert!(told, "no other session knows of {ran:?}: {row:?}");
        }
    }

    /// A call of another session gets the row, if it is there for the taking.
    fn run_elsewhere(&mut self, tool: u8, outcome: u8) {
        let params = parse(&call("1", &format!("tool{tool}"), "{}")).canonical_params_hash();
        let key = scope_key_of(&params);
        let theirs = self.tokens.get(&key).filter(|row| row.is_in_repeat_window(self.now_ms));
        let scoped = self.settings.repeat_scope == RepeatScope::Principal;
        if !scoped || theirs.is_some_and(|row| row.owner.session != ELSEWHERE) {
            return;
        }
        let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.into();
        let outcome = match outcome {
            0 => Outcome::Running,
            1 => Outcome::Finished { response, ended_ms: self.now_ms },
            2 => Outcome::Cancelled,
            3 => Outcome::Unknown,
            _ => {
                self.tokens.remove(&key);
                return;
            }
        };
        let owner = Owner { session: ELSEWHERE, call: CallId(1) };
        let until_ms = self.now_ms + self.settings.limits.repeat_window_ms;
        let (result_expires_ms, expires_ms) = (until_ms, until_ms);
        let row = DedupRecord { owner, params, outcome, result_expires_ms, expires_ms };
        self.tokens.insert(key, row);
        self.elsewhere.insert(params);
    }

    fn open_calls(&self) -> Vec<&Ran> {
        let view = &self.view;
        let mut calls = Vec::new();
        for call in &view.calls {
            let Some(ran) = self.ran.get(&call.id).filter(|ran| !ran.freed) else { continue };
            let state = view.streams.iter().find(|stream| Some(stream.id) == call.stream);
            let (state, attached) = state.map_or(("", false), |s| (s.state, s.attached));
            let recent = self.now_ms < ran.over_ms + self.settings.limits.repeat_window_ms;
            let running = matches!(call.phase, "claimed" | "sent");
            let lost = matches!(call.phase, "cancelled" | "unknown");
            let open = matches!(state, "owed" | "doubtful")
                || state == "abandoned" && (running || recent)
                || lost && recent
                || running && !attached;
            if open && !ran.repeatable {
                calls.push(ran);
            }
        }
        calls
    }

    /// Notes when calls changed, and which held POSTs were answered.
    fn observe(&mut self) {
        let view = &self.view;
        for call in &view.calls {
            let state = view.streams.iter().find(|stream| Some(stream.id) == call.stream);
            let state = state.map_or("", |stream| stream.state);
            let Some(ran) = self.ran.get_mut(&call.id) else { continue };
            let seen = (call.phase, state.to_owned());
            if ran.seen.0 != call.phase && !matches!(call.phase, "claimed" | "sent")
                || ran.seen.1 != state && state == "abandoned"
            {
                ran.over_ms = self.now_ms;
            }
            ran.seen = seen;
        }
        let still = |stream: &StreamId| {
            view.streams.iter().any(|view| view.id == *stream && view.state == "held")
        };
        let answered: Vec<_> =
            self.held.iter().filter(|(_, stream)| !still(stream)).map(|(&id, _)| id).collect();
        for connection in answered {
            self.held.remove(&connection);
            self.unanswered.remove(&connection);
        }
    }

    fn check_answers(&self) {
        let limits = &self.settings.limits;
        let max_ms = limits.hold_max_ms + limits.liveness_answer_ms + 1_000;
        for (connection, since_ms) in &self.unanswered {
            let late = self.now_ms > since_ms + max_ms && !self.jsons.contains(connection);
            let join = self.settings.on_repeat == OnRepeat::Join;
            assert!(!late || join, "POST {connection} waits since {since_ms}");
        }
    }

    fn connection(&mut self) -> ConnectionId {
        self.last += 1;
        ConnectionId(self.last)
    }

    fn post(&mut self, bodies: &[String], token: Option<Token>, json: bool) {
        let connection = self.connection();
        let record = token.and_then(|token| self.tokens.get(&token.key).cloned());
        let requests = bodies
            .iter()
            .map(|body| {
                let message = parse(body);
                let scope = self.scope(&message).filter(|_| token.is_none());
                Request { message, token, record: record.clone(), scope }
            })
            .collect();
        self.unanswered.insert(connection, self.now_ms);
        if json {
            self.jsons.insert(connection);
        }
        let (batch, body) = (bodies.len() > 1, digest(bodies.concat().as_bytes()));
        let observed = self.observed;
        self.feed(Input::Post(Post { connection, observed, requests, batch, body }));
    }

    /// What was looked up for a tokenless request; every third time before the row was written.
    fn scope(&self, message: &Message) -> Option<Scope> {
        let key = scope_key(message);
        let record = self.tokens.get(&key).filter(|_| !self.last.is_multiple_of(3)).cloned();
        let scoped = self.settings.repeat_scope == RepeatScope::Principal;
        scoped.then_some(Scope { key, record })
    }

    fn event_at(&self, stream: u8, back: u8) -> EventId {
        let stream = StreamId(u32::from(stream));
        let events = self.log.get(&stream).map_or(&[][..], Vec::as_slice);
        let at = events.len().checked_sub(1 + usize::from(back));
        let seq = at.map_or(Seq::ORIGIN, |at| events[at].seq);
        EventId { epoch: Epoch(1), stream, seq }
    }

    /// The nth newest connection that may still say something.
    fn open_connection(&self, n: u8) -> Option<(ConnectionId, StreamId)> {
        let open = self.carried.iter().filter(|(id, _)| !self.closed.contains(id));
        open.rev().nth(usize::from(n)).map(|(&id, &stream)| (id, stream))
    }

    fn wire(&mut self, n: u8, event: u8) {
        let Some((connection, stream)) = self.open_connection(n) else { return };
        let events = self.log.get(&stream).map_or(&[][..], Vec::as_slice);
        let sent = events.last().map_or(Seq::ORIGIN, |event| event.seq);
        let ended = events.iter().any(|event| event.last);
        let handed = self.handed.contains(&connection);
        let event = match event {
            0 => WireEvent::HeadersAcknowledged,
            1 if ended => {
                self.handed.insert(connection);
                WireEvent::FinalHanded
            }
            2 if handed => WireEvent::FinalAcknowledged,
            3 => WireEvent::ReplayAcknowledged,
            4 => WireEvent::LivenessAcknowledged,
            5 if handed => WireEvent::Reset,
            6 if handed => WireEvent::Fin,
            7 if handed => WireEvent::NextRequest,
            8 => WireEvent::Lost { sent, acknowledged: handed },
            9 => WireEvent::Progress { sent },
            _ => return,
        };
        let over = matches!(event, WireEvent::Reset | WireEvent::Lost { .. });
        if over {
            self.closed.insert(connection);
        }
        self.feed(Input::Wire(connection, event));
    }

    fn running(&self, n: u8) -> Option<CallId> {
        let calls = self.view.calls.iter().filter(|call| call.phase != "finished");
        calls.map(|call| call.id).nth(usize::from(n))
    }

    fn upstream(&mut self, text: &str) {
        let event =
            FromUpstream::Message { channel: Channel::Unknown, message: parse(text), cursor: None };
        self.feed(Input::Upstream(event));
    }

    fn answer(&mut self, call: CallId, error: bool) {
        if error {
            if let Some(ran) = self.ran.get_mut(&call) {
                ran.freed = true;
            }
            let error = r#"{"code":-32602,"message":"bad"}"#;
            self.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{call},"error":{error}}}"#));
        } else {
            self.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{}}}}"#));
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Post { tool, id, token } => {
                let body = call(&id.to_string(), &format!("tool{tool}"), "{}");
                let key = DedupKey(digest(&[token, tool]));
                let token = (token < 2).then_some(Token { key, attempt: 1, epoch: None });
                self.post(&[body], token, false);
            }
            Op::Batch { first, second } => {
                let body = |tool, id| call(id, &format!("tool{tool}"), "{}");
                self.post(&[body(first, "8"), body(second, "9")], None, false);
            }
            Op::Read { progress } => {
                let meta = if progress { r#"{"_meta":{"progressToken":4}}"# } else { "{}" };
                let body =
                    format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{meta}}}"#);
                self.post(&[body], None, !progress);
            }
            Op::Get { stream, back } => {
                let cursor = GetCursor::At(self.event_at(stream, back));
                self.get(cursor);
            }
            Op::Standalone => self.get(GetCursor::None),
            Op::Acknowledge { stream, back } => {
                let id = self.event_at(stream, back);
                self.feed(Input::Acknowledge(vec![id]));
            }
            Op::Wire { connection, event } => self.wire(connection, event),
            Op::Deliver { connection } => {
                for event in [0, 3, 1, 2] {
                    self.wire(connection, event);
                }
            }
            Op::Cancel { id } => {
                let params = format!(r#"{{"requestId":{id}}}"#);
                self.feed(Input::Notify(notification("cancelled", &params)));
            }
            Op::Respond { number } => {
                let text = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#);
                self.feed(Input::Respond(parse(&text)));
            }
            Op::Elsewhere { tool, outcome } => self.run_elsewhere(tool, outcome),
            Op::Room { bytes } => self.feed(Input::Room { bytes }),
            Op::Closed => self.feed(Input::Upstream(FromUpstream::Closed)),
            Op::Reopened { continues } => {
                let continuation = continues.then(|| Continuation::new("go on"));
                self.feed(Input::Upstream(FromUpstream::Reopened { continuation }));
            }
            Op::Pass { ms } => self.pass(u64::from(ms)),
            Op::Restart => self.restart(),
            Op::Leave { post } => self.leave(post),
            Op::Stray { what, number } => self.stray(what, number),
            Op::Answer { call: n, .. }
            | Op::Progress { call: n, .. }
            | Op::Ask { call: n }
            | Op::Sent { call: n }
            | Op::NotSent { call: n }
            | Op::Lost { call: n } => {
                if let Some(call) = self.running(n) {
                    self.serve(op, call);
                }
            }
        }
    }

    fn get(&mut self, cursor: GetCursor) {
        let connection = self.connection();
        let observed = self.observed;
        self.feed(Input::Get(Get { connection, observed, cursor }));
    }

    /// What upstream does with a running call.
    fn serve(&mut self, op: Op, call: CallId) {
        let event = match op {
            Op::Answer { error, .. } => return self.answer(call, error),
            Op::Progress { stands, .. } => {
                let params = format!(r#"{{"progressToken":{call},"progress":1}}"#);
                let cursor = stands.then(|| self.now_ms.to_string().into());
                let (channel, message) = (Channel::Call(call), notification("progress", &params));
                FromUpstream::Message { channel, message, cursor }
            }
            Op::Ask { .. } => {
                let message = parse(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
                FromUpstream::Message { channel: Channel::Call(call), message, cursor: None }
            }
            Op::NotSent { .. } => {
                if !self.view.calls.iter().any(|view| view.id == call && view.phase == "claimed") {
                    return;
                }
                if let Some(ran) = self.ran.get_mut(&call) {
                    ran.freed = true;
                }
                FromUpstream::NotSent(call)
            }
            Op::Lost { .. } => FromUpstream::Lost(call),
            _ => FromUpstream::Sent(call),
        };
        self.feed(Input::Upstream(event));
    }

    fn leave(&mut self, post: u8) {
        let left = self.unanswered.keys().nth(usize::from(post)).copied();
        if let Some(connection) = left {
            self.unanswered.remove(&connection);
            self.left.insert(connection);
            self.feed(Input::Gone(connection));
        }
    }

    fn stray(&mut self, what: u8, number: u64) {
        let connection = ConnectionId(self.last.saturating_add(number | 1));
        let seq = Seq(number);
        let stream = StreamId(number as u32);
        let id = EventId { epoch: Epoch((number >> 32) as u32), stream, seq };
        let call = CallId(self.rows.row.reserved.call.0.saturating_add(number | 1));
        let event = match what {
            0 => return self.get(GetCursor::Malformed),
            1 => return self.get(GetCursor::At(id)),
            2 => Input::Acknowledge(vec![id]),
            3 => Input::Loaded { connection, payload: None },
            4 => Input::Gone(connection),
            5 => Input::Wire(connection, WireEvent::FinalAcknowledged),
            6 => Input::Wire(connection, WireEvent::Lost { sent: seq, acknowledged: true }),
            7 => Input::Wire(connection, WireEvent::Ended { sent: seq }),
            8 => Input::Upstream(FromUpstream::Sent(call)),
            9 => Input::Upstream(FromUpstream::Lost(call)),
            _ => Input::Release(call),
        };
        self.feed(event);
    }

    /// What was committed is what there is: calls, streams and their logs, to the last number.
    fn check_reload(&self) {
        let start = self.session.start().clone();
        let (loaded, _) = Session::restart(start, self.rows.stored(), self.now_ms);
        let (view, loaded) = (&self.view, loaded.view());
        let calls = |view: &SessionView| {
            let seen = view.calls.iter();
            seen.map(|call| (call.id, call.phase, call.stream, call.tool.clone())).collect()
        };
        let (here, there): (Vec<_>, Vec<_>) = (calls(view), calls(&loaded));
        assert_eq!(here, there, "other calls were committed");
        let streams = |view: &SessionView| {
            let seen = view.streams.iter();
            seen.map(|stream| (stream.id, stream.state, stream.produced.clone(), stream.bytes))
                .collect()
        };
        let (here, there): (Vec<_>, Vec<_>) = (streams(view), streams(&loaded));
        assert_eq!(here, there, "other streams were committed");
    }

    /// Another process takes the session from the store; no connection outlives the old one.
    fn restart(&mut self) {
        self.check_reload();
        self.closed.extend(self.carried.keys());
        self.unanswered.clear();
        self.held.clear();
        self.jsons.clear();
        let start = self.session.start().clone();
        let (session, first) = Session::restart(start, self.rows.stored(), self.now_ms);
        self.session = session;
        self.view = self.session.view();
        self.picked_up.clear();
        first.into_iter().for_each(|input| self.feed(input));
        let running = self.view.calls.iter();
        let running = running.filter(|call| matches!(call.phase, "claimed" | "sent"));
        let running: Vec<_> = running.map(|call| call.id).collect();
        assert_eq!(running, self.picked_up, "nobody hears of the others");
    }

    /// Everything stops: connections go, calls are answered, time passes.
    fn settle(&mut self) {
        while let Some((connection, _)) = self.open_connection(0) {
            self.closed.insert(connection);
            let lost = WireEvent::Lost { sent: Seq::ORIGIN, acknowledged: false };
            self.feed(Input::Wire(connection, lost));
            self.feed(Input::Wire(connection, WireEvent::Fin));
        }
        let running = |call: &&CallView| matches!(call.phase, "claimed" | "sent");
        let calls: Vec<_> = self.view.calls.iter().filter(running).map(|call| call.id).collect();
        calls.into_iter().for_each(|call| self.answer(call, false));
        self.pass(120_000);
    }
}

/// Plays a conversation to its end, and until everything has settled.
pub fn run(settings: Settings, observed: bool, ops: &[Op]) {
    let mut world = World::new(settings, observed);
    for op in ops {
        world.apply(*op);
        if world.ended {
            return;
        }
    }
    world.settle();
    while let Some((connection, _)) = world.open_connection(0) {
        world.closed.insert(connection);
        let lost = WireEvent::Lost { sent: Seq::ORIGIN, acknowledged: false };
        world.feed(Input::Wire(connection, lost));
    }
    world.settle();
    if world.ended {
        return;
    }
    let footprint = world.session.footprint();
    assert_eq!((footprint.waiting, footprint.replays, footprint.replies), (0, 0, 0));
    assert_eq!(footprint.connections, 0, "{footprint:?}");
    let deadlines = 2 + footprint.streams + footprint.server_requests;
    assert!(footprint.timers <= deadlines, "{footprint:?}");
    assert!(world.unanswered.is_empty(), "never answered: {:?}", world.unanswered);
}
