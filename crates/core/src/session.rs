//! The state machine of one session (design sections 3 to 6).
//!
//! Inputs go in with `now`, a batch that must be durable and effects come out. One file per kind of
//! input; [`facts`] turns the state into what [`crate::policy::decide`] judges.

mod check;
mod claim;
mod client;
mod continuation;
mod facts;
#[cfg(feature = "model-check")]
mod fingerprint;
mod get;
mod journal;
mod mark;
mod post;
mod record;
mod restart;
mod retention;
mod room;
mod route;
mod row;
mod rows;
mod safeguard;
mod setting;
mod timer;
mod undo;
mod upstream;
mod view;
mod waiting;
mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

pub use check::Footprint;
pub use continuation::{Continuation, OpenRequest, UpstreamCursor};
#[cfg(feature = "model-check")]
pub use fingerprint::Judgement;
pub use restart::{Stored, Tail};
pub use room::BackPressure;
pub use row::{Reserved, SessionRow, read_row};
#[cfg(feature = "model-check")]
pub use safeguard::Safeguard;
pub use view::{CallView, SessionView, StreamView};

use crate::effect::{Effect, Output};
use crate::id::{CallId, ConnectionId, Digest32, Epoch, EventId, Seq, StreamId};
use crate::input::Input;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::revision::Revision;
use crate::settings::Settings;
use crate::stream::{Stream, StreamState};
use crate::tool::Tools;

use setting::KeptSettings;
use timer::Timer;
use undo::Undo;
use waiting::Waiter;

/// What a session is made of when `initialize` succeeded.
#[derive(Clone, Debug)]
pub struct SessionStart {
    /// SHA-256 of the session id.
    pub session: Digest32,
    /// The ledger's epoch, as advertised to clients that send tokens.
    pub ledger_epoch: u64,
    /// Random, below 2^52: its calls are numbered from the next number on.
    pub call_base: CallId,
    /// Random; makes its event ids unknown to every other session.
    pub epoch: Epoch,
    /// The revision that the client asked for: decides about priming.
    pub asked: Revision,
    /// The revision that was agreed.
    pub agreed: Revision,
    /// What its gateway needs to serve it again after a restart; opaque here.
    pub origin: Bytes,
    /// How its upstream goes on with it after a restart; `None`: it cannot.
    pub continuation: Option<Continuation>,
    /// What the operator chose.
    pub settings: Arc<Settings>,
}

/// The state machine of one session: [`handle`](Self::handle) inputs in order, commit and carry
/// out what comes out, and wake it with [`Input::Tick`] at [`poll_timeout`](Self::poll_timeout).
#[derive(Clone, Debug)]
pub struct Session {
    start: SessionStart,
    ledger: Ledger,
    streams: BTreeMap<StreamId, Stream>,
    last_seq: Seq,
    last_stream: StreamId,
    tools: Tools,
    /// POSTs that wait, and the order of those in the queue (row 16).
    waiting: BTreeMap<ConnectionId, Waiter>,
    queue: VecDeque<ConnectionId>,
    /// POSTs that wait for the JSON answer of a call.
    replies: HashMap<CallId, ConnectionId>,
    /// Streams by the connection that carries them or carried their end.
    carried: HashMap<ConnectionId, StreamId>,
    /// Streams in state owed.
    owed: BTreeSet<StreamId>,
    replays: BTreeMap<ConnectionId, Replay>,
    server_requests: BTreeMap<u64, ServerRequest>,
    last_server_request: u64,
    upstream: UpstreamState,
    timers: BTreeSet<(u64, Timer)>,
    /// True if waiting POSTs must be decided again.
    review_due: bool,
    /// True if the client has ever resumed or confirmed anything.
    presented_cursor: bool,
    /// True once a stream was abandoned although no cursor was ever presented: such a client never
    /// resumes, so its owed streams hold nothing (design section 3).
    never_resumes: bool,
    last_activity_ms: u64,
    log_bytes: u64,
    /// Since when `log_bytes` is beyond the session's quota.
    over_quota_since_ms: Option<u64>,
    /// What `log_bytes` may grow to before the principal's or the store's quota is used up.
    room_max_bytes: u64,
    undo: Option<Undo>,
    changed_calls: BTreeSet<CallId>,
    changed_streams: BTreeSet<StreamId>,
    /// True if something changed that stands in the session's own row.
    row_changed: bool,
    reserved: Reserved,
    /// Events up to this one that are not in the log may have been lost with a process.
    lost_through: Seq,
    ended: bool,
    #[cfg(feature = "model-check")]
    judgements: Vec<Judgement>,
}

/// A replay whose gate is closed (design section 6).
#[derive(Clone, Debug)]
struct Replay {
    stream: StreamId,
    until: Seq,
    /// True once the peer's kernel had acknowledged all of it.
    acknowledged: bool,
    /// True if the connection closed or carried a next request.
    settled: bool,
}

/// A request of the server that its client has not answered.
#[derive(Clone, Debug)]
struct ServerRequest {
    upstream_id: Bytes,
    stream: StreamId,
    seq: Seq,
    answered: bool,
}

