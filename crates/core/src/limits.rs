//! Every limit of the product, in one place, with its unit in the name (design section 9).
//!
//! Times are milliseconds, sizes are bytes. [`Limits::check`] refuses a set that contradicts
//! itself.

#[macro_use]
mod described;
mod http2;
mod quota;
mod range;
mod upstream;
mod zero;

use serde::{Deserialize, Serialize};

pub use http2::Http2Limits;
pub use upstream::UpstreamLimits;

described! {
/// All limits of a gateway (design section 9). [`Limits::default`] has the documented defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Limits {
    /// Detached time after which an owed stream is abandoned; `never`: it is not (strict).
    pub owed_grace_ms: Option<u64>,
    /// Longest time a POST is held before it is refused.
    pub hold_max_ms: u64,
    /// Time after which a held POST is answered with headers, priming and comments. The head of a
    /// call waits no longer for that of its server.
    pub held_headers_ms: u64,
    /// Held POSTs in one session; one beyond is refused at once.
    pub held_posts_max: usize,
    /// A replay whose connection acknowledges no byte for this long counts as dropped.
    pub replay_stall_ms: u64,
    /// Longest time a replay keeps the gate closed.
    pub replay_max_ms: u64,
    /// Time the gate stays closed after the peer's kernel acknowledged the whole replay.
    pub gate_settle_ms: u64,
    /// An identical call this soon after a living first is a twin.
    pub twin_window_ms: u64,
    /// Time a connection has to acknowledge a liveness comment.
    pub liveness_answer_ms: u64,
    /// Repeats by params are recognised this long after the call's end and loss.
    pub repeat_window_ms: u64,
    /// Longest time a stream waits, after its final event, for the peer's kernel.
    pub ending_max_ms: u64,
    /// A reset this soon after a stream's end makes its delivery doubtful.
    pub reset_window_ms: u64,
    /// Longest wait of an identical POST for a reset of its presumed original.
    pub repeat_wait_ms: u64,
    /// Time after a clean end in which an answer counts as `ending` where no socket can be seen.
    pub unobserved_presume_ms: u64,
    /// A running call without one byte from upstream for this long is given up.
    pub call_silence_max_ms: u64,
    /// A server request not answered for this long is answered with an error.
    pub server_request_max_ms: u64,
    /// An idle session's child is ended after this long.
    pub session_idle_ms: u64,
    /// A session whose client sends nothing after `initialize` is ended after this long.
    pub session_unused_ms: u64,
    /// `retry:` of an ordinary stream.
    pub retry_ms: u64,
    /// `retry:` of a fenced connection.
    pub fenced_retry_ms: u64,
    /// Time a connection has to take the end of its stream once that was told to end, or lost; then
    /// the connection is cut.
    pub stream_end_grace_ms: u64,
    /// Interval of keep-alive comments.
    pub keep_alive_ms: u64,
    /// Kernel time-out for unacknowledged bytes (`TCP_USER_TIMEOUT`).
    pub tcp_user_timeout_ms: u64,
    /// Idle time before TCP keep-alive probes.
    pub tcp_keepalive_time_ms: u64,
    /// Interval between TCP keep-alive probes.
    pub tcp_keepalive_interval_ms: u64,
    /// Unanswered TCP keep-alive probes before a connection is dead.
    pub tcp_keepalive_probes: u32,
    /// Time a client has to send a request's head; also how long an idle connection is kept open.
    pub request_head_max_ms: u64,
    /// Header lines of one request.
    pub request_headers_max: usize,
    /// Bytes of one request's head.
    pub request_head_bytes_max: usize,
    /// Bytes that one connection buffers in each direction.
    pub connection_buffer_bytes_max: usize,
    /// The rest of what an HTTP/2 connection may take; set as `http2.NAME`.
    pub http2: Http2Limits,
    /// Time a client has to send a request's whole body.
    pub request_body_max_ms: u64,
    /// Time `initialize` may take upstream.
    pub initialize_max_ms: u64,
    /// How long streams, results and records are kept.
    pub retention_ms: u64,
    /// How long a used dedup token is remembered.
    pub tombstone_ms: u64,
    /// Sessions in all.
    pub sessions_max: usize,
    /// Child processes in all.
    pub children_max: usize,
    /// Streams kept in one session, the standalone one among them; at least 2.
    pub session_streams_max: usize,
    /// Calls of one session that are remembered only as "do not run it again", once their streams
    /// had to be forgotten.
    pub forgotten_calls_max: usize,
    /// Connections accepted at the same time.
    pub connections_max: usize,
    /// Exchanges passed through at the same time: requests without a session, revisions without
    /// sessions.
    pub passed_exchanges_max: usize,
    /// Exchanges of one principal passed through at the same time.
    pub principal_passed_exchanges_max: usize,
    /// Requests of one batch (revision 2025-03-26).
    pub batch_requests_max: usize,
    /// Log bytes of one session. Beyond it what its clients have goes, an upstream that can wait
    /// is asked to, and what is still owed is kept up to `session_log_hard_bytes_max`.
    pub session_log_bytes_max: u64,
    /// Log bytes of one session: what is owed is never dropped below. Here progress makes way for
    /// answers, and calls are admitted only if one more `session_log_bytes_max` is left.
    pub session_log_hard_bytes_max: u64,
    /// Longest time an upstream is asked to wait for room in a session's log, from when that last
    /// outgrew its quota.
    pub back_pressure_max_ms: u64,
    /// What a stream of an upstream brings on one connection before it can be asked to wait: small
    /// answers pass while a flood waits.
    pub back_pressure_free_bytes: u64,
    /// Room in the log without which no call is admitted, and which is kept free for the answer of
    /// every running call; at most half of what its session may keep.
    pub claim_room_bytes_min: u64,
    /// Log bytes of one principal.
    pub principal_log_bytes_max: u64,
    /// Log bytes in all.
    pub total_log_bytes_max: u64,
    /// Room of `principal_log_bytes_max` and `total_log_bytes_max` that sessions are not told of:
    /// it is left for the rows and the last events of all. At most an eighth of the smaller quota.
    pub quota_margin_bytes_max: u64,
    /// Log bytes kept in memory in all; the rest is spilled to a file.
    pub memory_log_bytes_max: u64,
    /// One request body.
    pub body_bytes_max: usize,
    /// Request bodies in memory in all, but for the first `connection_buffer_bytes_max` of each:
    /// small requests get through whatever large ones do.
    pub request_bodies_bytes_max: usize,
    /// A message that is kept as long as its session, to start the server again: `initialize`,
    /// `notifications/initialized`, log level, subscriptions.
    pub kept_message_bytes_max: usize,
    /// A JSON-RPC id, progress token, method or tool name of a request: all are kept with the call.
    pub name_bytes_max: usize,
    /// One line of a stdio server.
    pub line_bytes_max: usize,
    /// One SSE event.
    pub event_bytes_max: usize,
    /// The operator's file of credentials and subjects: about 100 bytes for each credential.
    pub subjects_file_bytes_max: u64,
    /// Nesting of one JSON message.
    pub json_depth_max: usize,
    /// Messages waiting to be written to one upstream.
    pub upstream_queue_max: usize,
    /// Bytes of the messages on their way to one server, of all sessions. A quarter is left for
    /// sessions with at most `connection_buffer_bytes_max` on their way, and there is room for at
    /// least two bodies (`body_bytes_max`).
    pub upstream_queue_bytes_max: usize,
    /// The rest of what a session with an upstream may take; set as `upstream.NAME`.
    pub upstream: UpstreamLimits,
    /// Time a child has to exit after its standard input was closed.
    pub child_eof_grace_ms: u64,
    /// Time a child has to exit after SIGTERM.
    pub child_term_grace_ms: u64,
    /// Time running calls have to finish after SIGTERM to the gateway.
    pub drain_ms: u64,
}
}

