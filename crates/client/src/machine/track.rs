//! One logical stream: where it stands, over as many connections as it takes (spec RES-4).
use rejoin_core::backoff::Backoff;
use rejoin_core::sse::Event;

use crate::limits::ClientLimits;

/// A replay whose end has not been seen yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// It ends with this event.
    Until(String),
    /// The server names no boundary: it ends when nothing comes for a while.
    Quiet {
        /// When it counts as over if nothing comes.
        quiet_ms: u64,
        /// When it counts as over in any case.
        end_ms: u64,
    },
}

/// Where a stream stands.
#[derive(Debug)]
pub(super) struct Track {
    /// Id of the last event that was processed.
    pub(super) cursor: Option<String>,
    /// What the server asked to wait before the next GET, as far as it is honoured.
    pub(super) retry_ms: Option<u64>,
    /// The current connection continues an earlier one.
    pub(super) resumed: bool,
    /// What of it must come before other POSTs may leave.
    pub(super) replay: Option<Replay>,
    backoff: Backoff,
    silence: Silence,
    progressed: bool,
    connected_ms: Option<u64>,
    fruitless: u32,
    /// When resuming it is given up; moved by progress.
    give_up_ms: Option<u64>,
    /// Since when there is no connection.
    away_ms: Option<u64>,
    /// When it was last resumed without a wait.
    at_once_ms: Option<u64>,
}

/// What a resumed connection may be silent for, until it counts as one that brings nothing.
#[derive(Debug)]
struct Silence {
    growth: Backoff,
    /// For this connection.
    max_ms: u64,
    /// When something new came last, or the connection began.
    since_ms: u64,
    /// The connection to come takes the place of one that was silent.
    was_silent: bool,
}

/// What to do about a stream that lost its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Ask for the rest at this time.
    ResumeAt(u64),
    /// Its events have no ids, or the last one cannot be a cursor.
    NoCursor,
    /// Nothing new comes.
    GiveUp,
}

impl Track {
    pub(super) fn new(limits: &ClientLimits) -> Self {
        Self {
            cursor: None,
            retry_ms: None,
            resumed: false,
            replay: None,
            backoff: Backoff::new(limits.backoff_ms, limits.backoff_max_ms),
            silence: Silence {
                growth: Backoff::new(limits.resumed_silence_ms, limits.resumed_silence_max_ms),
                max_ms: limits.resumed_silence_ms,
                since_ms: 0,
                was_silent: false,
            },
            progressed: false,
            connected_ms: None,
            fruitless: 0,
            give_up_ms: None,
            away_ms: None,
            at_once_ms: None,
        }
    }

    /// A connection has begun; `resumed`: with the rest of an earlier one.
    pub(super) fn connected(&mut self, now_ms: u64, resumed: bool) {
        self.resumed = resumed;
        self.silence.was_silent = false;
        self.progressed = false;
        self.connected_ms = Some(now_ms);
        self.away_ms = None;
    }

    /// The server asks to wait so long before the next GET.
    pub(super) fn asked(&mut self, retry_ms: u64, limits: &ClientLimits) {
        self.retry_ms = Some(retry_ms.min(limits.retry_max_ms));
    }

    /// Since when there is no connection, where one was lost.
    pub(super) fn away_ms(&self) -> Option<u64> {
        self.away_ms
    }

    /// The rest of the stream has begun to come. Says whether in place of a connection that was
    /// silent.
    pub(super) fn resumed(&mut self, now_ms: u64, random: u64) -> bool {
        let was_silent = self.silence.was_silent;
        self.connected(now_ms, true);
        self.silence.since_ms = now_ms;
        self.silence.max_ms = self.silence.growth.next_ms(random);
        was_silent
    }

    /// Something new came.
    pub(super) fn heard(&mut self, now_ms: u64, limits: &ClientLimits) {
        self.silence.growth.reset();
        self.silence.max_ms = limits.resumed_silence_ms;
        self.silence.since_ms = now_ms;
    }

    /// When a resumed connection counts as one that brings nothing. `None`: it never does, or there
    /// is nothing to ask for.
    pub(super) fn silent_ms(&self) -> Option<u64> {
        let is_askable = self.resumed && self.cursor.is_some();
        is_askable.then(|| self.silence.since_ms.saturating_add(self.silence.max_ms))
    }

    /// The connection was silent and is given up. Says when to ask for the rest again. That spends
    /// nothing: the server gave a stream, and its tool may be slow.
    pub(super) fn silent(&mut self, now_ms: u64, random: u64, limits: &ClientLimits) -> u64 {
        let lasted_ms = self.lasted_ms(now_ms);
        let asked_ms = self.asked_ms(random);
        self.connected_ms = None;
        self.replay = None;
        if std::mem::take(&mut self.progressed) {
            self.renew(now_ms, limits);
        } else {
            self.postpone(lasted_ms.saturating_add(asked_ms));
        }
        self.silence.was_silent = true;
        now_ms.saturating_add(asked_ms)
    }

    /// Whether the stream is between two connections of which the first was silent.
    pub(super) fn was_silent(&self) -> bool {
        self.silence.was_silent
    }

