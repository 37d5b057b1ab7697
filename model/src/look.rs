//! What must hold, seen from outside: by what clients read and what the server ran.

use rejoin_core::id::{CallId, ConnectionId, StreamId};
use rejoin_core::input::{Input, WireEvent};
use rejoin_core::settings::Delivery;
use rejoin_core::stream::{Stream, StreamState};

use crate::config::{Effect, Network};
use crate::exchange::{Closing, Exchange, Standing};
use crate::model::Model;
use crate::property::Property;
use crate::world::{RunState, World};

/// Jumps in time that the last question may take.
const PASSES_MAX: usize = 60;

impl World {
    /// A client took the answer of a call for that of an intent. It must be of the same arguments;
    /// if the call was run for a twin, the two have swapped, which is no second execution.
    pub fn charge(&mut self, intent: usize, call: CallId, model: &Model) {
        let Some(run) = self.runs.iter().find(|run| run.call == call) else {
            return self.break_property(Property::Foreign);
        };
        let by = usize::from(run.intent);
        let (own, other) = (&model.config.intents[intent], &model.config.intents[by]);
        if own.arguments != other.arguments || own.effect != other.effect {
            return self.break_property(Property::Foreign);
        }
        let holder = self.intents.iter().position(|progress| progress.charged.contains(&call));
        let Some(holder) = holder.filter(|&holder| holder != intent) else { return };
        self.intents[holder].charged.retain(|&charged| charged != call);
        let mine = std::mem::replace(&mut self.intents[intent].charged, vec![call]);
        self.intents[holder].charged.extend(mine);
        if self.intents[holder].charged.len() > 1 {
            self.break_property(Property::Executions);
        }
    }

    /// An exchange's answer is read: every replay that began before its call ran must be in its
    /// client's kernel, as long as its connection lives and its time is not over.
    pub fn look_at_order(&mut self, at: usize, model: &Model) {
        let max_ms = model.settings.limits.replay_max_ms;
        let read = &self.exchanges[at];
        let behind = |replay: &&Exchange| {
            let missing = replay.replay_until.is_some_and(|until| replay.kernel < until);
            let lives = replay.client_is_there && replay.path_is_up && !replay.is_over;
            missing && lives && self.now_ms < replay.came_ms + max_ms
        };
        let earlier = self.exchanges.iter().take(usize::from(read.ran_after));
        let others = earlier.enumerate().filter(|(other, _)| *other != at);
        let overtakes = others.map(|(_, replay)| replay).any(|replay| behind(&replay));
        let past = read.ran_past.is_some_and(|stream| {
            let mut on = self.exchanges.iter().filter(|e| e.stream == Some(stream));
            on.any(|replay| behind(&replay))
        });
        if overtakes {
            self.break_property(Property::Order);
        }
        if past {
            self.break_property(Property::Overtaken);
        }
    }

    /// A client resumes a stream: no call that came while it was owed may have been answered.
    pub fn look_for_overtaken(&mut self, stream: StreamId) {
        let is_owed =
            self.session.streams().any(|s| s.id == stream && s.state == StreamState::Owed);
        let past = |exchange: &Exchange| exchange.is_read && exchange.ran_past == Some(stream);
        if is_owed && self.exchanges.iter().any(past) {
            self.break_property(Property::Overtaken);
        }
    }

    /// What counts as delivered was read, or is read if its client goes on, or can be reached.
    pub fn look_at_delivery(&mut self, model: &Model) {
        let counts = |stream: &&Stream| match stream.state {
            StreamState::Proved => true,
            StreamState::Presumed => model.settings.delivery == Delivery::Presumed,
            _ => false,
        };
        let lost = self
            .session
            .streams()
            .filter(counts)
            .any(|stream| !stream.is_standalone() && !self.is_reachable(model, stream));
        if lost {
            self.break_property(Property::Reach);
        }
    }

