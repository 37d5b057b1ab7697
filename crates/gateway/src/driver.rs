//! The driver: the async shell around one session's state machine (design section 4, "One
//! decision").
//!
//! One task owns a [`Session`]. Inputs come from the HTTP face, the watchers of exchanges, and
//! upstream; each goes into the state machine with `now`. What comes out is committed first, and
//! only then carried out: an output that could not be committed is dropped whole.
//!
//! ```text
//! inbox ────┐                    ┌─> commit ─> effects: answers, bodies, upstream, notes
//! upstream ─┼─> Session::handle ─┤
//! deadline ─┘                    └─> refused: undo (a token's owner won) or end the session
//! ```
//!
//! **When the store fails.** The state machine is then ahead of the log, so nothing it says may be
//! believed. A commit that certainly did nothing is tried again a few times; then the session ends:
//! POSTs and GETs of the failed commit are answered `Overloaded` (nothing of them was admitted),
//! everything else that waits `SessionOver`, streams end with the last chunk, the server is ended.
//! Where the store outlives the process the session is not over: all are answered `Overloaded`, and
//! the next request has it driven again, by one that knows which calls never left ([`Unsent`]).

mod clock;
mod commit;
mod draft;
mod effects;
mod heads;
mod link;
mod room;
mod unsent;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use http::HeaderMap;
use rejoin_core::effect::{Command, Output};
use rejoin_core::id::{ConnectionId, Digest32};
use rejoin_core::input::{Input, WireEvent};
use rejoin_core::session::{Session, SessionView};
use rejoin_store::{Fence, Store, Version};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;

pub use self::clock::Clock;
use self::commit::Uncommitted;
use self::draft::Draft;
use self::link::Link;
use self::room::RoomWatch;
pub(crate) use self::unsent::Unsent;
use crate::exchange::{Attached, Observed};
use crate::handle::{Answer, DriverParts, Life, NoteSink, SessionTag};
use crate::upstream::Challenge;

/// Inputs that share one commit, if all of them are there already.
const INPUTS_PER_COMMIT: usize = 32;
/// Payload bytes after which a commit does not wait for further inputs.
const COMMIT_BYTES: usize = 256 * 1024;

/// What a driver is sent.
pub(crate) enum Mail {
    /// A POST or GET, and who waits for its answer.
    Ask(Input, ConnectionId, Waiting),
    /// The handler of a POST or GET was dropped.
    Gone(ConnectionId),
    /// Something without an answer; told when it is done.
    Tell(Input, oneshot::Sender<()>),
    /// The client presents other headers than before.
    Headers(HeaderMap),
    /// Something was seen on a connection.
    Wire(ConnectionId, WireEvent),
    /// Somebody wants to see the session.
    View(oneshot::Sender<SessionView>),
    /// The process is about to end, and the store stays.
    Suspend,
}

/// A POST or GET that waits for its answer.
pub(crate) struct Waiting {
    pub(crate) reply: oneshot::Sender<Answer>,
    pub(crate) observed: Option<Observed>,
    pub(crate) challenge: Option<Challenge>,
}

/// One input with who is told when it is done.
struct Work {
    input: Input,
    done: Option<oneshot::Sender<()>>,
}

/// Why a driver stops.
enum Stop {
    /// The state machine said so.
    Ended,
    /// Nobody can reach the session any more.
    Forgotten,
    /// A commit failed; these POSTs and GETs are not admitted.
    StoreFailed(Vec<ConnectionId>),
    /// It was told to; the session goes on with another driver.
    Suspended,
}

struct Driver {
    session: Session,
    store: Arc<dyn Store>,
    fence: Fence,
    version: Version,
    /// Weak: a session that nobody can reach ends.
    inbox: mpsc::WeakSender<Mail>,
    mail: mpsc::Receiver<Mail>,
    work: VecDeque<Work>,
    waiting: HashMap<ConnectionId, Waiting>,
    attached: HashMap<ConnectionId, Attached>,
    link: Link,
    notes: Arc<dyn NoteSink>,
    tag: SessionTag,
    clock: Clock,
    room: RoomWatch,
    life: Arc<watch::Sender<Life>>,
    unsent: Unsent,
    is_suspended: bool,
}

