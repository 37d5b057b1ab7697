//! One logical stream: its events, over as many connections as it takes, to the driver.
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use rejoin_core::message::{self, Incoming, Message};
use rejoin_core::session::UpstreamCursor;
use rejoin_core::sse::{Decoder, Event, Mark};
use tokio::time::{Instant, sleep_until};

use super::calls::{Call, Phase};
use super::cursor::Cursor;
use super::session::Session;
use crate::passthrough::UpstreamBody as Body;
use crate::upstream::Channel;

/// How a connection of a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With its last chunk: the server ended it, maybe only the connection (spec SSE-2).
    Clean,
    /// It broke.
    Broken,
    /// Nobody needs it any more, and it was silent.
    LeftAlone,
    /// It was silent for so long that it is better to ask for the rest again.
    Silent,
}

/// A stream that is read.
pub(super) struct Pump<'a> {
    session: &'a Session,
    /// The call that says how long to read. `None`: as long as the session lives.
    call: Option<&'a Call>,
    /// What its messages came on.
    channel: Channel,
    /// Where it stands.
    pub(super) cursor: Option<Cursor>,
    /// The server's `retry:`, bounded.
    pub(super) retry: Option<Duration>,
    /// The last connection brought something new.
    pub(super) progressed: bool,
    /// What came that cannot be passed on: it may have been the answer.
    pub(super) unusable: Option<&'static str>,
    /// How long a connection may bring nothing before it is given up. `None`: for ever.
    pub(super) patience: Option<Duration>,
    /// When something came last, or a connection began.
    heard: Instant,
    /// The phase of its call, and since when nothing but comments came in it.
    silence: (Phase, Instant),
}

impl<'a> Pump<'a> {
    fn new(session: &'a Session, call: Option<&'a Call>, channel: Channel) -> Self {
        let heard = Instant::now();
        Self {
            session,
            call,
            channel,
            cursor: None,
            retry: None,
            progressed: false,
            unusable: None,
            patience: None,
            heard,
            silence: (Phase::Running, heard),
        }
    }

    /// The stream of a call.
    pub(super) fn of_call(session: &'a Session, call: &'a Call) -> Self {
        Self::new(session, Some(call), Channel::Call(call.id))
    }

    /// The standalone stream.
    pub(super) fn standalone(session: &'a Session) -> Self {
        Self::new(session, None, Channel::Standalone)
    }

    /// Goes on where an earlier process was.
    pub(super) fn from(mut self, cursor: Option<Cursor>) -> Self {
        if let Some(cursor) = &cursor {
            // A replay may begin with the event of the cursor.
            self.session.calls.note(cursor.mark);
        }
        self.cursor = cursor;
        self
    }

    /// A stream whose messages belong to no call; `call` only says how long to read it.
    pub(super) fn of_nobody(session: &'a Session, call: &'a Call) -> Self {
        Self::new(session, Some(call), Channel::Unknown)
    }