/// What is known of the server behind the session.
#[derive(Clone, Debug, Default)]
struct UpstreamState {
    /// True from `Closed` until it was opened again.
    down: bool,
    /// True from `Closed` until one call was told (row 17).
    lost_untold: bool,
    /// `notifications/initialized`, as the client sent it.
    initialized: Option<Bytes>,
    /// What it must be told again when it is started again.
    settings: KeptSettings,
    /// How it goes on after a restart. `None`: it cannot, or it is gone.
    continuation: Option<Continuation>,
}

impl Session {
    /// A new session, with its standalone stream.
    pub fn new(start: SessionStart, now_ms: u64) -> Self {
        let standalone = Stream::new(StreamId::STANDALONE, StreamState::Live, now_ms);
        let call_base = start.call_base;
        let reserved = start.row().reserved;
        let continuation = start.continuation.clone();
        let idle_at_ms = now_ms + start.settings.limits.session_idle_ms;
        Self {
            start,
            ledger: Ledger::starting_after(call_base),
            streams: BTreeMap::from([(StreamId::STANDALONE, standalone)]),
            last_seq: Seq::ORIGIN,
            last_stream: StreamId::STANDALONE,
            tools: Tools::default(),
            waiting: BTreeMap::new(),
            queue: VecDeque::new(),
            replies: HashMap::new(),
            carried: HashMap::new(),
            owed: BTreeSet::new(),
            replays: BTreeMap::new(),
            server_requests: BTreeMap::new(),
            last_server_request: 0,
            upstream: UpstreamState { continuation, ..UpstreamState::default() },
            timers: BTreeSet::from([
                (idle_at_ms, Timer::Idle),
                (now_ms + timer::SWEEP_INTERVAL_MS, Timer::Sweep),
            ]),
            review_due: false,
            presented_cursor: false,
            never_resumes: false,
            last_activity_ms: now_ms,
            log_bytes: 0,
            over_quota_since_ms: None,
            room_max_bytes: u64::MAX,
            undo: None,
            changed_calls: BTreeSet::new(),
            changed_streams: BTreeSet::new(),
            row_changed: false,
            reserved,
            lost_through: Seq::ORIGIN,
            ended: false,
            #[cfg(feature = "model-check")]
            judgements: Vec::new(),
        }
    }

    /// Takes one input; what it causes is added to `out`. After `Effect::End` nothing more comes.
    ///
    /// An output with rows of tokens or scopes (`batch.dedup`) must be committed before the next
    /// input. If a row does not hold, the whole output is dropped and the next input is
    /// [`Input::TokenTaken`] with the call that wrote the row (`record.owner.call`): a claim is
    /// undone and decided again, anything else comes again without the row. Such a claim is always
    /// alone in its output.
    pub fn handle(&mut self, input: Input, now_ms: u64, out: &mut Output) {
        #[cfg(feature = "model-check")]
        self.judgements.clear();
        if self.ended {
            return;
        }
        if !matches!(input, Input::TokenTaken { .. }) {
            self.undo = None;
        }
        match input {
            Input::Post(post) => self.handle_post(post, now_ms, out),
            Input::Gone(connection) => self.handle_gone(connection, now_ms, out),
            Input::Get(get) => self.handle_get(get, now_ms, out),
            Input::Notify(message) => self.handle_notification(&message, now_ms, out),
            Input::Respond(message) => self.handle_response(&message, now_ms, out),
            Input::Acknowledge(ids) => self.handle_acknowledgement(&ids, now_ms, out),
            Input::Delete => self.handle_delete(now_ms, out),
            Input::Wire(connection, event) => self.handle_wire(connection, event, now_ms, out),
            Input::Upstream(event) => self.handle_upstream(event, now_ms, out),
            Input::Loaded { connection, payload } => {
                self.handle_loaded(connection, payload, now_ms, out);
            }
            Input::TokenTaken { call, record } => {
                self.handle_token_taken(call, record, now_ms, out);
            }
            Input::Release(call) => self.handle_release(call, now_ms, out),
            Input::Room { bytes } => {
                self.room_max_bytes = self.log_bytes.saturating_add(bytes);
                self.make_way(now_ms, out);
            }
            Input::Drain { retry_ms } => self.handle_drain(retry_ms, now_ms, out),
            Input::Restarted => self.handle_restarted(now_ms, out),
            Input::Tick => self.handle_tick(now_ms, out),
        }
        self.watch_quota(now_ms);
        self.write_rows(out);
        if self.undo.is_none() && !out.batch.dedup.is_empty() {
            let refused = (out.batch.clone(), out.effects.clone());
            self.undo = Some(Undo::Outcome(Box::new(refused)));
        }
    }

    /// When it wants [`Input::Tick`] at the latest (same clock as `now_ms`); 0: at once.
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.ended {
            return None;
        }
        if self.review_due {
            return Some(0);
        }
        self.timers.first().map(|(at_ms, _)| *at_ms)
    }

    /// What it was made of.
    pub fn start(&self) -> &SessionStart {
        &self.start
    }

    /// Bytes of its events in the log.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    fn limits(&self) -> &Limits {
        &self.start.settings.limits
    }

    fn event_id(&self, stream: StreamId, seq: Seq) -> EventId {
        EventId { epoch: self.start.epoch, stream, seq }
    }

    fn end(&mut self, out: &mut Output) {
        self.ended = true;
        // Its client may be told before all of it is removed.
        self.row_changed = true;
        out.batch.durable = true;
        out.effects.push(Effect::End);
    }
}
