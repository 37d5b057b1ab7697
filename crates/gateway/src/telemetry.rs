//! One line in the log, and one count, for what sessions decide (design section 8). Never payloads,
//! ids or tokens of clients: a session is its server and its tag, streams and calls are Rejoin's
//! own numbers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rejoin_core::effect::Note;
use rejoin_core::id::{CallId, ConnectionId};
use rejoin_core::rejection::Reason;
use rejoin_core::stream::StreamState;
use tokio::time::Instant;

use crate::handle::{NoteSink, SessionTag};
use crate::metrics::{Decision, Eviction, Metrics};
use crate::throttle::Throttle;

/// Writes notes of one server's sessions to the log and to the metrics.
#[derive(Debug)]
pub(crate) struct Telemetry {
    /// What the log calls the server.
    server: String,
    metrics: Arc<Metrics>,
    /// For calls that are refused: a client can send many.
    refusal_log: Mutex<Throttle>,
}

impl Telemetry {
    pub(crate) fn new(server: &str, metrics: Arc<Metrics>) -> Self {
        let refusal_log = Mutex::new(Throttle::new(Instant::now()));
        Self { server: server.to_owned(), metrics, refusal_log }
    }
}

impl NoteSink for Telemetry {
    fn note(&self, session: &SessionTag, note: &Note) {
        let server = &self.server[..];
        match note {
            Note::Decided { connection, row, verdict, reason, original, call, tool } => {
                let tool = tool.as_deref();
                let decided = Decided { row: *row, verdict, reason: *reason, tool };
                self.decided(session, *connection, decided, *original, *call);
            }
            Note::WaitEnded { connection, waited_ms } => {
                let waited = Duration::from_millis(*waited_ms);
                self.metrics.held_seconds.observe(waited.as_secs_f64());
                tracing::info!(server, %session, %connection, waited_ms, "a wait ended");
            }
            Note::Executed(call) => {
                self.metrics.executions.inc();
                tracing::debug!(server, %session, %call, "a call goes to the server");
            }
            Note::RepeatPrevented(call) => {
                self.metrics.repeats_prevented.inc();
                tracing::info!(server, %session, %call, "a repeat does not run");
            }
            Note::StreamMoved { stream, from, to } => {
                let (from, to_name) = (from.name(), to.name());
                if is_loss(*to) {
                    tracing::info!(server, %session, %stream, from, to = to_name, "a stream moved");
                } else {
                    let to = to_name;
                    tracing::debug!(server, %session, %stream, from, to, "a stream moved");
                }
            }
            Note::CallMoved { call, to } => self.call_moved(session, *call, to),
            Note::Evicted { stream, bytes, owed } => {
                let label = Eviction { owed: if *owed { "true" } else { "false" } };
                self.metrics.evictions.get_or_create(&label).inc();
                self.metrics.evicted_bytes.get_or_create(&label).inc_by(*bytes);
                if *owed {
                    tracing::warn!(server, %session, %stream, bytes, "owed events were evicted");
                } else {
                    tracing::debug!(server, %session, %stream, bytes, "events were evicted");
                }
            }
            Note::NoRoom { limits } => self.no_room(session, limits),
            Note::Idle { idle_ms } => {
                tracing::info!(server, %session, idle_ms, "a session ends: its client was idle");
            }
            Note::Ignored(what) => tracing::debug!(server, %session, what, "ignored"),
            Note::UpstreamMoved(what) => {
                if *what == "reopened" {
                    self.metrics.upstream_restarts.inc();
                }
                tracing::info!(server, %session, what, "{}", moved(what));
            }
            other => tracing::debug!(server, %session, ?other, "noted"),
        }
    }
}

/// What was decided, and why.
struct Decided<'a> {
    row: u8,
    verdict: &'static str,
    reason: Option<Reason>,
    /// Of a refused call.
    tool: Option<&'a str>,
}

impl Telemetry {
    fn decided(
        &self,
        session: &SessionTag,
        connection: ConnectionId,
        decided: Decided<'_>,
        original: Option<CallId>,
        call: Option<CallId>,
    ) {
        let server = &self.server[..];
        let Decided { row, verdict, reason, tool } = decided;
        let reason = reason.map(Reason::name);
        // A request that waits is decided again: it counts once, when it waits no more.
        if !matches!(verdict, "hold" | "wait" | "probe" | "join") {
            let label = Decision { verdict, reason: reason.unwrap_or_default() };
            self.metrics.posts.get_or_create(&label).inc();
        }
        let (call, original) = (call.map(CallId::get), original.map(CallId::get));
        // A plain call is the rule; everything else is what an operator looks for.
        if matches!(verdict, "claim" | "pass") {
            tracing::debug!(server, %session, %connection, call, row, verdict, "decided");
        } else {
            tracing::info!(
                server, %session, %connection, call, original, row, verdict, reason, tool, "decided"
            );
        }
    }