    /// How long a Rejoin may take to answer the next GET.
    pub(super) fn resume_head_ms(&self, limits: &ClientLimits) -> u64 {
        let doublings = self.backoff.attempts().saturating_sub(1).min(16);
        limits.resume_head_ms.saturating_mul(1 << doublings).min(limits.head_max_ms)
    }

    /// Takes the id and `retry:` of an event. Says whether the stream moved.
    pub(super) fn take(&mut self, event: &Event, limits: &ClientLimits) -> bool {
        if let Some(retry_ms) = event.retry_ms {
            self.asked(retry_ms, limits);
        }
        let is_bare = event.data.trim_ascii().is_empty();
        let Some(id) = &event.id else {
            self.progressed |= !is_bare;
            return false;
        };
        // An empty id resets the cursor (HTML standard 9.2.6); one that fits no header is none.
        let id = is_cursor(id, limits).then(|| String::from_utf8_lossy(id).into_owned());
        if self.cursor == id {
            return false;
        }
        // Where a replay meets what comes live, some servers drop an event and then say where they
        // stand behind it: only what brings a message tells how far it was read.
        if self.resumed && is_bare && self.cursor.is_some() && id.is_some() {
            return false;
        }
        self.progressed |= id.is_some();
        self.cursor = id;
        true
    }

    /// The boundary of the replay was reached, if this is it.
    pub(super) fn reached(&mut self, event: &Event) {
        let Some(Replay::Until(boundary)) = &self.replay else { return };
        let is_end = |comment: &[u8]| {
            comment.strip_prefix(b"replay-end ").is_some_and(|id| id == boundary.as_bytes())
        };
        if event.id.as_deref() == Some(boundary.as_bytes())
            || event.comments.iter().any(|comment| is_end(comment))
        {
            self.replay = None;
        }
    }

    /// The connection is lost, or could not be had; `answered`: by the server's own answer, which
    /// brought nothing.
    pub(super) fn lost(
        &mut self,
        now_ms: u64,
        random: u64,
        answered: bool,
        limits: &ClientLimits,
    ) -> Next {
        self.replay = None;
        self.silence.was_silent = false;
        let lasted_ms = self.lasted_ms(now_ms);
        let connected_ms = self.connected_ms.take();
        self.away_ms.get_or_insert(now_ms);
        let is_first = self.give_up_ms.is_none();
        if std::mem::take(&mut self.progressed) || is_first {
            self.renew(now_ms, limits);
        } else if lasted_ms >= limits.steady_ms {
            self.postpone(lasted_ms);
        } else if connected_ms.is_some() || answered {
            self.fruitless += 1;
        }
        let give_up_ms = self.give_up_ms.unwrap_or(now_ms);
        if self.cursor.is_none() {
            return Next::NoCursor;
        }
        if self.fruitless >= limits.resume_attempts_max || now_ms >= give_up_ms {
            return Next::GiveUp;
        }
        let asked_ms = self.asked_ms(random);
        // Nothing by ourselves before the first attempt: most connections that break can be had
        // again at once, and a server that wants us to wait says so. But not where each connection
        // brings one event and ends.
        let is_first_attempt = self.backoff.attempts() == 0;
        let was_at_once = self
            .at_once_ms
            .is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < limits.resume_at_once_ms);
        let own_ms = self.backoff.next_ms(random);
        let wait_ms = if is_first_attempt && !was_at_once {
            self.at_once_ms = Some(now_ms);
            asked_ms
        } else {
            own_ms.max(asked_ms)
        };
        // A server that gives streams may ask for waits between them; one that is away, or says so,
        // has `resume_max_ms`.
        if connected_ms.is_some() {
            self.postpone(asked_ms);
        }
        Next::ResumeAt(now_ms.saturating_add(wait_ms))
    }

    /// Never less than the server asked for, and not the same for all that it asked.
    fn asked_ms(&self, random: u64) -> u64 {
        self.retry_ms.map_or(0, |asked_ms| {
            asked_ms.saturating_add(random % (asked_ms / 8).saturating_add(1))
        })
    }

    /// The connection has ended, if there was one. Says whether it was a good one.
    pub(super) fn end(&mut self, now_ms: u64, limits: &ClientLimits) -> bool {
        let lasted_ms = self.lasted_ms(now_ms);
        self.connected_ms = None;
        self.replay = None;
        std::mem::take(&mut self.progressed) || lasted_ms >= limits.steady_ms
    }

    /// Progress: what was spent is renewed.
    pub(super) fn renew(&mut self, now_ms: u64, limits: &ClientLimits) {
        self.backoff.reset();
        self.fruitless = 0;
        self.give_up_ms = Some(now_ms.saturating_add(limits.resume_max_ms));
    }

    /// For how long there has been a connection.
    pub(super) fn lasted_ms(&self, now_ms: u64) -> u64 {
        self.connected_ms.map_or(0, |begin_ms| now_ms.saturating_sub(begin_ms))
    }

    fn postpone(&mut self, by_ms: u64) {
        self.give_up_ms = self.give_up_ms.map(|at_ms| at_ms.saturating_add(by_ms));
    }
}

/// Whether an event id can be sent back as a header field.
pub(super) fn is_cursor(id: &[u8], limits: &ClientLimits) -> bool {
    !id.is_empty()
        && id.len() <= limits.cursor_bytes_max
        && id.iter().all(|byte| (0x20..0x7f).contains(byte))
}
