//! Carrying out what was committed, in order.

use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::{Attach, Effect};
use rejoin_core::id::{ConnectionId, Seq, StreamId};
use rejoin_core::input::{Input, WireEvent};

use super::{Driver, Stop};
use crate::body::{Reader, Source, StreamBody};
use crate::exchange::Exchange;
use crate::handle::{Answer, Life};

impl Driver {
    pub(super) async fn carry_out(&mut self, effects: Vec<Effect>) -> Result<(), Stop> {
        for (connection, challenge) in self.link.heads.news() {
            if let Some(waiting) = self.waiting.get_mut(&connection) {
                waiting.challenge = Some(challenge);
            }
        }
        for effect in effects {
            match effect {
                Effect::Open(attach) => self.open(attach),
                Effect::Reply { connection, body } => self.reply(connection, body),
                Effect::Refuse { connection, rejections, batch } => {
                    self.answer(connection, Answer::Refused { rejections, batch });
                }
                Effect::NotResumable(connection) => self.answer(connection, Answer::NotResumable),
                Effect::Command(connection, command) => {
                    if let Some(attached) = self.attached.get(&connection) {
                        attached.command(command);
                    }
                }
                Effect::Load { connection, stream, seq } => {
                    self.load(connection, stream, seq).await;
                }
                Effect::Upstream(message) => self.link.send(message),
                Effect::Note(note) => self.notes.note(&self.tag, &note),
                Effect::End => {
                    self.life.send_replace(Life::Over { kept: false });
                    return Err(Stop::Ended);
                }
                other => tracing::debug!(?other, "not an effect of this version"),
            }
        }
        self.link.heads.let_others_go();
        Ok(())
    }

    fn reply(&mut self, connection: ConnectionId, body: Bytes) {
        let challenge = self.waiting.get_mut(&connection).and_then(|one| one.challenge.take());
        let answer = match challenge {
            Some(challenge) => Answer::Challenged { challenge, body },
            None => Answer::Json(body),
        };
        self.answer(connection, answer);
    }

    /// Answers with a stream. If its client leaves before it takes the body, its drop says so.
    fn open(&mut self, attach: Attach) {
        let connection = attach.connection;
        let (Some(waiting), Some(inbox)) = (self.waiting.remove(&connection), self.inbox.upgrade())
        else {
            let event = WireEvent::Lost { sent: attach.after, acknowledged: false };
            self.work.push_back(Input::Wire(connection, event).into());
            return;
        };
        let start = self.session.start();
        let limits = &start.settings.limits;
        let exchange = Exchange {
            connection,
            observed: waiting.observed,
            after: attach.after,
            held: attach.held,
            replays: attach.replay_until.is_some(),
            limits,
        };
        let (attached, reporter, watcher, orders) = exchange.open(inbox);
        let source =
            Source { store: Arc::clone(&self.store), session: start.session, epoch: start.epoch };
        let replay_until = attach.replay_until;
        let head = (!attach.held).then(|| self.link.heads.open(connection));
        let body = StreamBody::new(Reader::new(source, attach, orders, limits), reporter, head);
        tokio::spawn(watcher.run());
        self.attached.retain(|_, attached| !attached.is_gone());
        self.attached.insert(connection, attached);
        drop(waiting.reply.send(Answer::Stream { body, replay_until }));
    }

    fn answer(&mut self, connection: ConnectionId, answer: Answer) {
        if let Some(waiting) = self.waiting.remove(&connection) {
            // If its client has left, the guard of its handler has said so.
            drop(waiting.reply.send(answer));
        }
    }

    async fn load(&mut self, connection: ConnectionId, stream: StreamId, seq: Seq) {
        let session = self.session.start().session;
        let payload = match self.store.read_one(session, stream, seq).await {
            Ok(event) => event.map(|event| event.payload),
            Err(error) => {
                tracing::warn!(session = %self.tag, %error, "a recorded answer cannot be read");
                None
            }
        };
        self.work.push_back(Input::Loaded { connection, payload }.into());
    }
}
