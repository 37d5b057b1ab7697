//! Heads of answers that wait, not long, for that of the server: a client looks for a challenge
//! (401, 403) in the status of an answer, and nowhere else (RFC 9110 section 11.4, RFC 9728).

use std::collections::HashMap;

use rejoin_core::id::ConnectionId;
use tokio::sync::oneshot;

use crate::upstream::{CallId, Challenge};

/// The POSTs of a session whose server may still answer them with a challenge.
#[derive(Default)]
pub(super) struct Heads {
    /// Streams that were opened just now, until it is known what is asked for them.
    opened: HashMap<ConnectionId, oneshot::Sender<Challenge>>,
    /// Calls that were asked for alone. Dropping a sender lets the head of its answer go.
    asked: HashMap<CallId, Asked>,
    /// Challenges to POSTs that are answered as one JSON body.
    news: Vec<(ConnectionId, Challenge)>,
}

struct Asked {
    connection: ConnectionId,
    /// `None`: the POST has no stream, or the head of it is out.
    stream: Option<oneshot::Sender<Challenge>>,
}

impl Heads {
    /// A stream is opened as the answer to this POST.
    pub(super) fn open(&mut self, connection: ConnectionId) -> oneshot::Receiver<Challenge> {
        let (sender, receiver) = oneshot::channel();
        self.opened.insert(connection, sender);
        receiver
    }

    /// The server is asked for what this POST asks for, and nothing else does.
    pub(super) fn ask(&mut self, call: CallId, connection: ConnectionId) {
        let stream = self.opened.remove(&connection);
        self.asked.insert(call, Asked { connection, stream });
    }

    /// Lets the heads go of streams for which the server is asked nothing.
    pub(super) fn let_others_go(&mut self) {
        self.opened.clear();
    }

    /// What came of this call is no challenge.
    pub(super) fn let_go(&mut self, call: CallId) {
        self.asked.remove(&call);
    }

    /// Nothing comes any more.
    pub(super) fn let_all_go(&mut self) {
        self.asked.clear();
    }

    /// The server challenges the client of this call.
    pub(super) fn challenge(&mut self, call: CallId, challenge: Challenge) {
        let Some(Asked { connection, stream }) = self.asked.remove(&call) else { return };
        match stream {
            // Fails if its head went already, or its client left.
            Some(stream) => drop(stream.send(challenge)),
            None => self.news.push((connection, challenge)),
        }
    }

    /// Challenges to POSTs without a stream.
    pub(super) fn news(&mut self) -> Vec<(ConnectionId, Challenge)> {
        std::mem::take(&mut self.news)
    }
}
