//! The task that takes the driver's commands, and ends the session.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rejoin_core::message::{self, Incoming, Kind};
use tokio::sync::mpsc;
use tokio::task::{self, JoinError, JoinHandle, JoinSet};
use tokio::time::timeout;

use super::calls::{Call, Phase};
use super::cursor::Cursor;
use super::departure::Departure;
use super::notes::{self, Note};
use super::session::{Gate, Session};
use super::{call, check, resume, standalone};
use crate::passthrough::UpstreamBody as Body;
use crate::upstream::{CallId, CloseReason, Command, Event, LostReason, NotSentReason};

/// Time a call gets to reach a server that does not begin to answer it, before its cancel is sent
/// on another connection.
const CANCEL_DELAY: Duration = Duration::from_millis(100);
/// Time the tasks get to pass on what they have when the session is gone.
const LAST_READ: Duration = Duration::from_millis(500);

/// Why commands are taken no more.
enum Ending {
    /// The driver wants it.
    Wanted,
    /// The driver leaves it, to be resumed.
    Left,
    /// The driver is gone.
    DriverGone,
    /// The session is over.
    Over(CloseReason),
}

/// What is read on from the start.
#[derive(Default)]
pub(super) struct Streams {
    /// What follows the answer to `initialize`.
    pub(super) rest: Option<Body>,
    /// Calls of an earlier process; without a cursor nothing tells their outcome.
    pub(super) calls: Vec<(CallId, Option<Cursor>)>,
    /// Where the standalone stream stands.
    pub(super) standalone: Option<Cursor>,
}

/// The intake of a session.
pub(super) struct Intake {
    session: Arc<Session>,
    commands: mpsc::Receiver<Command>,
    /// Only to see the driver go.
    events: mpsc::Sender<Event>,
    /// Calls and their refusals.
    tasks: JoinSet<()>,
    /// The calls of those tasks.
    calls: HashMap<task::Id, (CallId, Arc<Departure>)>,
    /// Responses and cancels, each on its way.
    posts: JoinSet<()>,
    /// Messages that wait for the client's headers, at most `calls_max`.
    held: Vec<Command>,
    tasks_max: usize,
    calls_max: usize,
    notes: mpsc::Sender<Note>,
    noting: JoinHandle<()>,
    /// What lives as long as the session.
    keepers: JoinSet<()>,
}

impl Intake {
    /// Starts the session's tasks.
    pub(super) fn start(
        session: Arc<Session>,
        commands: mpsc::Receiver<Command>,
        events: mpsc::Sender<Event>,
        streams: Streams,
    ) {
        let Streams { rest, calls: picked_up, standalone } = streams;
        let calls_max = commands.max_capacity();
        let (notes, queued) = mpsc::channel(calls_max);
        let noting = tokio::spawn(notes::run(Arc::clone(&session), queued));
        let mut keepers = JoinSet::new();
        keepers.spawn(standalone::run(Arc::clone(&session), standalone));
        keepers.spawn(check::run(Arc::clone(&session)));
        if let Some(rest) = rest {
            let session = Arc::clone(&session);
            keepers.spawn(async move { notes::pump(&session, rest).await });
        }
        let (tasks, posts, calls) = (JoinSet::new(), JoinSet::new(), HashMap::new());
        let tasks_max = calls_max.saturating_mul(4);
        let mut intake = Self {
            session,
            commands,
            events,
            tasks,
            calls,
            posts,
            held: Vec::new(),
            tasks_max,
            calls_max,
            notes,
            noting,
            keepers,
        };
        picked_up.into_iter().for_each(|(call, cursor)| intake.pick_up(call, cursor));
        tokio::spawn(intake.run());
    }

    /// Reads on the stream of a call that an earlier process sent.
    fn pick_up(&mut self, id: CallId, cursor: Option<Cursor>) {
        let call = self.session.calls.pick_up(id);
        let departure = Arc::clone(&call.departure);
        let task = self.tasks.spawn(resume::pick_up(Arc::clone(&self.session), call, cursor)).id();
        self.calls.insert(task, (id, departure));
    }

    async fn run(mut self) {
        let session = Arc::clone(&self.session);
        let ending = loop {
            let has_room = self.tasks.len() + self.posts.len() < self.tasks_max;
            tokio::select! {
                biased;
                reason = session.over() => break Ending::Over(reason),
                () = self.events.closed() => break Ending::DriverGone,
                Some(done) = self.tasks.join_next_with_id() => self.settle(done),
                Some(_) = self.posts.join_next() => {}
                command = self.commands.recv(), if has_room => match command {
                    Some(Command::Leave) if session.origin.outlives => break Ending::Left,
                    None | Some(Command::End | Command::Leave) => break Ending::Wanted,
                    Some(command) => self.take(command),
                },
            }
        };
        self.end(ending).await;
    }

    /// Starts what a command asks for. Waits for nothing.
    fn take(&mut self, command: Command) {
        let session = Arc::clone(&self.session);
        match &command {
            Command::Headers(headers) => {
                session.set_client_headers(headers);
                // Tells whoever waits for newer ones, too.
                session.client.send_replace(true);
            }
            // Only its client calls, and its headers came first.
            Command::Call { .. } => {
                session.client.send_if_modified(|known| !std::mem::replace(known, true));
            }
            _ => {}
        }
        if *session.client.borrow() {
            std::mem::take(&mut self.held).into_iter().for_each(|command| self.start_one(command));
        } else if matches!(command, Command::Send { .. } | Command::Cancel { .. }) {
            return self.hold(command);
        }
        self.start_one(command);
    }

