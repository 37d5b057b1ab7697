//! The driver's end of an upstream session: commands in order, never blocking, and the server
//! started again when the state machine asks for it.

mod life;
mod read;
mod refusal;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use rejoin_core::effect::ToUpstream;
use rejoin_core::input::{Channel, FromUpstream};
use rejoin_core::limits::Limits;
use rejoin_core::session::BackPressure;
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::heads::Heads;
use crate::handle::SessionTag;
use crate::room::Share;
use crate::upstream::{
    CallId, Command, Event, NotSentReason, OpenError, Opened, Resumed, Resumption, Upstream,
};

/// Time the adapter gets beyond the graces of its child to say that a session has ended.
const END_MARGIN: Duration = Duration::from_secs(2);
/// A server that ends by itself sooner than this after its start cannot be used.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// See the module's documentation.
pub(super) struct Link {
    upstream: Arc<dyn Upstream>,
    initialize: Bytes,
    /// Room for what waits, here and behind.
    sending: Share,
    /// The newest headers of the client.
    headers: HeaderMap,
    tag: SessionTag,
    state: State,
    /// Commands that the adapter had no room for, or that wait for the server to be opened.
    backlog: VecDeque<Command>,
    backlog_bytes: usize,
    backlog_max: usize,
    backlog_bytes_max: usize,
    json_depth_max: usize,
    /// What happened and was not taken yet.
    ready: VecDeque<FromUpstream>,
    /// Calls that met a lost session: told together with its end, which follows.
    untaken: Vec<CallId>,
    end_max: Duration,
    opened_at: Instant,
    /// Short lives of the server in a row.
    short_lives: u32,
    /// A server that is asked by HTTP may answer a call with a challenge to its client.
    can_challenge: bool,
    /// The log outlives the process: it is worth knowing how to go on with the server.
    is_kept: bool,
    pub(super) heads: Heads,
}

enum State {
    Open {
        commands: mpsc::Sender<Command>,
        events: mpsc::Receiver<Event>,
        pressure: Option<watch::Sender<BackPressure>>,
    },
    /// One task; dropping the set ends it, and what it started.
    Opening(JoinSet<Result<Opened, OpenError>>),
    Closed,
}

impl From<Opened> for State {
    fn from(opened: Opened) -> Self {
        let Opened { commands, events, pressure, .. } = opened;
        Self::Open { commands, events, pressure }
    }
}

impl From<Resumed> for State {
    fn from(resumed: Resumed) -> Self {
        let Resumed { commands, events, pressure } = resumed;
        Self::Open { commands, events, pressure }
    }
}

impl Link {
    pub(super) fn new(
        upstream: Arc<dyn Upstream>,
        opened: Option<Opened>,
        initialize: Bytes,
        tag: SessionTag,
        sending: Share,
        is_kept: bool,
        limits: &Limits,
    ) -> Self {
        let graces_ms = limits.child_eof_grace_ms.saturating_add(limits.child_term_grace_ms);
        let can_challenge = upstream.passthrough().is_some();
        Self {
            upstream,
            initialize,
            sending,
            headers: HeaderMap::new(),
            tag,
            state: opened.map_or(State::Closed, State::from),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            backlog_max: limits.upstream_queue_max,
            backlog_bytes_max: limits.body_bytes_max.saturating_mul(2),
            json_depth_max: limits.json_depth_max,
            ready: VecDeque::new(),
            untaken: Vec::new(),
            end_max: Duration::from_millis(graces_ms) + END_MARGIN,
            opened_at: Instant::now(),
            short_lives: 0,
            can_challenge,
            is_kept,
            heads: Heads::default(),
        }
    }

    /// Sends something, or says that it was not sent.
    pub(super) fn send(&mut self, message: ToUpstream) {
        let mut command = match message {
            ToUpstream::Call { call, message, asked_by } => {
                if let Some(connection) = asked_by.filter(|_| self.can_challenge) {
                    self.heads.ask(call, connection);
                }
                Command::Call { call, message }
            }
            ToUpstream::Cancel { call, message } => Command::Cancel { call, message },
            ToUpstream::Send(message) => Command::Send { message },
            ToUpstream::Reopen { restore } => return self.reopen(restore),
            ToUpstream::Continue { continuation, is_initialized, calls, standalone } => {
                return self.resume(Resumption {
                    continuation,
                    initialize: self.initialize.clone(),
                    headers: self.headers.clone(),
                    is_initialized,
                    calls,
                    standalone,
                });
            }
            ToUpstream::Close => {
                self.hang_up();
                return;
            }
            other => return tracing::debug!(?other, "not a command of this version"),
        };
        let bytes = self.backlog_bytes.saturating_add(size(&mut command));
        // An empty backlog takes any message.
        let is_full = self.backlog.len() >= self.backlog_max
            || !self.backlog.is_empty() && bytes > self.backlog_bytes_max;
        if is_full || matches!(self.state, State::Closed) {
            return self.refuse(&command);
        }
        if let Some(message) = message_of(&mut command) {
            let Ok(held) = self.sending.hold(std::mem::take(message)) else {
                self.sending.log_drop(self.upstream.name(), &self.tag);
                return self.refuse(&command);
            };
            *message = held;
        }
        self.backlog.push_back(command);
        self.backlog_bytes = bytes;
        self.flush();
    }

    /// Asks the upstream to bring less, or no longer.
    pub(super) fn press(&self, pressure: BackPressure) {
        let State::Open { pressure: Some(sender), .. } = &self.state else { return };
        sender.send_if_modified(|current| {
            let is_news = *current != pressure;
            *current = pressure;
            is_news
        });
    }