/// Starts a driver, and the task that clears up after it however it ends.
pub(crate) fn spawn(
    (session, first): (Session, Vec<Input>),
    parts: DriverParts,
    tag: SessionTag,
    (inbox, mail): (mpsc::WeakSender<Mail>, mpsc::Receiver<Mail>),
    (life, unsent): (watch::Sender<Life>, Unsent),
) {
    let DriverParts { store, fence, upstream, opened, initialize, clock, .. } = parts;
    let limits = &session.start().settings.limits;
    let sending = parts.sending.share();
    let is_kept = store.epoch().is_some();
    let link = Link::new(upstream, opened, initialize, tag.clone(), sending, is_kept, limits);
    let key = session.start().session;
    let life = Arc::new(life);
    let driver = Driver {
        session,
        store: Arc::clone(&store),
        fence,
        version: parts.version,
        inbox,
        mail,
        work: first.into_iter().map(Work::from).collect(),
        waiting: HashMap::new(),
        attached: HashMap::new(),
        link,
        notes: parts.notes,
        tag: tag.clone(),
        room: RoomWatch::new(parts.principal),
        clock,
        life: Arc::clone(&life),
        unsent,
        is_suspended: false,
    };
    let driven = tokio::spawn(driver.run());
    tokio::spawn(async move {
        let driven = driven.await;
        let kept = match driven {
            Ok((link, kept)) => {
                link.end(kept).await;
                kept
            }
            Err(error) => {
                tracing::error!(session = %tag, %error, "a session ended by a panic");
                let kept = store.epoch().is_some();
                life.send_replace(Life::Over { kept });
                kept
            }
        };
        if !kept {
            remove(&*store, key, fence, &tag).await;
        }
        life.send_replace(Life::Gone { kept });
        tracing::debug!(session = %tag, kept, "the session is gone");
    });
}

async fn remove(store: &dyn Store, key: Digest32, fence: Fence, tag: &SessionTag) {
    if let Err(error) = store.remove(key, fence).await {
        tracing::warn!(session = %tag, %error, "the log of an ended session was not removed");
    }
}

impl Driver {
    /// Drives the session to its end; returns the upstream session, which is still to be ended, and
    /// whether the log is kept.
    async fn run(mut self) -> (Link, bool) {
        tracing::debug!(session = %self.tag, "the session's driver runs");
        let stop = loop {
            if let Err(stop) = self.turn().await {
                break stop;
            }
        };
        let kept = stop.keeps() && self.store.epoch().is_some();
        self.life.send_replace(Life::Over { kept });
        self.close(stop, kept);
        (self.link, kept)
    }

    /// Waits for an input, then handles what is there, up to a bound, and commits it together.
    async fn turn(&mut self) -> Result<(), Stop> {
        let mut draft = Draft::default();
        if self.session.is_filling() {
            // What connections took can make room for what comes.
            self.note_progress();
        }
        if self.is_suspended {
            return Err(Stop::Suspended);
        }
        let mut next = match self.work.pop_front() {
            Some(work) => Some(work),
            None => self.wait().await?,
        };
        let mut budget = INPUTS_PER_COMMIT;
        while let Some(work) = next {
            let fresh = self.handle(work);
            if fresh.output.batch.dedup.is_empty() {
                draft.merge(fresh);
            } else {
                // A token's row can be refused, and its output is then dropped whole: it must be
                // alone, and the state machine must hear of it before anything else.
                self.settle(std::mem::take(&mut draft)).await?;
                self.settle(fresh).await?;
            }
            budget -= 1;
            let is_full = budget == 0 || draft.bytes() >= COMMIT_BYTES;
            next = if is_full { None } else { self.ready_work() };
        }
        self.settle(draft).await
    }