/// Messages of one batch that are read at all, whoever wrote it; `batch_requests_max` is what a
/// client may send.
pub const BATCH_MESSAGES_MAX: usize = 4_096;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const MIB: u64 = 1024 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            owed_grace_ms: Some(8_000),
            hold_max_ms: 10_000,
            held_headers_ms: 250,
            held_posts_max: 64,
            replay_stall_ms: 10_000,
            replay_max_ms: MINUTE_MS,
            gate_settle_ms: 500,
            twin_window_ms: 5_000,
            liveness_answer_ms: 2_000,
            repeat_window_ms: 10 * MINUTE_MS,
            ending_max_ms: 45_000,
            reset_window_ms: 5_000,
            repeat_wait_ms: 50,
            unobserved_presume_ms: 1_000,
            call_silence_max_ms: HOUR_MS,
            server_request_max_ms: MINUTE_MS,
            session_idle_ms: 30 * MINUTE_MS,
            session_unused_ms: MINUTE_MS,
            retry_ms: 2_000,
            fenced_retry_ms: 30_000,
            stream_end_grace_ms: 5_000,
            keep_alive_ms: 15_000,
            tcp_user_timeout_ms: 30_000,
            tcp_keepalive_time_ms: 15_000,
            tcp_keepalive_interval_ms: 5_000,
            tcp_keepalive_probes: 3,
            request_head_max_ms: 75_000,
            request_headers_max: 100,
            request_head_bytes_max: 32 * 1024,
            connection_buffer_bytes_max: 64 * 1024,
            http2: Http2Limits::default(),
            request_body_max_ms: 30_000,
            initialize_max_ms: MINUTE_MS,
            retention_ms: 24 * HOUR_MS,
            tombstone_ms: 7 * 24 * HOUR_MS,
            sessions_max: 10_000,
            children_max: 64,
            session_streams_max: 1_024,
            forgotten_calls_max: 16_384,
            connections_max: 20_000,
            passed_exchanges_max: 4_096,
            principal_passed_exchanges_max: 1_024,
            batch_requests_max: 64,
            session_log_bytes_max: 64 * MIB,
            session_log_hard_bytes_max: 256 * MIB,
            back_pressure_max_ms: 10_000,
            back_pressure_free_bytes: MIB,
            claim_room_bytes_min: 64 * 1024,
            principal_log_bytes_max: 1_024 * MIB,
            total_log_bytes_max: 8 * 1_024 * MIB,
            quota_margin_bytes_max: MIB,
            memory_log_bytes_max: 8 * MIB,
            body_bytes_max: 16 * MIB as usize,
            request_bodies_bytes_max: 256 * MIB as usize,
            kept_message_bytes_max: 64 * 1024,
            name_bytes_max: 1_024,
            line_bytes_max: 16 * MIB as usize,
            event_bytes_max: 16 * MIB as usize,
            subjects_file_bytes_max: 8 * MIB,
            json_depth_max: 128,
            upstream_queue_max: 1_024,
            upstream_queue_bytes_max: 256 * MIB as usize,
            upstream: UpstreamLimits::default(),
            child_eof_grace_ms: 5_000,
            child_term_grace_ms: 5_000,
            drain_ms: 30_000,
        }
    }
}