    /// Reads one connection to its end. `resumed`: it continues an earlier one, so that it may
    /// bring again what came before.
    pub(super) async fn run(&mut self, mut body: Body, resumed: bool) -> End {
        self.progressed = false;
        self.heard = Instant::now();
        let limits = &self.session.origin.limits;
        let mut decoder = Decoder::new(limits.event_bytes_max);
        let mut free_bytes = limits.back_pressure_free_bytes;
        loop {
            if free_bytes == 0 {
                self.paused().await;
                // Nobody listened.
                self.heard = Instant::now();
            }
            let chunk = tokio::select! {
                chunk = body.frame() => chunk,
                () = silent(self.heard, self.patience) => return End::Silent,
                () = self.left_alone() => return End::LeftAlone,
            };
            match chunk {
                // What is left of an event is discarded, as the HTML standard says.
                None => return End::Clean,
                Some(Err(_)) => return End::Broken,
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    free_bytes = free_bytes.saturating_sub(data.len() as u64);
                    decoder.push(&data);
                }
            }
            loop {
                match decoder.next_event() {
                    Ok(Some(event)) => self.take(event, resumed).await,
                    Ok(None) => break,
                    Err(_) => self.unusable = Some("it is larger than event_bytes_max"),
                }
            }
            if decoder.is_inside_event() {
                // A large event on a slow line would never come whole if it were asked for again.
                self.heard = Instant::now();
            }
        }
    }

    /// Waits while the session's log has no room for a flood, or until nobody waits for the rest.
    async fn paused(&mut self) {
        let mut pressure = self.session.pressure.subscribe();
        let call = self.channel.call();
        tokio::select! {
            // The sender lives as long as the session.
            _ = pressure.wait_for(|pressure| !pressure.is_on(call)) => {}
            () = self.left_alone() => {}
        }
    }

    /// Waits until the call has ended or was cancelled, and its stream was silent for long enough
    /// since; comments do not count, which may come for ever.
    async fn left_alone(&mut self) {
        let Some(call) = self.call else { return pending().await };
        let limits = &self.session.origin.limits.upstream;
        let mut phase = call.phase.clone();
        loop {
            let current = *phase.borrow_and_update();
            if self.silence.0 != current {
                self.silence = (current, Instant::now());
            }
            let limit_ms = match current {
                Phase::Running => None,
                Phase::Cancelled => Some(limits.cancelled_silence_max_ms),
                Phase::Settled => Some(limits.linger_ms),
            };
            match limit_ms {
                Some(limit_ms) => tokio::select! {
                    () = sleep_until(self.silence.1 + Duration::from_millis(limit_ms)) => return,
                    Ok(()) = phase.changed() => {}
                },
                None if phase.changed().await.is_ok() => {}
                None => return,
            }
        }
    }

    async fn take(&mut self, event: Event, resumed: bool) {
        if let Some(retry_ms) = event.retry_ms {
            let retry_ms = retry_ms.min(self.session.origin.limits.upstream.retry_max_ms);
            self.retry = Some(Duration::from_millis(retry_ms));
        }
        let mark = event.id.as_ref().map(|id| Mark::of(id, &event.data));
        let before = self.cursor.clone();
        let is_bare = event.data.trim_ascii().is_empty();
        if let (Some(id), Some(mark)) = (&event.id, mark) {
            let cursor = Cursor::behind(id, mark);
            // Where a replay meets what comes live, some servers drop an event, and then say where
            // they stand behind it: only what brings a message tells how far it was read.
            if !(resumed && is_bare && before.is_some() && cursor.is_some()) {
                self.cursor = cursor;
            }
        }
        let id_of = |cursor: &Option<Cursor>| cursor.as_ref().map(|cursor| cursor.id.clone());
        let is_moved = id_of(&self.cursor) != id_of(&before);
        self.progressed |= is_moved && self.cursor.is_some();
        if is_bare {
            if is_moved && self.channel != Channel::Unknown {
                self.session.calls.stand_at(self.channel, text_of(self.cursor.as_ref())).await;
            }
            return;
        }
        self.heard = Instant::now();
        self.silence.1 = self.heard;
        if !event.is_message() {
            return tracing::debug!("an event that is no message was skipped");
        }
        let is_new = mark.is_none_or(|mark| self.session.calls.note(mark));
        if resumed && !is_new {
            return tracing::debug!("an event came again and was skipped");
        }
        self.progressed = true;
        self.pass_on(event.data, before).await;
    }

    /// `before`: where the stream stood before these messages, which have one id together.
    async fn pass_on(&mut self, data: Bytes, before: Option<Cursor>) {
        match message::parse(data, self.session.origin.limits.json_depth_max) {
            Ok(Incoming::One(message)) => self.deliver(&message, self.cursor.as_ref()).await,
            Ok(Incoming::Batch(messages)) => {
                let last = messages.len().saturating_sub(1);
                for (index, message) in messages.iter().enumerate() {
                    let cursor = if index == last { &self.cursor } else { &before };
                    self.deliver(message, cursor.as_ref()).await;
                }
            }
            Err(error) => {
                self.session.origin.warn("a message cannot be read", &error.to_string());
                self.unusable = Some("it cannot be read");
            }
        }
    }

    async fn deliver(&self, message: &Message, cursor: Option<&Cursor>) {
        let cursor = if self.channel == Channel::Unknown { None } else { text_of(cursor) };
        if !self.session.calls.deliver(self.channel, message, cursor).await {
            tracing::debug!("a response of no running call was dropped");
        }
    }
}

/// Waits until nothing came for so long.
async fn silent(heard: Instant, patience: Option<Duration>) {
    match patience {
        Some(patience) => sleep_until(heard + patience).await,
        None => pending().await,
    }
}

fn text_of(cursor: Option<&Cursor>) -> Option<UpstreamCursor> {
    cursor.and_then(Cursor::to_text)
}
