//! What each action does.

use rejoin_core::id::{ConnectionId, EventId, digest};
use rejoin_core::input::{Channel, FromUpstream, Get, GetCursor, Input, Post, Request, WireEvent};
use rejoin_core::token::{DedupKey, Token};

use crate::action::Action;
use crate::config::{Effect, Network};
use crate::exchange::{Closing, Exchange, Place, Standing};
use crate::model::{Model, parse};
use crate::property::Property;
use crate::world::{Believed, RunState, Says, World};

impl World {
    /// Does it, and looks at what must hold.
    pub fn apply(&mut self, model: &Model, action: Action) {
        match action {
            Action::Post(intent) => self.post(model, intent),
            Action::Get(intent) => self.get(model, intent),
            Action::Acknowledge(intent) => self.acknowledge(model, intent),
            Action::Cancel(intent) => self.cancel(model, intent),
            Action::Close(at) => self.close(model, at),
            Action::Leave(at) => {
                // Its kernel holds nothing any more: it sends a FIN, no reset.
                self.close(model, at);
                self.exchanges[at].closing = Closing::Fin;
            }
            Action::Read(at) => self.read(model, at),
            Action::Fin(at) => {
                self.spent.fins += 1;
                self.exchanges[at].client_is_there = false;
                self.exchanges[at].closing = Closing::Fin;
            }
            Action::Write(at) => self.write(model, at),
            Action::Arrive(at) => self.arrive(model, at),
            Action::Cut(at) => {
                self.spent.cuts += 1;
                self.exchanges[at].path_is_up = false;
            }
            Action::Closed(at) => self.closed(model, at),
            Action::GiveUp(at) => self.give_up(model, at),
            Action::Reset(at) => {
                self.spent.resets += 1;
                self.exchanges[at].client_is_there = false;
                self.exchanges[at].closing = Closing::Reset;
            }
            Action::Start(run) => {
                self.start_run(model, run);
                let call = self.runs[run].call;
                self.feed(model, Input::Upstream(FromUpstream::Sent(call)));
            }
            Action::Produce(run) => self.produce(model, run),
            Action::Answer(run) => self.answer(model, run),
            Action::Stop(run) => self.runs[run].state = RunState::Over,
            Action::Die => self.die(model),
            Action::Crash => {
                self.spent.crashes += 1;
                self.crash(model);
            }
            Action::PowerCut => {
                self.spent.power_cuts += 1;
                self.lose_power();
                self.crash(model);
            }
            Action::Wipe => self.wipe(model),
            Action::Review => self.feed(model, Input::Tick),
            Action::Pass => {
                self.spent.passes = self.spent.passes.saturating_add(1);
                self.spent.delays += u8::from(self.has_travellers(model));
                self.pass(model);
            }
        }
        self.look(model);
    }

    fn post(&mut self, model: &Model, intent: usize) {
        let post = self.intents[intent].posts;
        self.intents[intent].posts += 1;
        if post == 0 {
            self.intents[intent].epoch = self.ledger_epoch;
        }
        self.intents[intent].cancelled = false;
        self.exchanges.push(Exchange::new(intent as u8, Some(post), self.now_ms));
        self.post_as(model, intent, post);
    }

    /// Posts a message of an intent on the newest exchange.
    pub fn post_as(&mut self, model: &Model, intent: usize, post: u8) {
        let spec = &model.config.intents[intent];
        let message = model.message(intent, post).clone();
        let connection = ConnectionId(self.exchanges.len() as u64);
        let asked = post < spec.posts_max;
        let token = spec.token.filter(|_| asked).map(|token| Token {
            key: DedupKey(digest(&[token])),
            attempt: if spec.counts_attempts { u64::from(post) + 1 } else { 1 },
            epoch: spec.counts_attempts.then_some(self.intents[intent].epoch),
        });
        let record = token.and_then(|token| self.tokens.get(&token.key).cloned());
        let body = digest(message.bytes());
        let request = Request { message, token, record, scope: None };
        let requests = vec![request];
        let batch = false;
        self.feed(model, Input::Post(Post { connection, observed: true, requests, batch, body }));
    }

    fn get(&mut self, model: &Model, intent: usize) {
        self.intents[intent].gets += 1;
        let Some((stream, seq)) = self.intents[intent].cursor else { return };
        self.exchanges.push(Exchange::new(intent as u8, None, self.now_ms));
        let connection = ConnectionId(self.exchanges.len() as u64);
        let epoch = self.session.start().epoch;
        let cursor = GetCursor::At(EventId { epoch, stream, seq });
        self.look_for_overtaken(stream);
        self.feed(model, Input::Get(Get { connection, observed: true, cursor }));
    }

