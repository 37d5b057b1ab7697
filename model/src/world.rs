//! One state of the model: the real session, and everything around it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::rejection::Reason;
use rejoin_core::session::Session;
use rejoin_core::token::{DedupKey, DedupRecord};

use crate::exchange::Exchange;
use crate::store::Store;

/// Ages beyond this are not told apart by what is checked of an intent (`repeat_window`).
const WINDOW_MAX_MS: u64 = 600_001;

/// One state.
#[derive(Clone, Debug)]
pub struct World {
    /// Virtual time.
    pub now_ms: u64,
    /// The real state machine.
    pub session: Session,
    /// What is durable, if the gateway may crash.
    pub store: Option<Store>,
    /// Every event that was appended.
    pub log: Vec<Logged>,
    /// Rows of tokens.
    pub tokens: BTreeMap<DedupKey, DedupRecord>,
    /// Every POST and GET, by connection number from 1.
    pub exchanges: Vec<Exchange>,
    /// What became of the intents.
    pub intents: Vec<Progress>,
    /// What the server was asked to run.
    pub runs: Vec<Run>,
    /// The server's state was lost, and no call was told.
    pub loss_untold: bool,
    /// Moments at which something may change that no deadline marks.
    pub marks: Vec<u64>,
    /// How often what went wrong so far.
    pub spent: Spent,
    /// What was violated on the way here.
    pub broken: u32,
    /// Epoch of the ledger.
    pub ledger_epoch: u64,
    /// Verdicts of plain rule and decision that were compared; counts, so not part of the state.
    pub compared: u32,
    /// What happened in the last step, if a story is told.
    pub told: Option<Vec<String>>,
}

/// One event of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Its stream.
    pub stream: StreamId,
    /// Its number.
    pub seq: Seq,
    /// True if the stream ends with it.
    pub last: bool,
    /// What it says.
    pub says: Says,
    /// What it carries.
    pub payload: Bytes,
}

/// What a message means to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Says {
    /// Progress.
    Progress,
    /// The answer that this call of the server gave.
    Answer(CallId),
    /// Something else: a refusal, or that the outcome is unknown.
    Error(Option<Reason>),
}

/// What became of an intent, as its client sees it.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// POSTs sent.
    pub posts: u8,
    /// GETs sent.
    pub gets: u8,
    /// The last event read of its newest stream.
    pub cursor: Option<(StreamId, Seq)>,
    /// The cursor that it acknowledged last.
    pub acked: Option<(StreamId, Seq)>,
    /// It was cancelled.
    pub cancelled: bool,
    /// Its answer: what the client believes.
    pub answer: Option<Believed>,
    /// Executions charged to it.
    pub charged: Vec<CallId>,
    /// Why it was refused last.
    pub refused: Option<Reason>,
    /// The ledger's epoch at its first attempt.
    pub epoch: u64,
    /// When its call ended, or its stream was given up, at last: the repeat window runs from then.
    pub touched_ms: Option<u64>,
}

impl Progress {
    fn hash_at<H: Hasher>(&self, now_ms: u64, state: &mut H) {
        let age = |at_ms: u64| now_ms.saturating_sub(at_ms).min(WINDOW_MAX_MS);
        (self.posts, self.gets, self.cursor, self.acked, self.cancelled).hash(state);
        (self.answer, &self.charged, self.refused, self.epoch).hash(state);
        self.touched_ms.map(age).hash(state);
    }
}

/// What a client believes of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Believed {
    /// It ran, with this result.
    Ran(CallId),
    /// Nobody knows.
    Unknown,
}

/// One call at the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Its number.
    pub call: CallId,
    /// The intent whose POST was claimed.
    pub intent: u8,
    /// How far it is.
    pub state: RunState,
    /// Events it has produced.
    pub progress: u8,
    /// It was told to stop.
    pub cancelled: bool,
}

/// How far a call is at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// On its way there.
    Coming,
    /// It runs; it has taken effect.
    Running,
    /// Over, or lost with its server.
    Over,
}

/// How often what went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spent {
    /// See [`crate::config::Faults`].
    pub closes: u8,
    /// As there.
    pub cuts: u8,
    /// As there.
    pub fins: u8,
    /// As there.
    pub resets: u8,
    /// As there.
    pub crashes: u8,
    /// As there.
    pub power_cuts: u8,
    /// As there.
    pub wipes: u8,
    /// As there.
    pub deaths: u8,
    /// As there.
    pub passes: u8,
    /// Deadlines that passed while something was on its way.
    pub delays: u8,
}

impl World {
    /// The exchange of a connection.
    pub fn exchange(&mut self, connection: ConnectionId) -> &mut Exchange {
        &mut self.exchanges[connection.0 as usize - 1]
    }

    /// The last event of a stream in the log, and if it ends the stream.
    pub fn produced(&self, stream: StreamId) -> (Seq, bool) {
        let events = self.log.iter().filter(|event| event.stream == stream);
        let until_end = events.take_while_inclusive();
        until_end.last().map_or((Seq::ORIGIN, false), |event| (event.seq, event.last))
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told {
            told.push(line());
        }
    }
}

/// Up to and with the event that ends a stream: a late result may stand behind it.
trait UntilEnd<'a>: Iterator<Item = &'a Logged> + Sized {
    fn take_while_inclusive(self) -> impl Iterator<Item = &'a Logged> {
        let mut ended = false;
        self.take_while(move |event| {
            let before = ended;
            ended |= event.last;
            !before
        })
    }
}

impl<'a, I: Iterator<Item = &'a Logged>> UntilEnd<'a> for I {}

impl Hash for World {
    /// The canonical projection: all that any later step or property looks at, times as ages.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.session.hash_at(self.now_ms, state);
        for event in &self.log {
            (event.stream, event.seq, event.last, event.says).hash(state);
        }
        for (key, record) in &self.tokens {
            (key, record.owner, std::mem::discriminant(&record.outcome)).hash(state);
        }
        if let Some(store) = &self.store {
            store.hash_at(self.session.start(), self.now_ms, state);
        }
        for exchange in &self.exchanges {
            exchange.hash_at(self.now_ms, state);
        }
        for mark in &self.marks {
            (mark - self.now_ms).hash(state);
        }
        for intent in &self.intents {
            intent.hash_at(self.now_ms, state);
        }
        (&self.runs, self.loss_untold, self.spent, self.broken).hash(state);
        self.ledger_epoch.hash(state);
    }
}

impl PartialEq for World {
    /// As the checker tells states apart: by their projection.
    fn eq(&self, other: &Self) -> bool {
        let hash = |world: &Self| {
            let mut hasher = DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        };
        hash(self) == hash(other)
    }
}