    /// Waits for the next input, fairly; `None` if there was only something to look at.
    async fn wait(&mut self) -> Result<Option<Work>, Stop> {
        let now_ms = self.clock.now_ms();
        let deadline_ms = self.session.poll_timeout();
        let is_due = deadline_ms.is_some_and(|at_ms| at_ms <= now_ms);
        let deadline = deadline_ms.and_then(|at_ms| self.clock.instant(at_ms));
        let due = async {
            match deadline {
                _ if is_due => {}
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            mail = self.mail.recv() => match mail {
                Some(mail) => {
                    self.open_mail(mail);
                    Ok(self.work.pop_front())
                }
                None => Err(Stop::Forgotten),
            },
            event = self.link.next() => Ok(Some(Input::Upstream(event).into())),
            () = due => Ok(Some(Input::Tick.into())),
        }
    }

    /// The next input that is there already.
    fn ready_work(&mut self) -> Option<Work> {
        if self.work.is_empty() {
            // Clients first: a server that floods its session must not keep them waiting. Turn and
            // turn about, so that neither can starve the other.
            if let Ok(mail) = self.mail.try_recv() {
                self.open_mail(mail);
            }
            if let Some(event) = self.link.try_next() {
                self.work.push_back(Input::Upstream(event).into());
            }
        }
        self.work.pop_front()
    }

    fn open_mail(&mut self, mail: Mail) {
        match mail {
            // A client that has left already: nothing is claimed for it (design section 4).
            Mail::Ask(_, _, waiting) if waiting.reply.is_closed() => {}
            Mail::Ask(input, connection, waiting) => {
                // What left on other connections can decide about this one (row 4, a new GET).
                self.note_progress();
                self.waiting.insert(connection, waiting);
                self.work.push_back(input.into());
            }
            Mail::Gone(connection) => {
                self.waiting.remove(&connection);
                self.work.push_back(Input::Gone(connection).into());
            }
            Mail::Tell(input, done) => self.work.push_back(Work { input, done: Some(done) }),
            Mail::Wire(connection, event) => {
                let is_over = matches!(
                    event,
                    WireEvent::FinalHanded | WireEvent::Lost { .. } | WireEvent::Ended { .. }
                );
                if is_over {
                    self.attached.remove(&connection);
                }
                self.work.push_back(Input::Wire(connection, event).into());
            }
            Mail::Headers(headers) => self.link.present(headers),
            Mail::Suspend => self.is_suspended = true,
            // Whoever asked may have left.
            Mail::View(reply) => drop(reply.send(self.session.view())),
        }
    }

    fn note_progress(&mut self) {
        for (&connection, attached) in &mut self.attached {
            if let Some(sent) = attached.progress() {
                let event = WireEvent::Progress { sent };
                self.work.push_back(Input::Wire(connection, event).into());
            }
        }
    }

    fn handle(&mut self, work: Work) -> Draft {
        let mut draft = Draft { done: work.done.into_iter().collect(), ..Draft::default() };
        match &work.input {
            Input::Post(post) => draft.asks.push(post.connection),
            Input::Get(get) => draft.asks.push(get.connection),
            _ => {}
        }
        let now_ms = self.clock.now_ms();
        self.session.handle(work.input, now_ms, &mut draft.output);
        draft
    }

    /// Commits a draft, then carries it out. If a row of it has another owner, the state machine
    /// says what comes instead: as often as it has rows, and the POSTs of a claim have requests.
    async fn settle(&mut self, draft: Draft) -> Result<(), Stop> {
        let Draft { mut output, asks, done } = draft;
        let requests_max = self.session.start().settings.limits.batch_requests_max;
        let tries = output.batch.dedup.len().saturating_add(requests_max).saturating_add(1);
        for _ in 0..tries {
            match self.commit(output.batch).await {
                Ok(()) => {
                    let carried_out = self.carry_out(output.effects).await;
                    self.look_at_room().await;
                    self.link.press(self.session.back_pressure(self.clock.now_ms()));
                    // Whoever waited may have left.
                    done.into_iter().for_each(|done| done.send(()).unwrap_or(()));
                    return carried_out;
                }
                Err(Uncommitted::TokenTaken { call, record }) => {
                    output = Output::default();
                    let input = Input::TokenTaken { call, record: *record };
                    self.session.handle(input, self.clock.now_ms(), &mut output);
                }
                Err(Uncommitted::Failed) => {
                    self.unsent.note(&output.effects);
                    break;
                }
            }
        }
        Err(Stop::StoreFailed(asks))
    }

    /// Answers everything that waits, and ends every stream.
    fn close(&mut self, stop: Stop, kept: bool) {
        tracing::debug!(session = %self.tag, why = stop.name(), "the session is over");
        let unadmitted = match stop {
            Stop::StoreFailed(asks) => asks,
            Stop::Ended | Stop::Forgotten | Stop::Suspended => Vec::new(),
        };
        for (connection, waiting) in self.waiting.drain() {
            let answer = if kept || unadmitted.contains(&connection) {
                Answer::Overloaded
            } else {
                Answer::SessionOver
            };
            drop(waiting.reply.send(answer));
        }
        for attached in self.attached.values() {
            attached.command(Command::Finish { retry_ms: None });
        }
        // Mail that nobody will read: its senders see that by the drop of their replies.
        self.mail.close();
        while self.mail.try_recv().is_ok() {}
    }
}

impl Stop {
    fn name(&self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Forgotten => "nobody can reach it",
            Self::StoreFailed(_) => "its log could not be written",
            Self::Suspended => "the process ends",
        }
    }

    /// True if the session is not over, only its driver.
    fn keeps(&self) -> bool {
        matches!(self, Self::StoreFailed(_) | Self::Suspended)
    }
}

impl From<Input> for Work {
    fn from(input: Input) -> Self {
        Self { input, done: None }
    }
}
