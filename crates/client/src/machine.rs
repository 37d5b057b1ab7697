//! What a client does, as a pure function of what it was told: inputs and the time in, requests and
//! messages out (design sections 3 to 6; `docs/protocol.md` sections 3 to 8).
//!
//! It is split by kind of input: `host` takes the host's messages, `answer` what becomes of an
//! exchange, `stream` the events, `timer` the time. What follows from them is in `queue` (what may
//! leave now), `resume` (a stream that was lost), `recorded` (an answer without what came before
//! it), `refusal`, `status` (an answer that is none), `session` (the session and its loss), `knock`
//! (does it live?), `restore` (what a new one must be told), `standalone` and `ending` (every call
//! ends).
mod answer;
mod call;
mod compose;
mod ending;
mod host;
mod knock;
mod notice;
mod queue;
mod random;
mod recorded;
mod refusal;
mod restore;
mod resume;
mod session;
mod standalone;
mod status;
mod stream;
mod timer;
mod tools;
mod track;
mod wire;

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use rejoin_core::message::{IdKey, Message};
use rejoin_core::sse::Seen;

use self::call::{Call, CallKey};
use self::queue::{Note, Queued};
use self::random::Random;
use self::session::Session;
use self::standalone::Standalone;
use self::tools::Tools;
use crate::limits::ClientLimits;
pub use notice::{Because, CallName, Notice};
pub use wire::{Answer, ExchangeId, Head, Input, Media, Method, Output, Request};

/// What a machine is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits.
    pub limits: ClientLimits,
    /// Believe the server's own `readOnlyHint` and `idempotentHint`.
    pub trusts_annotations: bool,
    /// The server, as messages to a person name it: its URL without what may be secret.
    pub server: String,
    /// The credential that is sent, as messages to a person name it: never its value. Empty: none.
    pub credential: String,
    /// The option by which a person gives another one, as messages name it. Empty: there is none.
    pub credential_option: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: ClientLimits::default(),
            trusts_annotations: true,
            server: "its URL".to_owned(),
            credential: String::new(),
            credential_option: String::new(),
        }
    }
}

/// One client of one server.
pub struct Machine {
    settings: Settings,
    /// The time that counts: without [`Self::paused_ms`].
    now_ms: u64,
    /// Time in which nobody ran this.
    paused_ms: u64,
    random: Random,
    /// The last number given to a call, an exchange or a message.
    numbers: u64,
    session: Session,
    calls: BTreeMap<CallKey, Call>,
    /// Calls by the ids under which the server knows them.
    wires: HashMap<u64, CallKey>,
    /// Ids of calls that were answered with a task, and the host's progress tokens for them, which
    /// are valid until the task ends. The oldest first.
    tasks: VecDeque<(u64, Bytes)>,
    /// Calls by the ids under which the host knows them.
    hosts: HashMap<IdKey, CallKey>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
    queue: VecDeque<Queued>,
    notes: BTreeMap<u64, Note>,
    /// Bytes of calls and notes.
    pending_bytes: usize,
    standalone: Standalone,
    seen: Seen,
    /// What was processed of each stream and not confirmed yet.
    acks: BTreeMap<StreamKey, String>,
    /// Requests of the server that the host has not answered, by their ids as written.
    asked: BTreeMap<u64, Bytes>,
    tools: Tools,
    held: usize,
    /// The host is gone; when the session is ended.
    end_ms: Option<u64>,
    out: Vec<Output>,
}

/// A logical stream of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StreamKey {
    Standalone,
    Call(CallKey),
}

/// What an exchange is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A POST of a call.
    Call(CallKey),
    /// A GET for the rest of its stream.
    Resume(CallKey),
    /// A notification or response of the host.
    Note(u64),
    /// The standalone stream.
    Standalone,
    /// `initialize`, once more.
    Reopen,
    /// `notifications/initialized` of a session that was opened anew.
    Reopened,
    /// Does the session live? Asked for a call, or for nobody.
    Knock(Option<CallKey>),
    /// DELETE.
    Goodbye,
    /// Nobody waits for it any more; it is read to its end.
    Leftover,
}

impl Purpose {
    /// Whether a success says that the server knows the session.
    fn is_asking(self) -> bool {
        matches!(self, Self::Call(_) | Self::Resume(_) | Self::Standalone | Self::Knock(_))
    }
}

struct Exchange {
    purpose: Purpose,
    /// Of the session in which it was sent.
    generation: u64,
    opened_ms: u64,
    head: Option<Head>,
    /// What it confirms, once it is answered.
    acks: Vec<(StreamKey, String)>,
    /// When it is closed.
    close_ms: Option<u64>,
}

