//! A session as the HTTP face sees it: ask, and get exactly one answer.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use rejoin_core::effect::Note;
use rejoin_core::id::{CallId, ConnectionId, Digest32, EventId, hex};
use rejoin_core::input::{Get, GetCursor, Input, Post, Request};
use rejoin_core::message::Message;
use rejoin_core::rejection::Rejection;
use rejoin_core::session::{Session, SessionStart, SessionView, Stored};
use rejoin_store::{Fence, PrincipalKey, Store, Version};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

pub use crate::body::StreamBody;
pub use crate::driver::Clock;
use crate::driver::{self, Mail, Unsent, Waiting};
use crate::exchange::Observed;
pub use crate::room::MessageRoom;
use crate::tap::Wire;
use crate::upstream::{Challenge, Opened, Upstream};

/// Inputs that wait for a session's driver. A POST or GET beyond is answered `Overloaded`.
const INBOX_MAX: usize = 256;

/// What logs and metrics call a session: 8 characters of its id's hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionTag(Arc<str>);

impl SessionTag {
    /// The tag of a session, by the SHA-256 of its id.
    pub fn new(session: &Digest32) -> Self {
        Self(hex(&session[..4]).into())
    }

    /// The 8 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Takes what sessions decide, for the log and the metrics. Called in the driver's task, after
/// what is noted is durable: it must not block.
pub trait NoteSink: Send + Sync + 'static {
    /// Something was decided, or moved.
    fn note(&self, session: &SessionTag, note: &Note);
}

/// How long a request waits for what is known of the exchange before it on the same connection.
const EVIDENCE_MAX: Duration = Duration::from_millis(20);

/// Numbers the exchanges of a process. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct ConnectionIds(Arc<AtomicU64>);

impl ConnectionIds {
    /// A number that was not given out before.
    pub fn next(&self) -> ConnectionId {
        ConnectionId(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// What a session's driver works with.
pub struct DriverParts {
    /// Where the session's log and ledger are.
    pub store: Arc<dyn Store>,
    /// Who pays for them.
    pub principal: PrincipalKey,
    /// The right to write to them, from [`Store::create`].
    pub fence: Fence,
    /// The version to commit at, from the same.
    pub version: Version,
    /// Where the session's server comes from, should it have to be started again.
    pub upstream: Arc<dyn Upstream>,
    /// The server as it was opened with `initialize`; `None`: it is opened when it is needed.
    pub opened: Option<Opened>,
    /// The `initialize` message to open it with again.
    pub initialize: Bytes,
    /// Room for messages to that server; the same for all sessions of it.
    pub sending: MessageRoom,
    /// Where decisions are logged and counted.
    pub notes: Arc<dyn NoteSink>,
    /// Numbers of exchanges; the same for all sessions of a process.
    pub connections: ConnectionIds,
    /// The clock; the same for all sessions of a process.
    pub clock: Clock,
}

/// A POST that holds requests.
pub struct PostRequest {
    /// The connection it came on; `None` if no socket can be seen (a layer, HTTP/2).
    pub wire: Option<Wire>,
    /// Its requests, with their tokens and what the store knows of these.
    pub requests: Vec<Request>,
    /// True if the body was an array (revision 2025-03-26).
    pub batch: bool,
    /// SHA-256 of the whole body.
    pub body: Digest32,
}

/// What a POST or GET is answered.
#[derive(Debug)]
pub enum Answer {
    /// 200 with an event stream.
    Stream {
        /// The body.
        body: StreamBody,
        /// The high-water mark of its replay (`Mcp-Replay-Until`).
        replay_until: Option<EventId>,
    },
    /// 200 with one JSON body.
    Json(Bytes),
    /// 401 or 403: the server did not run the call, and asks its client for a credential.
    Challenged {
        /// What it asks.
        challenge: Challenge,
        /// A JSON-RPC error that says so.
        body: Bytes,
    },
    /// The POST is refused.
    Refused {
        /// One for each request.
        rejections: Vec<Rejection>,
        /// True if the answer is an array, as the POST was.
        batch: bool,
    },
    /// 405: there is nothing to resume.
    NotResumable,
    /// 404: the session is over.
    SessionOver,
    /// 503: nothing was admitted, and it is safe to send the same again.
    Overloaded,
}

/// What became of a message that needs no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The session took it, and what follows from it is durable.
    Taken,
    /// 404: the session is over.
    SessionOver,
    /// 503: its log could not be written; the session is kept, and the same may be sent again.
    Overloaded,
}

/// Sends inputs to one session's driver. Clones are cheap. The session ends when the last one is
/// dropped and no stream is attached.
#[derive(Clone)]
pub struct SessionHandle {
    inbox: mpsc::Sender<Mail>,
    shared: Arc<Shared>,
}

struct Shared {
    tag: SessionTag,
    connections: ConnectionIds,
    life: watch::Receiver<Life>,
    /// Known once the session is over.
    unsent: Unsent,
    /// The headers that the driver knows its client by.
    presented: Mutex<HeaderMap>,
}

/// How far a session's life went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// It takes inputs.
    Running,
    /// It takes no more.
    Over {
        /// True if its log stays: it can be driven again.
        kept: bool,
    },
    /// Its server has ended, and its log is removed, unless it is kept.
    Gone {
        /// As before.
        kept: bool,
    },
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionHandle").field(&self.shared.tag).finish()
    }
}

