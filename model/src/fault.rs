//! What ends processes.

use rejoin_core::id::Epoch;
use rejoin_core::input::{FromUpstream, Input};
use rejoin_core::session::Session;

use crate::exchange::{Closing, Standing};
use crate::model::Model;
use crate::store::Store;
use crate::world::{RunState, World};

impl World {
    /// The server is gone, and what it kept.
    pub fn die(&mut self, model: &Model) {
        self.spent.deaths += 1;
        for run in &mut self.runs {
            run.state = RunState::Over;
        }
        self.loss_untold = true;
        self.feed(model, Input::Upstream(FromUpstream::Closed));
    }

    /// What was not synced is gone.
    pub fn lose_power(&mut self) {
        let Some((last_seq, tokens)) = self.store.as_mut().and_then(Store::lose_power) else {
            return;
        };
        self.log.retain(|event| event.seq <= last_seq);
        self.tokens = tokens;
    }

    /// The process is killed; another one takes the session from the store.
    pub fn crash(&mut self, model: &Model) {
        let Some(store) = &self.store else { return };
        let start = self.session.start().clone();
        let (session, first) = Session::restart(start, store.stored(), self.now_ms);
        self.session = session;
        self.end_process();
        self.loss_untold = true;
        for input in first {
            self.feed(model, input);
        }
    }

    /// As a crash, but the store is lost too: the client starts over.
    pub fn wipe(&mut self, model: &Model) {
        self.spent.wipes += 1;
        self.ledger_epoch += 1;
        let Epoch(epoch) = self.session.start().epoch;
        self.session = model.session(epoch + 1, self.now_ms);
        self.store = self.store.is_some().then(|| Store::new(self.session.start(), false));
        self.tokens.clear();
        self.log.clear();
        self.end_process();
        for intent in &mut self.intents {
            intent.cursor = None;
        }
    }

    fn end_process(&mut self) {
        for exchange in &mut self.exchanges {
            if exchange.is_over {
                continue;
            }
            exchange.end_as_told();
            exchange.closing = Closing::None;
            if exchange.waits() && exchange.stream.is_none() {
                exchange.client_is_there = false;
            }
            if exchange.waits() {
                exchange.standing = Standing::NotResumable;
            }
        }
        for run in &mut self.runs {
            run.state = RunState::Over;
        }
    }
}
