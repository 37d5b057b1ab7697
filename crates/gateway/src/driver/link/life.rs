//! The life of an upstream session: opened again, resumed, ended, left.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rejoin_core::input::FromUpstream;
use rejoin_core::message::{self, Incoming, Kind};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Link, State};
use crate::upstream::{Command, Opened, Opening, Resumption};

/// Pause before a server that had two short lives in a row is started again; doubled with each.
const RESTART_PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest such pause.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(5);

impl Link {
    /// Ends the upstream session gracefully, or leaves it to be resumed (`is_left`); waits until
    /// nothing of it remains here, as long as the adapter may take for that.
    pub(in crate::driver) async fn end(self, is_left: bool) {
        let State::Open { commands, mut events, .. } = self.state else { return };
        let last = if is_left { Command::Leave } else { Command::End };
        // Whoever has ended already needs no telling.
        let tell = async move { commands.send(last).await.unwrap_or(()) };
        // The adapter may wait for room for its events, so they are taken until it is done.
        let take = async { while events.recv().await.is_some() {} };
        let ended = timeout(self.end_max, async { tokio::join!(tell, take) });
        if ended.await.is_err() {
            tracing::info!(session = %self.tag, "the server did not end in time");
        }
    }

    /// Ends the session, and hears no more of it.
    pub(super) fn hang_up(&mut self) {
        self.backlog.clear();
        self.backlog_bytes = 0;
        if let State::Open { commands, .. } = std::mem::replace(&mut self.state, State::Closed) {
            // No room: dropping the sender says the same.
            let _said = commands.try_send(Command::End).is_ok();
        }
    }

    pub(super) fn resume(&mut self, resumption: Resumption) {
        let calls = resumption.calls.len();
        let Some(resumed) = self.upstream.resume(resumption) else {
            return self.ready.push_back(FromUpstream::Closed);
        };
        tracing::info!(session = %self.tag, calls, "the session with the server goes on");
        self.opened_at = Instant::now();
        self.state = resumed.into();
        self.flush();
    }

    pub(super) fn reopen(&mut self, restore: Vec<Bytes>) {
        self.hang_up();
        self.backlog.extend(restore.into_iter().map(|message| Command::Send { message }));
        let upstream = Arc::clone(&self.upstream);
        let opening_with =
            Opening { initialize: self.initialize.clone(), headers: self.headers.clone() };
        let mut opening = JoinSet::new();
        let pause = self.restart_pause();
        opening.spawn(async move {
            sleep(pause).await;
            upstream.open(opening_with).await
        });
        self.state = State::Opening(opening);
    }

    /// One death is an accident: only from the second in a row on is it waited for.
    fn restart_pause(&self) -> Duration {
        match self.short_lives.checked_sub(2) {
            Some(doublings) => {
                let factor = 2_u32.saturating_pow(doublings);
                RESTART_PAUSE_FIRST.saturating_mul(factor).min(RESTART_PAUSE_MAX)
            }
            None => Duration::ZERO,
        }
    }

    pub(super) fn opened(&mut self, opened: Opened) {
        let answer = message::parse(opened.answer.clone(), self.json_depth_max);
        if !matches!(answer, Ok(Incoming::One(answer)) if answer.kind() == Kind::Response) {
            return self.not_opened("it refused initialize");
        }
        tracing::info!(session = %self.tag, "the server was started again");
        self.opened_at = Instant::now();
        let continuation = opened.continuation.clone().filter(|_| self.is_kept);
        self.state = opened.into();
        self.ready.push_back(FromUpstream::Reopened { continuation });
        self.flush();
    }

    pub(super) fn not_opened(&mut self, why: &str) {
        let upstream = self.upstream.name();
        tracing::warn!(session = %self.tag, upstream, why, "the server could not be started again");
        self.closed();
    }
}