impl SessionHandle {
    /// Starts the driver of a new session. Must be called inside a tokio runtime.
    pub fn spawn(start: SessionStart, parts: DriverParts) -> Self {
        let session = Session::new(start, parts.clock.now_ms());
        Self::drive(session, Vec::new(), Unsent::default(), parts)
    }

    /// Starts the driver of a session as a store has it; `unsent` is what the driver before it, if
    /// there was one in this process, knew better.
    pub(crate) fn restart(
        start: SessionStart,
        stored: Stored,
        unsent: &Unsent,
        parts: DriverParts,
    ) -> Self {
        let (session, mut first) = Session::restart(start, stored, parts.clock.now_ms());
        let unsent = unsent.correct(&mut first);
        Self::drive(session, first, unsent, parts)
    }

    fn drive(session: Session, first: Vec<Input>, unsent: Unsent, parts: DriverParts) -> Self {
        let (inbox, mail) = mpsc::channel(INBOX_MAX);
        let (living, life) = watch::channel(Life::Running);
        let tag = SessionTag::new(&session.start().session);
        let connections = parts.connections.clone();
        let driven = (session, first);
        let end = (living, unsent.clone());
        driver::spawn(driven, parts, tag.clone(), (inbox.downgrade(), mail), end);
        let presented = Mutex::default();
        Self { inbox, shared: Arc::new(Shared { tag, connections, life, unsent, presented }) }
    }

    /// What logs call the session.
    pub fn tag(&self) -> &SessionTag {
        &self.shared.tag
    }

    /// A POST with requests. Whoever drops the future withdraws it, if it was not answered yet.
    pub async fn post(&self, post: PostRequest) -> Answer {
        let PostRequest { wire, requests, batch, body } = post;
        let connection = self.shared.connections.next();
        let observed = wire.is_some();
        let post = Post { connection, observed, requests, batch, body };
        self.ask(Input::Post(post), connection, wire).await
    }

    /// A GET. Whoever drops the future withdraws it.
    pub async fn get(&self, cursor: GetCursor, wire: Option<Wire>) -> Answer {
        let connection = self.shared.connections.next();
        let get = Get { connection, observed: wire.is_some(), cursor };
        self.ask(Input::Get(get), connection, wire).await
    }

    /// The headers of the client's newest request, for an upstream that forwards some of them. What
    /// the session is given from here on goes with these. False: the driver has no room for them
    /// at the moment, or is over.
    pub(crate) fn present(&self, headers: HeaderMap) -> bool {
        // Kept locked while they are sent, so that the driver's are always the last ones here.
        let mut presented = self.shared.presented.lock().unwrap_or_else(PoisonError::into_inner);
        if *presented == headers {
            return true;
        }
        let taken = self.inbox.try_send(Mail::Headers(headers.clone())).is_ok();
        if taken {
            *presented = headers;
        }
        taken
    }

    /// A client notification.
    pub async fn notify(&self, message: Message) -> Delivered {
        self.tell(Input::Notify(message)).await
    }

    /// A client's response to a server request.
    pub async fn respond(&self, message: Message) -> Delivered {
        self.tell(Input::Respond(message)).await
    }