    fn no_room(&self, session: &SessionTag, limits: &[&str]) {
        let server = &self.server[..];
        let mut throttle = self.refusal_log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unlogged) = throttle.admit(Instant::now()) {
            let limits: Vec<_> = limits.iter().map(|name| format!("`--limit {name}=`")).collect();
            let remedy = format!("raise {}", limits.join(" or "));
            let what = "a call was refused: there is no room";
            tracing::warn!(server, %session, remedy, unlogged, "{what}");
        }
    }

    fn call_moved(&self, session: &SessionTag, call: CallId, to: &'static str) {
        let server = &self.server[..];
        if to == "unknown" {
            self.metrics.unknown_outcomes.inc();
            tracing::warn!(server, %session, %call, to, "nobody knows the outcome of a call");
        } else {
            tracing::debug!(server, %session, %call, to, "a call moved");
        }
    }
}

/// What became of a session's server. Its end is told when it is known, a new beginning only once
/// something is sent there again.
fn moved(what: &str) -> &'static str {
    match what {
        "closed" => "the session's server ended, or no longer knows it",
        "idle" => "the server of an idle session is ended",
        "continuing" => "the session is continued at its server",
        "reopening" => "the session is opened at its server again",
        "reopened" => "the session is open at its server again; what was kept there is lost",
        _ => "the session's server moved",
    }
}

/// The states in which an answer may be missing at its client.
fn is_loss(state: StreamState) -> bool {
    matches!(state, StreamState::Owed | StreamState::Abandoned | StreamState::Doubtful)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(notes: &[Note]) -> Arc<Metrics> {
        let metrics = Arc::new(Metrics::new());
        let telemetry = Telemetry::new("tools", Arc::clone(&metrics));
        for note in notes {
            telemetry.note(&SessionTag::new(&[0; 32]), note);
        }
        metrics
    }

    #[test]
    fn a_server_is_told_as_open_again_only_once_it_is() {
        let told: Vec<_> = ["closed", "idle", "reopening", "reopened"].map(moved).into();
        let again: Vec<_> = told.iter().map(|text| text.contains("again")).collect();
        assert_eq!(again, [false, false, true, true]);
        assert!(told[0].contains("ended, or no longer knows"), "{told:?}");
        assert!(told.iter().all(|text| *text != moved("")), "{told:?}");
    }

    #[test]
    fn notes_are_counted() {
        let decided = Note::Decided {
            connection: ConnectionId(1),
            row: 9,
            verdict: "reject",
            reason: Some(Reason::RequestInFlight),
            original: Some(CallId(1)),
            call: None,
            tool: Some("charge".into()),
        };
        let waiting = |verdict| Note::Decided {
            connection: ConnectionId(2),
            row: 16,
            verdict,
            reason: None,
            original: Some(CallId(1)),
            call: None,
            tool: None,
        };
        let evicted = Note::Evicted { stream: Default::default(), bytes: 7, owed: true };
        let metrics = noted(&[
            decided,
            waiting("hold"),
            waiting("wait"),
            waiting("probe"),
            waiting("join"),
            evicted,
            Note::Executed(CallId(1)),
            Note::RepeatPrevented(CallId(1)),
            Note::CallMoved { call: CallId(1), to: "unknown" },
            Note::CallMoved { call: CallId(2), to: "finished" },
            Note::UpstreamMoved("closed"),
            Note::UpstreamMoved("reopened"),
        ]);
        let refused = Decision { verdict: "reject", reason: "request_in_flight" };
        assert_eq!(metrics.posts.get_or_create(&refused).get(), 1);
        let owed = Eviction { owed: "true" };
        assert_eq!(metrics.evicted_bytes.get_or_create(&owed).get(), 7);
        let waits = ["hold", "wait", "probe", "join"];
        for verdict in waits {
            let waiting = Decision { verdict, reason: "" };
            assert_eq!(metrics.posts.get_or_create(&waiting).get(), 0, "{verdict} is not final");
        }
        let counts = [
            metrics.executions.get(),
            metrics.repeats_prevented.get(),
            metrics.unknown_outcomes.get(),
            metrics.upstream_restarts.get(),
        ];
        assert_eq!(counts, [1; 4]);
    }
}