    /// Keeps what would be refused without the client's headers until they are known.
    fn hold(&mut self, command: Command) {
        if self.held.len() < self.calls_max {
            self.held.push(command);
        } else {
            self.session.origin.warn("a message was dropped", "too many wait for their client");
        }
    }

    fn start_one(&mut self, command: Command) {
        let session = Arc::clone(&self.session);
        match command {
            Command::Call { call, message } => {
                let is_full = session.calls.count() >= self.calls_max;
                let entered = session.calls.enter(call);
                if is_full {
                    entered.departure.revoke();
                    return self.refuse(call, NotSentReason::QueueFull);
                }
                let departure = Arc::clone(&entered.departure);
                let task = self.tasks.spawn(call::run(session, entered, message)).id();
                self.calls.insert(task, (call, departure));
            }
            Command::Cancel { call, message } => {
                if let Some(call) = session.calls.cancel(call) {
                    self.posts.spawn(cancel(session, call, message));
                }
            }
            Command::Send { message } => self.send(message),
            Command::Headers(_) | Command::End | Command::Leave => {}
        }
    }

    /// A call whose task failed (a service in this process can panic anywhere) is told its end.
    fn settle(&mut self, done: Result<(task::Id, ()), JoinError>) {
        let task = match &done {
            Ok((task, ())) => *task,
            Err(error) => error.id(),
        };
        let Some((call, departure)) = self.calls.remove(&task) else { return };
        if done.is_ok() {
            return;
        }
        let session = Arc::clone(&self.session);
        tracing::error!(upstream = %session.origin.name, %call, "the task of a call failed");
        self.tasks.spawn(async move {
            if departure.revoke() {
                session.calls.not_sent(call, NotSentReason::Unreachable).await;
            } else {
                session.calls.sent(call).await;
                session.calls.lost(call, LostReason::ConnectionLost).await;
            }
        });
    }

    fn refuse(&mut self, call: CallId, reason: NotSentReason) {
        let session = Arc::clone(&self.session);
        self.tasks.spawn(async move { session.calls.not_sent(call, reason).await });
    }

    fn send(&mut self, message: Bytes) {
        let parsed = message::parse(message.clone(), self.session.origin.limits.json_depth_max);
        let Ok(Incoming::One(parsed)) = parsed else {
            return tracing::debug!("a message that is none was not sent");
        };
        // Responses need no order, and must not wait behind a slow notification.
        if parsed.kind() != Kind::Notification {
            let session = Arc::clone(&self.session);
            self.posts.spawn(async move { notes::send(&session, message).await });
            return;
        }
        let opens = parsed.method() == Some("notifications/initialized");
        if self.notes.try_send(Note { message, opens }).is_err() {
            self.session.origin.warn("a notification was dropped", "too many wait");
        } else if opens {
            self.session.gate.send_replace(Gate::Passing);
        }
    }

    async fn end(mut self, ending: Ending) {
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            if let Command::Call { call, .. } = command {
                self.session.calls.enter(call).departure.revoke();
            }
        }
        let limits = &self.session.origin.limits.upstream;
        // No note comes after these.
        drop(self.notes);
        match &ending {
            Ending::Wanted | Ending::Left => {
                let is_left = matches!(ending, Ending::Left);
                let grace = Duration::from_millis(limits.end_grace_ms);
                let _in_time = timeout(grace, async {
                    for call in self.session.calls.running() {
                        // The driver, which is gone, would not learn what becomes of it.
                        if is_left && call.departure.revoke() {
                            continue;
                        }
                        tokio::select! {
                            () = call.departure.gone() => {}
                            () = call.settled() => {}
                        }
                    }
                    let _noted = (&mut self.noting).await;
                    while self.posts.join_next().await.is_some() {}
                })
                .await;
            }
            Ending::Over(_) => {
                let last = async { while self.tasks.join_next().await.is_some() {} };
                let _in_time = timeout(LAST_READ, last).await;
            }
            Ending::DriverGone => {}
        }
        self.noting.abort();
        self.tasks.shutdown().await;
        self.posts.shutdown().await;
        self.keepers.shutdown().await;
        let reason = match ending {
            Ending::Over(reason) => reason,
            Ending::Left => CloseReason::Left,
            Ending::Wanted | Ending::DriverGone => {
                self.session.delete().await;
                CloseReason::Ended
            }
        };
        self.session.calls.close(reason).await;
    }
}

/// Sends a cancel, once the server can know what it cancels, and if there still is something.
async fn cancel(session: Arc<Session>, call: Call, message: Bytes) {
    let known = async {
        call.departure.left().await;
        let _in_time = timeout(CANCEL_DELAY, call.departure.answered()).await;
    };
    tokio::select! {
        () = known => {}
        () = call.settled() => {}
    }
    if call.phase() != Phase::Settled {
        notes::send(&session, message).await;
    }
}