    /// `Mcp-Stream-Ack`.
    pub async fn acknowledge(&self, ids: Vec<EventId>) -> Delivered {
        self.tell(Input::Acknowledge(ids)).await
    }

    /// DELETE. After `Taken` the session takes nothing more.
    pub async fn delete(&self) -> Delivered {
        self.tell(Input::Delete).await
    }

    /// An operator ends every refusal that a call causes.
    pub async fn release(&self, call: CallId) -> Delivered {
        self.tell(Input::Release(call)).await
    }

    /// The gateway is about to stop: streams end, telling clients to come back after `retry_ms`.
    pub async fn drain(&self, retry_ms: u64) -> Delivered {
        self.tell(Input::Drain { retry_ms }).await
    }

    /// The session as it is now; `None` if it is over.
    pub async fn view(&self) -> Option<SessionView> {
        let (reply, view) = oneshot::channel();
        self.inbox.send(Mail::View(reply)).await.ok()?;
        view.await.ok()
    }

    /// True once the session takes nothing more: its id is unknown from now on.
    pub fn is_over(&self) -> bool {
        *self.shared.life.borrow() != Life::Running
    }

    /// Waits until the session is over.
    pub async fn over(&self) {
        self.reached(Life::Over { kept: false }).await;
    }

    /// Waits until nothing of the session is left: its server ended, its log removed or kept.
    pub async fn gone(&self) {
        self.reached(Life::Gone { kept: false }).await;
    }

    /// True if the session is over and its log is kept: it can be driven again.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(*self.shared.life.borrow(), Life::Over { kept: true } | Life::Gone { kept: true })
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(*self.shared.life.borrow(), Life::Gone { .. })
    }

    /// Calls that never went to the server, whatever the log says.
    pub(crate) fn unsent(&self) -> &Unsent {
        &self.shared.unsent
    }

    /// Ends driver and server; the log stays, if the store outlives the process.
    pub(crate) async fn suspend(&self) {
        // A driver that is gone has done so.
        let _told = self.inbox.send(Mail::Suspend).await.is_ok();
    }

    async fn reached(&self, stage: Life) {
        let mut life = self.shared.life.clone();
        // A sender that is gone means the same.
        let _reached = life.wait_for(|life| *life >= stage).await.is_ok();
    }

    async fn ask(&self, input: Input, connection: ConnectionId, wire: Option<Wire>) -> Answer {
        let (reply, answer) = oneshot::channel();
        let observed = wire.clone().map(Observed::now);
        if let Some(wire) = wire {
            wire.told(EVIDENCE_MAX).await;
        }
        let waiting = Waiting { reply, observed, challenge: None };
        match self.inbox.try_send(Mail::Ask(input, connection, waiting)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Answer::Overloaded,
            Err(TrySendError::Closed(_)) => return self.over_answer(),
        }
        let mut guard = GoneGuard { inbox: Some(self.inbox.clone()), connection };
        let answer = answer.await.unwrap_or_else(|_| self.over_answer());
        guard.inbox = None;
        answer
    }

    /// What is answered once no driver is there: a session that is kept is not unknown.
    fn over_answer(&self) -> Answer {
        if self.is_kept() { Answer::Overloaded } else { Answer::SessionOver }
    }

    async fn tell(&self, input: Input) -> Delivered {
        let (done, taken) = oneshot::channel();
        let is_told = self.inbox.send(Mail::Tell(input, done)).await.is_ok();
        match is_told && taken.await.is_ok() {
            true => Delivered::Taken,
            false if self.is_kept() => Delivered::Overloaded,
            false => Delivered::SessionOver,
        }
    }
}

/// Tells the driver that a client left before it was answered: HTTP servers drop the handler's
/// future the moment they see that. Never blocks, and is never lost.
struct GoneGuard {
    /// `None` once answered.
    inbox: Option<mpsc::Sender<Mail>>,
    connection: ConnectionId,
}

impl Drop for GoneGuard {
    fn drop(&mut self) {
        let Some(inbox) = self.inbox.take() else { return };
        if let Err(TrySendError::Full(mail)) = inbox.try_send(Mail::Gone(self.connection))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // Fails only if the session is over.
            runtime.spawn(async move { inbox.send(mail).await.is_ok() });
        }
    }
}

#[cfg(test)]
mod tests;
