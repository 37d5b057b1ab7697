//! From an input to what the world sees of it: the real session takes it, the store commits, the
//! effects are carried out.

use std::collections::VecDeque;

use rejoin_core::effect::ToUpstream;
use rejoin_core::effect::{Attach, Command, DedupWrite, Effect, Event, EventKind, Note, Output};
use rejoin_core::id::{CallId, ConnectionId, EventId, StreamId};
use rejoin_core::input::{FromUpstream, Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::stream::StreamState;
use rejoin_core::token::DedupRecord;

use crate::agree;
use crate::config::Effect as Repeats;
use crate::exchange::{Exchange, Standing};
use crate::model::Model;
use crate::property::Property;
use crate::world::{Logged, Run, RunState, Says, World};

/// Inputs that one may cause; more would be a session that never comes to rest.
const STEPS_MAX: usize = 200;

impl World {
    /// Feeds an input and all that follows from it at once.
    pub fn feed(&mut self, model: &Model, input: Input) {
        let mut inputs = VecDeque::from([input]);
        let at_once = !model.config.faults.slow_review;
        for _ in 0..STEPS_MAX {
            let due = at_once && self.has_review();
            let next = inputs.pop_front().or_else(|| due.then_some(Input::Tick));
            let Some(input) = next else { return };
            self.step(model, input, &mut inputs);
        }
        self.break_property(Property::Invariant);
    }

    /// The session wants to look at what waits.
    pub fn has_review(&self) -> bool {
        self.session.poll_timeout() == Some(0)
    }

    /// Something was seen on the connection of an exchange.
    pub fn wire(&mut self, model: &Model, exchange: usize, event: WireEvent) {
        let id = ConnectionId(exchange as u64 + 1);
        self.tell(|| format!("the gateway notes on connection {id}: {}", wire_text(event)));
        self.feed(model, Input::Wire(id, event));
    }

    fn step(&mut self, model: &Model, input: Input, inputs: &mut VecDeque<Input>) {
        let mut out = Output::default();
        self.session.handle(input, self.now_ms, &mut out);
        agree::compare(self);
        if self.session.check().is_err() {
            self.break_property(Property::Invariant);
        }
        if let Err(taken) = self.write_tokens(&out.batch.dedup) {
            let (call, record) = *taken;
            return self.step(model, Input::TokenTaken { call, record }, inputs);
        }
        if let Some(store) = &mut self.store {
            store.commit(&out.batch, &self.tokens);
        }
        for event in out.batch.events.into_iter().map(logged) {
            self.loss_untold &= event.says != Says::Error(Some(Reason::StateLost));
            self.log.push(event);
        }
        for effect in out.effects {
            self.carry_out(model, effect, inputs);
        }
    }

    /// Rows of tokens, as a store writes them: all or none.
    fn write_tokens(&mut self, writes: &[DedupWrite]) -> Result<(), Box<(CallId, DedupRecord)>> {
        for write in writes {
            let row = self.tokens.get(&write.key);
            if let Some(row) = row.filter(|row| write.expected != Some(row.owner)) {
                return Err(Box::new((write.record.owner.call, row.clone())));
            }
        }
        for write in writes {
            if write.record.is_owned() {
                self.tokens.insert(write.key, write.record.clone());
            } else {
                self.tokens.remove(&write.key);
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, model: &Model, effect: Effect, inputs: &mut VecDeque<Input>) {
        match effect {
            Effect::Open(attach) => self.open(&attach),
            Effect::Reply { connection, body } => {
                let says = says(&body);
                let exchange = self.exchange(connection);
                exchange.standing = Standing::Answered;
                exchange.is_over = true;
                self.believe(model, connection.0 as usize - 1, says);
            }
            Effect::Refuse { connection, rejections, .. } => {
                let Some(rejection) = rejections.first() else { return };
                let reason = rejection.reason;
                let cursor = rejection.hint.as_ref().map(|hint| hint.cursor);
                self.refuse(connection, reason, cursor);
            }
            Effect::NotResumable(connection) => {
                let exchange = self.exchange(connection);
                exchange.standing = Standing::NotResumable;
                exchange.client_is_there = false;
                exchange.is_over = true;
                let intent = usize::from(exchange.intent);
                self.intents[intent].cursor = None;
                self.tell(|| format!("connection {connection}: 405, nothing to resume"));
            }
            Effect::Command(connection, command) => self.command(connection, command),
            Effect::Load { connection, stream, seq } => {
                let kept = self.log.iter().find(|e| e.stream == stream && e.seq == seq);
                let payload = kept.map(|event| event.payload.clone());
                inputs.push_back(Input::Loaded { connection, payload });
            }
            Effect::Upstream(message) => self.send_upstream(model, message, inputs),
            Effect::Note(note) => self.note(model, note),
            _ => {}
        }
    }

    fn open(&mut self, attach: &Attach) {
        let exchange = self.exchange(attach.connection);
        exchange.stream = Some(attach.stream);
        exchange.standing = if attach.held { Standing::Held } else { Standing::Answered };
        exchange.replay_until = attach.replay_until.map(|id| id.seq);
        exchange.from = attach.after;
        exchange.written = attach.after;
        exchange.kernel = attach.after;
        exchange.read = attach.after;
        exchange.reports_head = attach.held;
        exchange.reports_replay = attach.replay_until.is_some();
        exchange.body_runs = true;
        let (connection, stream) = (attach.connection, attach.stream);
        self.tell(|| match (attach.held, attach.replay_until) {
            (true, _) => format!("connection {connection}: 200, its call is held"),
            (_, Some(until)) => format!(
                "connection {connection}: 200, stream {stream} from {} on; replay until {}",
                attach.after, until.seq
            ),
            _ => format!("connection {connection}: 200, stream {stream} from {} on", attach.after),
        });
    }

    fn refuse(&mut self, connection: ConnectionId, reason: Reason, cursor: Option<EventId>) {
        let exchange = self.exchange(connection);
        exchange.standing = Standing::Refused(reason);
        exchange.is_over = true;
        let told = exchange.client_is_there && exchange.path_is_up;
        let intent = usize::from(exchange.intent);
        exchange.client_is_there &= !told;
        self.loss_untold &= reason != Reason::StateLost;
        if told {
            let progress = &mut self.intents[intent];
            progress.refused = Some(reason);
            let hinted = cursor.map(|id| (id.stream, id.seq));
            progress.cursor = progress.cursor.or(hinted);
        }
        self.tell(|| format!("connection {connection}: 409 {}", reason.name()));
    }

    fn command(&mut self, connection: ConnectionId, command: Command) {
        let exchange = self.exchange(connection);
        match command {
            Command::Probe => {
                exchange.probe = exchange.body_runs.then_some(false);
                self.tell(|| format!("the gateway asks connection {connection} if it lives"));
            }
            _ => {
                exchange.end_as_told();
                self.tell(|| format!("the gateway ends connection {connection}"));
            }
        }
    }

    fn send_upstream(&mut self, model: &Model, message: ToUpstream, inputs: &mut VecDeque<Input>) {
        match message {
            ToUpstream::Call { call, asked_by, .. } => {
                let Some(connection) = asked_by else { return };
                let intent = self.exchange(connection).intent;
                let at_once = self.store.is_none();
                let state = RunState::Coming;
                self.mark_claim();
                self.runs.push(Run { call, intent, state, progress: 0, cancelled: false });
                if at_once {
                    self.start_run(model, self.runs.len() - 1);
                    inputs.push_back(Input::Upstream(FromUpstream::Sent(call)));
                }
            }
            ToUpstream::Cancel { call, .. } => {
                if let Some(run) = self.runs.iter_mut().find(|run| run.call == call) {
                    run.cancelled = true;
                }
                self.tell(|| format!("the server is told to stop call {call}"));
            }
            ToUpstream::Reopen { .. } => {
                inputs.push_back(Input::Upstream(FromUpstream::Reopened { continuation: None }));
            }
            _ => {}
        }
    }

    /// A call reaches the server: it takes effect.
    pub fn start_run(&mut self, model: &Model, run: usize) {
        let run = &mut self.runs[run];
        run.state = RunState::Running;
        let (call, intent) = (run.call, usize::from(run.intent));
        let spec = &model.config.intents[intent];
        if spec.effect == Repeats::Effectful {
            self.intents[intent].charged.push(call);
            let twice = self.intents[intent].charged.len() > 1;
            self.tell(|| format!("the server runs call {call}, for {}", model.name(intent)));
            if twice {
                self.break_property(Property::Executions);
            }
            if self.loss_untold {
                self.break_property(Property::StateLossTold);
            }
            if spec.token.is_some() && self.runs_of_token(model, spec.token) > 1 {
                self.break_property(Property::Executions);
            }
        } else {
            self.tell(|| format!("the server runs call {call}, for {}", model.name(intent)));
        }
    }

    fn runs_of_token(&self, model: &Model, token: Option<u8>) -> usize {
        let same = |run: &&Run| {
            let spec = &model.config.intents[usize::from(run.intent)];
            spec.token == token && run.state != RunState::Coming
        };
        self.runs.iter().filter(same).count()
    }

    fn note(&mut self, model: &Model, note: Note) {
        match note {
            Note::Decided { connection, row, verdict, reason, original, call, .. } => {
                let admitted = matches!(verdict, "claim" | "record" | "collect" | "attach");
                let newest = self.exchanges.len() as u8;
                let past = self.owed_past(original);
                let exchange = self.exchange(connection);
                if admitted {
                    exchange.ran_after = newest;
                    exchange.ran_past = past;
                }
                let intent = usize::from(exchange.intent);
                if let Some(call) = original.filter(|_| matches!(verdict, "record" | "collect")) {
                    self.charge(intent, call, model);
                }
                let reason = reason.map_or_else(String::new, |why| format!(" {}", why.name()));
                let of = original.map_or_else(String::new, |call| format!(", for call {call}"));
                let as_call = call.map_or_else(String::new, |call| format!(" as call {call}"));
                self.tell(|| {
                    format!("row {row} on connection {connection}: {verdict}{as_call}{reason}{of}")
                });
            }
            Note::StreamMoved { stream, from, to } => {
                if from == StreamState::Held {
                    self.leave_hold(stream);
                }
                self.mark_stream(to);
                if matches!(
                    to,
                    StreamState::Presumed | StreamState::Abandoned | StreamState::Doubtful
                ) {
                    let on = self.session.streams().find(|s| s.id == stream);
                    let calls = on.map(|stream| stream.calls.clone()).unwrap_or_default();
                    calls.into_iter().for_each(|call| self.touch(call));
                }
                let (from, to) = (from.name(), to.name());
                self.tell(|| format!("stream {stream}: {from} -> {to}"));
            }
            Note::CallMoved { call, to } => {
                self.mark_call(to);
                if to != "sent" {
                    self.touch(call);
                }
                self.tell(|| format!("call {call}: {to}"));
            }
            _ => {}
        }
    }

    /// A stream that is owed to a client that may resume it, other than that of a call.
    fn owed_past(&self, but: Option<CallId>) -> Option<StreamId> {
        let row = self.session.row();
        if row.never_resumes && !row.presented_cursor {
            return None;
        }
        let mut streams = self.session.streams();
        streams
            .find(|stream| {
                let own = but.is_some_and(|call| stream.calls.contains(&call));
                stream.state == StreamState::Owed && !own
            })
            .map(|stream| stream.id)
    }

    /// A call ended or was lost: the repeat window runs from then.
    fn touch(&mut self, call: CallId) {
        let by = self.runs.iter().find(|run| run.call == call).map(|run| usize::from(run.intent));
        for (at, intent) in self.intents.iter_mut().enumerate() {
            if by == Some(at) || intent.charged.contains(&call) {
                intent.touched_ms = Some(self.now_ms);
            }
        }
    }

    fn leave_hold(&mut self, stream: StreamId) {
        let held = |exchange: &&mut Exchange| {
            exchange.stream == Some(stream) && exchange.standing == Standing::Held
        };
        for exchange in self.exchanges.iter_mut().filter(held) {
            exchange.standing = Standing::Answered;
        }
    }

    /// Something of the rule was violated on the way here.
    pub fn break_property(&mut self, property: Property) {
        self.broken |= property.bit();
        self.tell(|| format!("VIOLATED: {}", property.text()));
    }
}

fn logged(event: Event) -> Logged {
    let says =
        if event.kind == EventKind::Response { says(&event.payload) } else { Says::Progress };
    let Event { stream, seq, last, payload, .. } = event;
    Logged { stream, seq, last, says, payload }
}

/// What a response says: the server's answers carry the number of their call.
fn says(payload: &[u8]) -> Says {
    let text = String::from_utf8_lossy(payload);
    if let Some((_, rest)) = text.split_once(r#""ran":"#) {
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        return number.parse().map_or(Says::Error(None), |number| Says::Answer(CallId(number)));
    }
    let of = |reason: &&Reason| text.contains(&format!(r#""reason":"{}""#, reason.name()));
    let refused = text.contains("Not run.");
    Says::Error(Reason::ALL.iter().find(of).copied().filter(|_| refused))
}

fn wire_text(event: WireEvent) -> &'static str {
    match event {
        WireEvent::HeadersAcknowledged => "its head is acknowledged",
        WireEvent::FinalHanded => "the end is handed over",
        WireEvent::FinalAcknowledged => "all is acknowledged by the peer's kernel",
        WireEvent::ReplayAcknowledged => "the replay is acknowledged by the peer's kernel",
        WireEvent::LivenessAcknowledged => "it lives",
        WireEvent::Reset => "reset after the end",
        WireEvent::Fin => "closed by the peer after the end",
        WireEvent::NextRequest => "it carries a next request",
        WireEvent::Lost { .. } => "it is lost",
        WireEvent::Ended { .. } => "it has ended as told",
        _ => "progress",
    }
}
