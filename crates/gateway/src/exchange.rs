//! What becomes of one exchange that carries a stream: the body says what it hands over, the socket
//! says what arrives, and the session driver is told, in order (design section 3, "evidence").
//!
//! Three parts share an exchange: [`Attached`] stays with the driver, [`Reporter`] with the body,
//! and [`Watcher`] runs as a task from the answer until nothing more can be learned, at most
//! `reset_window` after the stream's end or until the TCP connection is gone.
//!
//! Body and driver talk through two `watch` channels: both always hold the whole state, so that
//! nothing is lost, nothing blocks, and nothing piles up behind a connection that does not move.

mod grace;
mod watcher;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rejoin_core::effect::Command;
use rejoin_core::id::{ConnectionId, Seq};
use rejoin_core::limits::Limits;
use tokio::sync::{mpsc, watch};

use crate::driver::Mail;
use crate::tap::{Mark, Wire};
pub(crate) use watcher::Watcher;

/// The socket under an exchange, and the exchange's number on it.
#[derive(Clone)]
pub(crate) struct Observed {
    wire: Wire,
    exchange: u64,
    /// Reads that had brought bytes when the request had been read to its end.
    reads: u64,
}

impl Observed {
    /// The running exchange of a connection.
    pub(crate) fn now(wire: Wire) -> Self {
        let (exchange, reads) = (wire.exchange(), wire.reads());
        Self { wire, exchange, reads }
    }

    /// Waits for the connection's next request. True if it was sent after the last frame had been
    /// handed over, at which time `reads` had brought bytes; one that was pipelined before says
    /// nothing about this answer.
    async fn next_request(&self, reads: u64) -> bool {
        let reads_at_next = self.wire.next_exchange(self.exchange).await;
        self.reads == reads && reads_at_next > reads
    }
}

/// What a body is told to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// How many liveness comments were asked for.
    pub(crate) probes: u64,
    /// The first order to end.
    pub(crate) end: Option<EndOrder>,
}

/// How a body is to end: with the last chunk, after a `retry:` event if there is a value for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndOrder {
    pub(crate) retry_ms: Option<u64>,
    /// An event of which a part has left comes whole first: some clients take what a clean end
    /// leaves unfinished.
    pub(crate) after_event: bool,
}

impl EndOrder {
    /// For a connection whose client has another one, or takes nothing.
    fn at_once(retry_ms: Option<u64>) -> Self {
        Self { retry_ms, after_event: false }
    }
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// The stream's last event and the last chunk were handed over.
    Final,
    /// It was told to.
    Told,
    /// It was dropped, or could not read the log.
    Lost,
}

/// What a body has handed over so far.
#[derive(Clone, Copy, Debug, Default)]
struct Handed {
    frames: u64,
    first: Option<Handover>,
    newest: Option<Handover>,
    /// The frame that completes the replay.
    replay: Option<Handover>,
    /// The newest liveness comment.
    probe: Option<Handover>,
    /// Reads that had brought bytes when the newest frame was handed over.
    reads: u64,
    end: Option<BodyEnd>,
}

/// A frame that was handed over: the how manyth, and its mark if the socket is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handover {
    frame: u64,
    mark: Option<Mark>,
}

/// What one frame completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Milestones {
    /// The high-water mark of the replay is in it.
    pub(crate) replay: bool,
    /// A liveness comment is in it.
    pub(crate) probe: bool,
}

/// The driver's part of an exchange.
pub(crate) struct Attached {
    orders: Arc<watch::Sender<Orders>>,
    sent: Arc<AtomicU64>,
    reported: u64,
}

impl Attached {
    /// Passes a command to the body.
    pub(crate) fn command(&self, command: Command) {
        let end = match command {
            Command::Probe => {
                return self.orders.send_modify(|orders| orders.probes += 1);
            }
            Command::Fence { retry_ms } => EndOrder::at_once(Some(retry_ms)),
            Command::Finish { retry_ms } => EndOrder { retry_ms, after_event: true },
            // A command this version does not know can only be obeyed by ending.
            _ => EndOrder::at_once(None),
        };
        order_end(&self.orders, end);
    }