/// Why a set of limits cannot be used. The message names the settings and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// Nothing could be served, or what is served would end at once.
    #[error("{name} must not be 0: set it to at least 1, or leave it out for its default")]
    Zero {
        /// The limit.
        name: &'static str,
    },
    /// The system, or a library, takes no such value: every connection would end before it was set
    /// up.
    #[error(
        "{name} ({value}) must be from {min} to {max}: set it within, or leave it out for its \
         default"
    )]
    OutOfRange {
        /// The limit.
        name: &'static str,
        /// The configured value.
        value: u64,
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
    },
    /// No call would ever be admitted.
    #[error(
        "session_streams_max ({session_streams_max}) must be at least 2, one of them for what \
         belongs to no call: raise it, or leave it out for its default"
    )]
    NoStreamForCalls {
        /// The configured number.
        session_streams_max: usize,
    },
    /// A client that waits for `retry:` would find its stream already abandoned.
    #[error(
        "owed_grace_ms ({owed_grace_ms}) must be at least 4 x retry_ms ({retry_ms}): \
         raise owed_grace_ms or lower retry_ms"
    )]
    GraceTooShort {
        /// The configured grace.
        owed_grace_ms: u64,
        /// The configured retry.
        retry_ms: u64,
    },
    /// Loss alone would refuse POSTs, although the grace would have freed them.
    #[error(
        "hold_max_ms ({hold_max_ms}) must be more than owed_grace_ms ({owed_grace_ms}): \
         raise hold_max_ms, or set owed_grace_ms to never"
    )]
    HoldTooShort {
        /// The configured hold.
        hold_max_ms: u64,
        /// The configured grace.
        owed_grace_ms: u64,
    },
    /// No call, or hardly any, would find room for its answer.
    #[error(
        "{name} ({bytes_max}) must be at least {bytes_min}: below it calls find no room for their \
         answers; raise it, or leave it out for its default"
    )]
    LogTooSmall {
        /// The limit.
        name: &'static str,
        /// The configured number.
        bytes_max: u64,
        /// The smallest number.
        bytes_min: u64,
    },
    /// The quota would never be reached.
    #[error(
        "session_log_hard_bytes_max ({hard_bytes_max}) must be at least session_log_bytes_max \
         ({bytes_max}): raise it (4 x is the default), or lower session_log_bytes_max"
    )]
    HardLimitTooLow {
        /// The configured hard limit.
        hard_bytes_max: u64,
        /// The configured quota.
        bytes_max: u64,
    },
}