    fn acknowledge(&mut self, model: &Model, intent: usize) {
        let progress = &mut self.intents[intent];
        progress.acked = progress.cursor;
        let Some((stream, seq)) = progress.cursor else { return };
        let epoch = self.session.start().epoch;
        self.feed(model, Input::Acknowledge(vec![EventId { epoch, stream, seq }]));
    }

    fn cancel(&mut self, model: &Model, intent: usize) {
        self.intents[intent].cancelled = true;
        let own = |e: &Exchange| usize::from(e.intent) == intent && e.is_open();
        let open = self.exchanges.iter().rposition(own);
        let id = model.message(intent, self.intents[intent].posts.saturating_sub(1)).id();
        let id = String::from_utf8_lossy(id.unwrap_or_default()).into_owned();
        let params = format!(r#""params":{{"requestId":{id}}}"#);
        let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled",{params}}}"#);
        if let Some(message) = parse(&text) {
            self.feed(model, Input::Notify(message));
        }
        if let Some(at) = open.filter(|&at| self.exchanges[at].client_is_there) {
            self.hang_up(model, at);
        }
    }

    fn close(&mut self, model: &Model, at: usize) {
        if self.exchanges[at].path_is_up {
            self.spent.closes += 1;
        }
        self.hang_up(model, at);
    }

    /// The client closes: a reset leaves if anything is unread. A proxy tells of neither.
    fn hang_up(&mut self, model: &Model, at: usize) {
        let exchange = &mut self.exchanges[at];
        exchange.client_is_there = false;
        if model.config.network == Network::Proxy {
            exchange.path_is_up = false;
        } else if exchange.path_is_up && !exchange.is_over {
            let unread = exchange.has_unread();
            exchange.closing = if unread { Closing::Reset } else { Closing::Fin };
        }
    }

    fn read(&mut self, model: &Model, at: usize) {
        let exchange = &mut self.exchanges[at];
        let (from, to) = (exchange.read, exchange.kernel);
        let Some(stream) = exchange.stream else {
            exchange.client_is_there = false;
            return;
        };
        exchange.read = to;
        exchange.head = exchange.head.max(Place::Read);
        let ends = exchange.told_to_end;
        let intent = usize::from(exchange.intent);
        if self.intents[intent].answer.is_none() {
            self.intents[intent].cursor = Some((stream, to));
        }
        let new = self
            .log
            .iter()
            .filter(|event| event.stream == stream && event.seq > from && event.seq <= to);
        let said: Vec<_> =
            new.map(|event| event.says).filter(|says| *says != Says::Progress).collect();
        for says in said {
            self.believe(model, at, says);
        }
        let exchange = &mut self.exchanges[at];
        if ends && !exchange.is_read {
            exchange.client_is_there = false;
        }
    }

    /// The client's code has read a response on an exchange.
    pub fn believe(&mut self, model: &Model, at: usize, says: Says) {
        self.exchanges[at].is_read = true;
        let intent = usize::from(self.exchanges[at].intent);
        match says {
            Says::Progress => {}
            Says::Error(Some(reason)) => {
                self.intents[intent].refused = Some(reason);
                self.tell(|| format!("the client reads: refused, {}", reason.name()));
            }
            Says::Error(None) => {
                self.intents[intent].answer.get_or_insert(Believed::Unknown);
                self.tell(|| "the client reads: the outcome is unknown".to_owned());
            }
            Says::Answer(call) => {
                self.tell(|| format!("the client reads the answer of call {call}"));
                self.look_at_order(at, model);
                let first = self.intents[intent].answer.is_none();
                self.intents[intent].answer = Some(Believed::Ran(call));
                if first {
                    self.charge(intent, call, model);
                }
            }
        }
    }

    fn write(&mut self, model: &Model, at: usize) {
        let Some(stream) = self.exchanges[at].stream else { return };
        let (produced, last) = self.produced(stream);
        let exchange = &mut self.exchanges[at];
        exchange.head = exchange.head.max(Place::Written);
        exchange.written = exchange.written.max(produced);
        exchange.probe = exchange.probe.map(|_| true);
        let sent = exchange.written;
        self.feed(model, Input::Wire(ConnectionId(at as u64 + 1), WireEvent::Progress { sent }));
        if last && self.exchanges[at].body_runs {
            self.exchanges[at].final_handed = true;
            self.exchanges[at].body_runs = false;
            self.wire(model, at, WireEvent::FinalHanded);
        }
    }

    fn arrive(&mut self, model: &Model, at: usize) {
        let exchange = &mut self.exchanges[at];
        if !exchange.client_is_there && model.config.network != Network::Proxy {
            // The peer has no such connection any more.
            exchange.closing = Closing::Reset;
            return;
        }
        exchange.kernel = exchange.written;
        exchange.head = exchange.head.max(Place::Kernel);
        let replayed = exchange.replay_until.is_some_and(|until| exchange.kernel >= until);
        let head = std::mem::take(&mut exchange.reports_head);
        let replay = replayed && std::mem::take(&mut exchange.reports_replay);
        let probe = exchange.probe.take_if(|written| *written).is_some();
        let done = exchange.final_handed;
        if done {
            exchange.acknowledged_ms = Some(self.now_ms);
        }
        let seen = [
            (head, WireEvent::HeadersAcknowledged),
            (replay, WireEvent::ReplayAcknowledged),
            (probe && !done, WireEvent::LivenessAcknowledged),
            (done, WireEvent::FinalAcknowledged),
        ];
        for (_, event) in seen.into_iter().filter(|(is_seen, _)| *is_seen) {
            self.wire(model, at, event);
        }
    }

    /// A FIN or a reset of the client comes to the gateway.
    fn closed(&mut self, model: &Model, at: usize) {
        let window_ms = model.settings.limits.reset_window_ms;
        let exchange = &mut self.exchanges[at];
        let how = std::mem::replace(&mut exchange.closing, Closing::None);
        if exchange.standing == Standing::Waiting {
            return self.gone(model, at);
        }
        if exchange.body_runs {
            return self.lost(model, at);
        }
        match (exchange.acknowledged_ms, how) {
            // What was written then may still be acknowledged, or be answered by a reset.
            (None, Closing::Fin) => {}
            (None, _) => self.lost(model, at),
            (Some(at_ms), how) => {
                exchange.is_over = true;
                if self.now_ms <= at_ms + window_ms {
                    let is_reset = how == Closing::Reset;
                    let event = if is_reset { WireEvent::Reset } else { WireEvent::Fin };
                    self.wire(model, at, event);
                }
            }
        }
    }

    /// The gateway's kernel has heard nothing for too long.
    fn give_up(&mut self, model: &Model, at: usize) {
        if self.exchanges[at].standing == Standing::Waiting {
            self.gone(model, at);
        } else {
            self.lost(model, at);
        }
    }

    fn gone(&mut self, model: &Model, at: usize) {
        self.exchanges[at].is_over = true;
        let id = ConnectionId(at as u64 + 1);
        self.tell(|| format!("the gateway notes on connection {id}: it is gone, unanswered"));
        self.feed(model, Input::Gone(id));
    }

    /// The stream of an exchange loses its connection.
    pub fn lost(&mut self, model: &Model, at: usize) {
        let exchange = &mut self.exchanges[at];
        exchange.is_over = true;
        exchange.body_runs = false;
        let (sent, acknowledged) = (exchange.written, exchange.is_acknowledged());
        self.wire(model, at, WireEvent::Lost { sent, acknowledged });
    }

    fn produce(&mut self, model: &Model, run: usize) {
        self.runs[run].progress += 1;
        let (call, progress) = (self.runs[run].call, self.runs[run].progress);
        let params = format!(r#""params":{{"progressToken":{call},"progress":{progress}}}"#);
        self.upstream(
            model,
            &format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress",{params}}}"#),
        );
    }

    fn answer(&mut self, model: &Model, run: usize) {
        self.runs[run].state = RunState::Over;
        let call = self.runs[run].call;
        self.upstream(
            model,
            &format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"ran":{call}}}}}"#),
        );
    }

    /// A message comes from the server.
    pub fn upstream(&mut self, model: &Model, text: &str) {
        let Some(message) = parse(text) else { return };
        let channel = Channel::Unknown;
        let message = FromUpstream::Message { channel, message, cursor: None };
        self.feed(model, Input::Upstream(message));
    }

    /// Every exchange of an intent that is never gated is answered at once.
    fn look(&mut self, model: &Model) {
        self.look_at_delivery(model);
        let gated = |exchange: &Exchange| {
            let spec = &model.config.intents[usize::from(exchange.intent)];
            let waits = match exchange.standing {
                Standing::Refused(_) | Standing::Held => true,
                Standing::Waiting => !self.runs.iter().any(|run| run.intent == exchange.intent),
                _ => false,
            };
            spec.effect == Effect::Ungated && waits
        };
        if self.exchanges.iter().any(gated) {
            self.break_property(Property::NeverGated);
        }
        let refuses = model.config.refusals_count;
        if refuses && self.intents.iter().any(|intent| intent.refused.is_some()) {
            self.break_property(Property::Refusal);
        }
    }
}

impl Exchange {
    /// The gateway ends it with the last chunk: what was written arrives, if anything does.
    pub fn end_as_told(&mut self) {
        self.body_runs = false;
        self.told_to_end = true;
        self.is_over = true;
        if self.path_is_up && self.client_is_there && self.stream.is_some() {
            self.kernel = self.written;
            if self.head == Place::Written {
                self.head = Place::Kernel;
            }
        }
    }
}