impl Machine {
    /// A machine; `seed` is randomness that nobody else knows.
    pub fn new(settings: Settings, seed: [u8; 32]) -> Self {
        let limits = &settings.limits;
        Self {
            now_ms: 0,
            paused_ms: 0,
            random: Random::new(seed),
            numbers: 0,
            session: Session::default(),
            calls: BTreeMap::new(),
            wires: HashMap::new(),
            tasks: VecDeque::new(),
            hosts: HashMap::new(),
            exchanges: BTreeMap::new(),
            queue: VecDeque::new(),
            notes: BTreeMap::new(),
            pending_bytes: 0,
            standalone: Standalone::new(limits),
            seen: Seen::new(limits.seen_events_max),
            acks: BTreeMap::new(),
            asked: BTreeMap::new(),
            tools: Tools::new(limits.tools_max),
            held: 0,
            end_ms: None,
            out: Vec::new(),
            settings,
        }
    }

    /// Takes one input at `now_ms`, a clock that does not go back. Returns what is to be done, in
    /// order.
    pub fn handle(&mut self, now_ms: u64, input: Input) -> Vec<Output> {
        self.advance(now_ms);
        match input {
            Input::Host(bytes) => self.host_said(bytes),
            Input::HostGone => self.host_gone(),
            Input::Answer(exchange, answer) => self.answered(exchange, answer),
            Input::Tick => {}
        }
        self.run_timers();
        self.send_what_may_leave();
        std::mem::take(&mut self.out)
    }

    /// When the machine wants a [`Input::Tick`] at the latest.
    pub fn wake_ms(&self) -> Option<u64> {
        self.next_timer().map(|at_ms| at_ms.saturating_add(self.paused_ms))
    }

    /// Takes the time. A process that was stopped, or whose computer slept, comes late to what it
    /// waits for: that time does not count, and what was awaited for long has a while left, in
    /// which what came meanwhile is looked at and what died meanwhile is noticed.
    fn advance(&mut self, now_ms: u64) {
        let now_ms = now_ms.saturating_sub(self.paused_ms).max(self.now_ms);
        let due_ms = self.next_timer().map_or(now_ms, |at_ms| at_ms.max(self.now_ms));
        let (pause_min_ms, left_ms) = (self.limits().pause_min_ms, self.limits().pause_left_ms);
        let counted_ms = match due_ms - self.now_ms {
            _ if now_ms.saturating_sub(due_ms) < pause_min_ms => now_ms,
            // Always: else a machine that is always late would never get there.
            waited_ms if waited_ms <= left_ms => due_ms,
            _ => due_ms - left_ms,
        };
        self.paused_ms += now_ms - counted_ms;
        self.now_ms = counted_ms;
    }

    /// Calls of the host that have not ended.
    pub fn pending_calls(&self) -> usize {
        self.calls.values().filter(|call| !call.is_cancelled() && !call.is_own).count()
    }

    fn limits(&self) -> &ClientLimits {
        &self.settings.limits
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A call as a person may know it.
    fn name(&self, key: CallKey) -> CallName {
        self.calls.get(&key).map(Call::name).unwrap_or_default()
    }

    fn notice(&mut self, notice: Notice) {
        self.out.push(Output::Notice(notice));
    }

    fn dropped(&mut self, what: impl Into<String>) {
        self.notice(Notice::Dropped { what: what.into() });
    }

    fn open(
        &mut self,
        purpose: Purpose,
        request: Request,
        acks: Vec<(StreamKey, String)>,
    ) -> ExchangeId {
        let id = ExchangeId(self.number());
        let exchange = Exchange {
            purpose,
            generation: self.session.generation,
            opened_ms: self.now_ms,
            head: None,
            acks,
            close_ms: None,
        };
        self.exchanges.insert(id, exchange);
        self.out.push(Output::Open(id, request));
        id
    }

    fn close(&mut self, id: ExchangeId) {
        if self.exchanges.remove(&id).is_some() {
            self.out.push(Output::Close(id));
        }
    }

    /// Reads an exchange to its end, for a while, though nobody waits for it: a stream that is
    /// dropped before its last chunk looks lost to its server.
    fn linger(&mut self, id: ExchangeId) {
        let close_ms = self.now_ms.saturating_add(self.limits().linger_ms);
        if let Some(exchange) = self.exchanges.get_mut(&id) {
            exchange.purpose = Purpose::Leftover;
            exchange.close_ms = Some(close_ms);
        }
    }

    fn is_repeatable(&self, message: &Message) -> bool {
        match message.method().unwrap_or_default() {
            "tools/call" => {
                self.settings.trusts_annotations
                    && message.tool_name().is_some_and(|name| self.tools.is_repeatable(name))
            }
            method => tools::is_repeatable_method(method),
        }
    }
}

impl std::fmt::Debug for Machine {
    /// What each call waits for. No id of a session, token or payload is in it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let calls: BTreeMap<_, _> =
            self.calls.iter().map(|(key, call)| (key, (&call.state, &call.track.replay))).collect();
        let purposes: BTreeMap<_, _> =
            self.exchanges.iter().map(|(id, exchange)| (id.0, exchange.purpose)).collect();
        f.debug_struct("Machine")
            .field("now_ms", &self.now_ms)
            .field("calls", &calls)
            .field("exchanges", &purposes)
            .field("queue", &self.queue)
            .field("generation", &self.session.generation)
            .finish_non_exhaustive()
    }
}