    fn is_reachable(&self, model: &Model, stream: &Stream) -> bool {
        let Some(last) = stream.last else { return true };
        let mut on = self.exchanges.iter().filter(|e| e.stream == Some(stream.id));
        let arrives = |exchange: &Exchange| {
            let passes = model.config.network != Network::Proxy || exchange.path_is_up;
            let is_there = exchange.client_is_there && exchange.kernel >= last && passes;
            // It will be known that this was not read.
            let reset = exchange.closing == Closing::Reset && exchange.path_is_up;
            exchange.read >= last || is_there || reset
        };
        if on.clone().any(arrives) {
            return true;
        }
        on.any(|exchange| {
            let intent = usize::from(exchange.intent);
            let (spec, progress) = (&model.config.intents[intent], &self.intents[intent]);
            let resumes = progress.cursor.is_some_and(|(of, _)| of == stream.id);
            let gave_up = progress.cancelled || progress.answer.is_some();
            spec.token.is_some() || resumes || gave_up
        })
    }

    /// Once nothing more happens by itself: connections are gone, the server answers what it runs,
    /// all windows pass. Then every call can be made, and is answered within its bound.
    pub fn settles(&self, model: &Model) -> bool {
        let mut world = self.clone();
        for at in 0..world.exchanges.len() {
            world.abandon(model, at);
        }
        for run in 0..world.runs.len() {
            if world.runs[run].state == RunState::Running {
                world.runs[run].state = RunState::Over;
                let call = world.runs[run].call;
                let result = format!(r#""result":{{"ran":{call}}}"#);
                world.upstream(model, &format!(r#"{{"jsonrpc":"2.0","id":{call},{result}}}"#));
            }
        }
        world.pass_all(model);
        let specs = &model.config.intents;
        let mut asked = (0..specs.len()).filter(|&intent| {
            let spec = &specs[intent];
            let before = specs[..intent].iter().any(|other| other.arguments == spec.arguments);
            spec.effect != Effect::Ungated && !before
        });
        asked.all(|intent| {
            if world.loss_untold {
                // Told once; then it may be called.
                let _refused = world.asks(model, intent, 0);
            }
            world.asks(model, intent, 1).is_some()
        })
    }

    fn abandon(&mut self, model: &Model, at: usize) {
        let exchange = &mut self.exchanges[at];
        exchange.client_is_there = false;
        exchange.path_is_up = false;
        exchange.closing = Closing::None;
        if exchange.is_over {
            return;
        }
        let id = ConnectionId(at as u64 + 1);
        let (sent, acknowledged) = (exchange.written, exchange.is_acknowledged());
        if exchange.standing == Standing::Waiting {
            self.feed(model, Input::Gone(id));
        } else {
            self.feed(model, Input::Wire(id, WireEvent::Lost { sent, acknowledged }));
        }
        self.exchanges[at].is_over = true;
    }

    fn come_to_rest(&mut self, model: &Model) {
        for _ in 0..PASSES_MAX {
            if self.has_review() {
                self.feed(model, Input::Tick);
            }
        }
    }

    fn pass_all(&mut self, model: &Model) {
        for _ in 0..PASSES_MAX {
            self.come_to_rest(model);
            if self.any_next_moment().is_none() {
                return;
            }
            self.pass(model);
        }
    }

    /// Asks an intent's call anew on a path that works; `None`: it is refused, or not answered.
    fn asks(&mut self, model: &Model, intent: usize, nth: u8) -> Option<()> {
        let spec = &model.config.intents[intent];
        let post = Some(spec.posts_max + nth);
        self.exchanges.push(Exchange::new(intent as u8, post, self.now_ms));
        let at = self.exchanges.len() - 1;
        let ran = self.runs.len();
        self.post_as(model, intent, spec.posts_max + nth);
        for _ in 0..PASSES_MAX {
            self.come_to_rest(model);
            let exchange = &self.exchanges[at];
            if self.runs.len() > ran || exchange.standing == Standing::Answered {
                // A held one may have been refused on its stream.
                let refused = exchange.stream.is_some_and(|stream| {
                    let mut on = self.log.iter().filter(|event| event.stream == stream);
                    on.any(|event| matches!(event.says, crate::world::Says::Error(Some(_))))
                });
                return (!refused).then_some(());
            }
            if matches!(exchange.standing, Standing::Refused(_)) {
                return None;
            }
            if exchange.standing == Standing::Held && exchange.reports_head {
                self.exchanges[at].reports_head = false;
                self.wire(model, at, WireEvent::HeadersAcknowledged);
                continue;
            }
            self.any_next_moment()?;
            self.pass(model);
        }
        None
    }
}