    /// Takes the newest headers of the client: for what is sent from here on, and for a reopening.
    pub(super) fn present(&mut self, headers: HeaderMap) {
        self.headers.clone_from(&headers);
        if matches!(self.state, State::Closed) {
            return;
        }
        // Needs no room of its own: between two of these waits a message that had some.
        if let Some(Command::Headers(older)) = self.backlog.back_mut() {
            *older = headers;
        } else {
            self.backlog.push_back(Command::Headers(headers));
        }
        self.flush();
    }

    /// Waits for the next thing that happens. Cancel-safe.
    pub(super) async fn next(&mut self) -> FromUpstream {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            match &mut self.state {
                State::Open { commands, events, .. } => {
                    let must_flush = !self.backlog.is_empty() && !commands.is_closed();
                    let event = tokio::select! {
                        event = events.recv() => Some(event),
                        // The room is given back at once, for the flush to take.
                        _room = commands.reserve(), if must_flush => None,
                    };
                    match event {
                        Some(event) => self.take(event),
                        None => self.flush(),
                    }
                }
                State::Opening(opening) => match opening.join_next().await {
                    Some(Ok(Ok(opened))) => self.opened(opened),
                    Some(Ok(Err(error))) => self.not_opened(&error.to_string()),
                    Some(Err(_)) | None => self.not_opened("starting it ended by a panic"),
                },
                State::Closed => std::future::pending().await,
            }
        }
    }

    /// The next thing that happened already.
    pub(super) fn try_next(&mut self) -> Option<FromUpstream> {
        if self.ready.is_empty()
            && let State::Open { events, .. } = &mut self.state
        {
            match events.try_recv() {
                Ok(event) => self.take(Some(event)),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.take(None),
            }
        }
        self.ready.pop_front()
    }

    fn flush(&mut self) {
        let State::Open { commands, .. } = &self.state else { return };
        while !self.backlog.is_empty() {
            let Ok(permit) = commands.try_reserve() else { return };
            let Some(mut command) = self.backlog.pop_front() else { return };
            self.backlog_bytes = self.backlog_bytes.saturating_sub(size(&mut command));
            permit.send(command);
        }
    }

    /// `None`: the adapter ended without a word.
    fn take(&mut self, event: Option<Event>) {
        match event {
            Some(Event::Sent { call }) => self.ready.push_back(FromUpstream::Sent(call)),
            Some(Event::Begun { call }) => self.heads.let_go(call),
            // Its text says more than that the call was not sent.
            Some(Event::NotSent {
                call,
                reason: NotSentReason::Refused { status, answer, challenge },
            }) => {
                tracing::debug!(session = %self.tag, %call, %status, "a call was refused");
                if let Some(challenge) = challenge {
                    self.heads.challenge(call, challenge);
                }
                self.read(Channel::Call(call), refusal::as_not_run(&answer), None);
            }
            Some(Event::Lost { call, reason }) => {
                tracing::warn!(session = %self.tag, %call, %reason, "a call was lost");
                self.heads.let_go(call);
                self.ready.push_back(FromUpstream::Lost(call));
            }
            Some(Event::NotSent { call, reason: NotSentReason::SessionGone }) => {
                tracing::debug!(session = %self.tag, %call, "a call met a lost session");
                self.untaken.push(call);
            }
            Some(Event::NotSent { call, reason }) => {
                tracing::debug!(session = %self.tag, %call, %reason, "a call was not sent");
                self.heads.let_go(call);
                self.ready.push_back(FromUpstream::NotSent(call));
            }
            Some(Event::Message { channel, message, cursor }) => {
                self.read(channel, message, cursor.filter(|_| self.is_kept));
            }
            Some(Event::Cursor { channel, cursor }) => {
                let cursor = cursor.filter(|_| self.is_kept);
                self.ready.push_back(FromUpstream::Cursor { channel, cursor });
            }
            Some(Event::Closed { reason }) => {
                let upstream = self.upstream.name();
                tracing::info!(session = %self.tag, upstream, %reason, "the server is gone");
                self.closed();
            }
            None => self.closed(),
        }
    }

    /// What waits was provably not sent. Then the end, once.
    fn closed(&mut self) {
        let was_short =
            matches!(self.state, State::Opening(_)) || self.opened_at.elapsed() < SHORT_LIFE;
        self.short_lives = if was_short { self.short_lives.saturating_add(1) } else { 0 };
        self.state = State::Closed;
        self.backlog_bytes = 0;
        self.heads.let_all_go();
        let untaken = std::mem::take(&mut self.untaken);
        self.ready.push_back(if untaken.is_empty() {
            FromUpstream::Closed
        } else {
            FromUpstream::SessionGone(untaken)
        });
        // Behind the end: who hears of these and calls again must find it known.
        for command in std::mem::take(&mut self.backlog) {
            self.refuse(&command);
        }
    }

    fn refuse(&mut self, command: &Command) {
        match command {
            Command::Call { call, .. } => {
                self.heads.let_go(*call);
                self.ready.push_back(FromUpstream::NotSent(*call));
            }
            _ => tracing::debug!(session = %self.tag, "a message to the server was dropped"),
        }
    }
}

fn message_of(command: &mut Command) -> Option<&mut Bytes> {
    match command {
        Command::Call { message, .. }
        | Command::Cancel { message, .. }
        | Command::Send { message } => Some(message),
        Command::Headers(_) | Command::End | Command::Leave => None,
    }
}

/// Bytes of a command's message.
fn size(command: &mut Command) -> usize {
    message_of(command).map_or(0, |message| message.len())
}
