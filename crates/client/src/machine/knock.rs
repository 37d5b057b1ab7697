//! Does the session live? Where what a server said may mean that it does not, a ping is sent, and
//! what that is answered tells (spec SES-7).
use rejoin_core::message::{self, Message};

use super::call::{Call, CallKey, Doubt, State};
use super::status::Body;
use super::{ExchangeId, Head, Machine, Media, Method, Purpose};

impl Machine {
    /// Asks whether the session lives, with what every server answers.
    pub(super) fn knock(&mut self, key: Option<CallKey>) {
        let id = self.number();
        let body = message::request(id.to_string().as_bytes(), "ping", None);
        let (request, acks) = self.compose(Method::Post, body);
        let exchange = self.open(Purpose::Knock(key), request, acks);
        if let Some(call) = key.and_then(|key| self.calls.get_mut(&key)) {
            call.state = State::Knocking(exchange);
        }
    }

    pub(super) fn knock_head(&mut self, id: ExchangeId, key: Option<CallKey>, head: &Head) {
        let is_gone = self.means_gone(id, head);
        if head.status == 400 && head.media == Media::Whole {
            // What it says besides tells more.
            return;
        }
        self.linger(id);
        if is_gone {
            return self.lose_session();
        }
        self.is_alive(key, head.status);
    }

    /// The session lives, as far as a server says that answers a ping with this status.
    pub(super) fn is_alive(&mut self, key: Option<CallKey>, status: u16) {
        match key {
            Some(key) if self.settle_doubt(key) => {}
            Some(key) => self.send_again_or_end(key, "the server has no more of the answer"),
            None => self.knock_answered(status),
        }
    }

    /// A call was answered 400. Some servers refuse so what is malformed, and some what is of a
    /// session that they do not know: what a ping is answered tells.
    pub(super) fn doubt(&mut self, key: CallKey, said: Option<&Message>, names_session: bool) {
        self.not_arrived(key);
        if let Some(call) = self.calls.get_mut(&key) {
            call.doubt = Some(Doubt { said: said.cloned(), names_session });
        }
        self.knock(Some(key));
    }

    /// It was the call that the server refused, as far as can be known.
    pub(super) fn settle_doubt(&mut self, key: CallKey) -> bool {
        let doubt = self.calls.get_mut(&key).and_then(|call| call.doubt.take());
        let Some(doubt) = doubt else { return false };
        if self.calls.get(&key).is_some_and(Call::is_cancelled) {
            self.forget(key);
        } else {
            self.tell_status(key, 400, doubt.said.as_ref());
        }
        true
    }

    /// A ping was answered 400. Where neither it nor what it was sent for speaks of the session, a
    /// stream that is being read is the better sign.
    pub(super) fn knock_body(&mut self, key: Option<CallKey>, body: &Body) {
        let doubt = key.and_then(|key| self.calls.get(&key)).and_then(|call| call.doubt.as_ref());
        let is_named = body.names_session() || doubt.is_some_and(|doubt| doubt.names_session);
        let reads = self.calls.values().any(|call| matches!(call.state, State::Reading(_)));
        let is_gone = is_named || !reads && !body.answers_by_id();
        if is_gone && body.is_current && self.session.id.is_some() {
            return self.lose_session();
        }
        self.is_alive(key, body.status);
    }
}