impl LimitsError {
    /// The limits that it is about, by the names of their fields.
    pub fn names(&self) -> Vec<&'static str> {
        match self {
            Self::Zero { name }
            | Self::OutOfRange { name, .. }
            | Self::LogTooSmall { name, .. } => vec![name],
            Self::NoStreamForCalls { .. } => vec!["session_streams_max"],
            Self::GraceTooShort { .. } => vec!["owed_grace_ms", "retry_ms"],
            Self::HoldTooShort { .. } => vec!["owed_grace_ms", "hold_max_ms"],
            Self::HardLimitTooLow { .. } => {
                vec!["session_log_bytes_max", "session_log_hard_bytes_max"]
            }
        }
    }
}

impl Limits {
    /// What a limit is, in one sentence: the first of its documentation. The name is that of its
    /// field, with `upstream.` before those of [`UpstreamLimits`], and `http2.` before those of
    /// [`Http2Limits`]. `None`: there is no such limit.
    pub fn description(name: &str) -> Option<&'static str> {
        let (fields, name) = match name.split_once('.') {
            Some(("http2", name)) => (Http2Limits::DESCRIPTIONS, name),
            Some(("upstream", name)) => (UpstreamLimits::DESCRIPTIONS, name),
            _ => (Self::DESCRIPTIONS, name),
        };
        let (_, text) = fields.iter().find(|(field, _)| *field == name)?;
        let text = text.trim();
        let first = text.split_once(". ").map_or(text, |(first, _)| first);
        Some(first.strip_suffix('.').unwrap_or(first))
    }

    /// Checks the limits against each other: `4 x retry <= owed_grace < hold_max` unless strict
    /// (design section 9). Refuses a zero that would make the gateway useless, what no socket
    /// takes, and a log that has no room for a call.
    pub fn check(&self) -> Result<(), LimitsError> {
        zero::check(self)?;
        range::check(self)?;
        quota::check(self)?;
        let (bytes_max, hard_bytes_max) =
            (self.session_log_bytes_max, self.session_log_hard_bytes_max);
        if hard_bytes_max < bytes_max {
            return Err(LimitsError::HardLimitTooLow { hard_bytes_max, bytes_max });
        }
        let Some(owed_grace_ms) = self.owed_grace_ms else { return Ok(()) };
        let (retry_ms, hold_max_ms) = (self.retry_ms, self.hold_max_ms);
        if owed_grace_ms < retry_ms.saturating_mul(4) {
            return Err(LimitsError::GraceTooShort { owed_grace_ms, retry_ms });
        }
        if hold_max_ms <= owed_grace_ms {
            return Err(LimitsError::HoldTooShort { hold_max_ms, owed_grace_ms });
        }
        Ok(())
    }
}