    /// The last event handed over, if that moved since it was last asked for.
    pub(crate) fn progress(&mut self) -> Option<Seq> {
        let sent = self.sent.load(Ordering::Acquire);
        let moved = sent > self.reported;
        self.reported = sent;
        moved.then_some(Seq(sent))
    }

    /// True once the body is gone, and what it handed over.
    pub(crate) fn is_gone(&self) -> bool {
        self.orders.is_closed()
    }
}

fn order_end(orders: &watch::Sender<Orders>, end: EndOrder) {
    orders.send_if_modified(|orders| {
        let is_first = orders.end.is_none();
        orders.end = orders.end.or(Some(end));
        is_first
    });
}

/// The body's part of an exchange.
pub(crate) struct Reporter {
    wire: Option<Wire>,
    handed: watch::Sender<Handed>,
    sent: Arc<AtomicU64>,
}

impl Reporter {
    /// A frame is about to be returned from `poll_frame`. Must be called inside it.
    pub(crate) fn hand(&self, sent: Seq, milestones: Milestones, end: Option<BodyEnd>) {
        let mark = self.wire.as_ref().map(Wire::hand);
        let reads = self.wire.as_ref().map_or(0, Wire::reads);
        self.sent.store(sent.0, Ordering::Release);
        self.handed.send_modify(|handed| {
            handed.frames += 1;
            let handover = Handover { frame: handed.frames, mark };
            handed.first = handed.first.or(Some(handover));
            handed.newest = Some(handover);
            handed.reads = reads;
            if milestones.replay {
                handed.replay = handed.replay.or(Some(handover));
            }
            if milestones.probe {
                handed.probe = Some(handover);
            }
            handed.end = end;
        });
    }

    /// The body ends without a further frame. The first end counts.
    pub(crate) fn end(&self, end: BodyEnd) {
        self.handed.send_if_modified(|handed| {
            let is_first = handed.end.is_none();
            handed.end = handed.end.or(Some(end));
            is_first
        });
    }
}

/// What a new exchange needs to know.
pub(crate) struct Exchange<'a> {
    pub(crate) connection: ConnectionId,
    /// `None`: no socket can be seen; what is handed over counts as acknowledged.
    pub(crate) observed: Option<Observed>,
    /// The cursor that the body starts from.
    pub(crate) after: Seq,
    /// True if the first frame's acknowledgement must be reported.
    pub(crate) held: bool,
    /// True if the stream begins with a replay.
    pub(crate) replays: bool,
    pub(crate) limits: &'a Limits,
}

impl Exchange<'_> {
    /// Makes the parts; the last one is the body's view of its orders.
    pub(crate) fn open(
        self,
        inbox: mpsc::Sender<Mail>,
    ) -> (Attached, Reporter, Watcher, watch::Receiver<Orders>) {
        let (orders, ordered) = watch::channel(Orders::default());
        let (handing, handed) = watch::channel(Handed::default());
        let orders = Arc::new(orders);
        let sent = Arc::new(AtomicU64::new(self.after.0));
        let attached = Attached {
            orders: Arc::clone(&orders),
            sent: Arc::clone(&sent),
            reported: self.after.0,
        };
        let reporter = Reporter {
            wire: self.observed.as_ref().map(|observed| observed.wire.clone()),
            handed: handing,
            sent: Arc::clone(&sent),
        };
        let observation = self.observed.as_ref().map(|observed| observed.wire.observe());
        let watcher = Watcher {
            observation,
            connection: self.connection,
            observed: self.observed,
            handed,
            sent,
            orders,
            inbox,
            wants_headers: self.held,
            wants_replay: self.replays,
            probe: None,
            retry_ms: self.limits.retry_ms,
            stall: Duration::from_millis(self.limits.replay_stall_ms),
            reset_window: Duration::from_millis(self.limits.reset_window_ms),
            end_grace: Duration::from_millis(self.limits.stream_end_grace_ms),
            end_max: Duration::from_millis(self.limits.replay_max_ms),
        };
        (attached, reporter, watcher, ordered)
    }
}
