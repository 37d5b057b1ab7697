//! Every limit of a client, with its unit in the name. Times are milliseconds, sizes are bytes.

/// What one client may take, and how long it waits. [`ClientLimits::default`] is meant for all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientLimits {
    /// One message: a line of the host, a body, an event.
    pub message_bytes_max: usize,
    /// What has come of events and bodies that are not whole yet, of all exchanges together, and
    /// beside the first 64 KiB of each. One of them may always be read on, up to its own end or
    /// `message_bytes_max`; the others wait for room.
    pub half_read_bytes_max: usize,
    /// Time that one of these waits for room, before it is given up.
    pub half_read_wait_max_ms: u64,
    /// Nesting of one JSON message.
    pub json_depth_max: usize,
    /// Calls of the host that have not ended; one more is refused.
    pub calls_max: usize,
    /// Bytes of what waits to be sent, calls in flight among it; a message beyond is refused.
    pub pending_bytes_max: usize,
    /// Notifications and responses of the host that were not taken by the server yet; one more is
    /// dropped, and told.
    pub notes_max: usize,
    /// Time that a server may answer 500 to a notification or response of the host before it is
    /// dropped: calls wait for it.
    pub note_failing_max_ms: u64,
    /// POSTs of calls at the same time; what is more waits.
    pub posts_open_max: usize,
    /// POSTs of notifications and responses at the same time, with those whose answers are still
    /// read; what is more waits.
    pub note_posts_open_max: usize,
    /// Requests of the server that the host has not answered; one more is refused.
    pub asked_max: usize,
    /// Bytes of the id of such a request; one with a longer id is refused.
    pub asked_id_bytes_max: usize,
    /// Streams confirmed by one request (`Mcp-Stream-Ack`).
    pub acks_max: usize,
    /// Bytes of an event id that can be a cursor.
    pub cursor_bytes_max: usize,
    /// Events that are known again when a resumed stream brings them twice.
    pub seen_events_max: usize,
    /// Tools whose annotations are remembered.
    pub tools_max: usize,
    /// Calls that became tasks whose progress is still known: the newest.
    pub tasks_max: usize,
    /// First wait between two attempts, where the server says nothing.
    pub backoff_ms: u64,
    /// Longest wait between two attempts, where the server says nothing.
    pub backoff_max_ms: u64,
    /// Longest wait between two attempts to have the standalone stream, which is no call's.
    pub standalone_backoff_max_ms: u64,
    /// Longest `retry:` or `Retry-After` that is honoured in full.
    pub retry_max_ms: u64,
    /// Time between two resumes of one stream without a wait of the client's own.
    pub resume_at_once_ms: u64,
    /// Resumes of one stream that the server answers with nothing new.
    pub resume_attempts_max: u32,
    /// Time to resume one stream without progress, beside the waits that the server asked for
    /// between streams that it gave.
    pub resume_max_ms: u64,
    /// A connection that lasted so long was a good one, even if it brought nothing new: it spends
    /// nothing of what a stream may be resumed, and renews nothing.
    pub steady_ms: u64,
    /// A resumed stream of a server that is no Rejoin on which nothing new came for so long is
    /// asked for again, at first: some send what comes later to their store alone.
    pub resumed_silence_ms: u64,
    /// The same, at most: it doubles with each that brings nothing.
    pub resumed_silence_max_ms: u64,
    /// Times that one call is sent again without any sign of it in between.
    pub resends_max: u32,
    /// Sessions that may be lost under one call before it ends.
    pub session_losses_max: u32,
    /// Bytes of what a new session is told again: the level of the log, subscriptions.
    pub told_bytes_max: usize,
    /// Time that a server may be unreachable before what waits for it ends with an error.
    pub unreachable_max_ms: u64,
    /// A replay without a boundary counts as over when nothing came for so long.
    pub replay_quiet_ms: u64,
    /// Time without progress after which the recorded answer of a call waits no longer for what
    /// came before it.
    pub recorded_wait_ms: u64,
    /// Longest time that a stream without a connection holds other POSTs.
    pub hold_max_ms: u64,
    /// Longest time that a replay without a boundary holds other POSTs.
    pub replay_max_ms: u64,
    /// Time a stream is read on after the answer, for its proper end.
    pub linger_ms: u64,
    /// Time an answer may still come on the standalone stream after the call's own has ended.
    pub elsewhere_ms: u64,
    /// Time the stream of a cancelled call is read on.
    pub cancelled_max_ms: u64,
    /// Time until the head of an answer, where the server is known to send it early: of a Rejoin,
    /// to a GET, to what is no request.
    pub head_max_ms: u64,
    /// Time until the head of an answer of a Rejoin to a GET that resumes, at first: it is sent at
    /// once, and calls wait for it. It doubles up to `head_max_ms`, as a slow path may need.
    pub resume_head_ms: u64,
    /// Time until the whole answer to an `initialize` that opens the session anew, and to what
    /// completes it. A Rejoin gives its server 60 s.
    pub initialize_max_ms: u64,
    /// A stream of a Rejoin on which not even a comment came for so long has lost its connection.
    pub stream_idle_max_ms: u64,
    /// Time for another answer to a call after one that cannot be read.
    pub unreadable_max_ms: u64,
    /// A call of which nothing came for so long is given up.
    pub call_silence_max_ms: u64,
    /// Who is woken so much later than it wanted was stopped, or slept: that time does not count.
    pub pause_min_ms: u64,
    /// What it then has left of a longer wait.
    pub pause_left_ms: u64,
    /// Time that pending calls have once the host is gone.
    pub end_grace_ms: u64,
    /// Time that a host has to read, once it closed its side while it had not read what came
    /// before: then what it still wrote is left unread.
    pub unread_max_ms: u64,
    /// Time the DELETE of the session gets.
    pub delete_max_ms: u64,
    /// Time to connect, TLS and proxy included.
    pub connect_max_ms: u64,
    /// Time an idle connection is kept for the next POST. Less than servers keep theirs, since a
    /// request that meets a closing connection has an unknown outcome.
    pub pool_idle_max_ms: u64,
    /// Idle time before TCP keep-alive probes.
    pub tcp_keepalive_time_ms: u64,
    /// Interval between TCP keep-alive probes.
    pub tcp_keepalive_interval_ms: u64,
    /// Unanswered TCP keep-alive probes before a connection is dead.
    pub tcp_keepalive_probes: u32,
    /// Kernel time-out for unacknowledged bytes (`TCP_USER_TIMEOUT`).
    pub tcp_user_timeout_ms: u64,
    /// Time a refusal's body may take after its head; later it is refused by its status alone.
    pub refusal_body_max_ms: u64,
    /// Time a file or command may take to give a credential.
    pub credential_max_ms: u64,
    /// Times in a row that a call is tried while there is no credential to send it with.
    pub credential_failures_max: u32,
    /// Redirects followed for one request.
    pub redirects_max: u32,
    /// What comes from exchanges and waits to be looked at.
    pub answers_queue_max: usize,
    /// Bytes of these; beyond, nothing more is read.
    pub answers_queue_bytes_max: usize,
    /// Messages and notices that wait for the host.
    pub host_queue_max: usize,
    /// Bytes of the messages that wait for the host; beyond, nothing more is read.
    pub host_queue_bytes_max: usize,
}

const MINUTE_MS: u64 = 60_000;
const MIB: usize = 1024 * 1024;

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            message_bytes_max: 16 * MIB,
            half_read_bytes_max: 64 * MIB,
            half_read_wait_max_ms: 10_000,
            json_depth_max: 128,
            calls_max: 1_024,
            pending_bytes_max: 64 * MIB,
            notes_max: 1_024,
            note_failing_max_ms: 10_000,
            posts_open_max: 256,
            note_posts_open_max: 32,
            asked_max: 1_024,
            asked_id_bytes_max: 1_024,
            acks_max: 32,
            cursor_bytes_max: 4_096,
            seen_events_max: 4_096,
            tools_max: 4_096,
            tasks_max: 1_024,
            backoff_ms: 200,
            backoff_max_ms: 10_000,
            standalone_backoff_max_ms: MINUTE_MS,
            retry_max_ms: 10 * MINUTE_MS,
            resume_at_once_ms: 1_000,
            resume_attempts_max: 8,
            resume_max_ms: 5 * MINUTE_MS,
            steady_ms: 10_000,
            resumed_silence_ms: 3_000,
            resumed_silence_max_ms: 30_000,
            resends_max: 8,
            session_losses_max: 2,
            told_bytes_max: MIB,
            unreachable_max_ms: 5 * MINUTE_MS,
            recorded_wait_ms: MINUTE_MS,
            hold_max_ms: MINUTE_MS,
            replay_quiet_ms: 500,
            replay_max_ms: 10_000,
            linger_ms: 1_000,
            elsewhere_ms: 1_000,
            cancelled_max_ms: 5_000,
            head_max_ms: 30_000,
            resume_head_ms: 5_000,
            initialize_max_ms: 70_000,
            stream_idle_max_ms: 45_000,
            unreadable_max_ms: 5_000,
            call_silence_max_ms: 60 * MINUTE_MS,
            pause_min_ms: 2_000,
            pause_left_ms: MINUTE_MS,
            end_grace_ms: 2_000,
            unread_max_ms: 5_000,
            delete_max_ms: 2_000,
            connect_max_ms: 10_000,
            pool_idle_max_ms: 1_500,
            tcp_keepalive_time_ms: 15_000,
            tcp_keepalive_interval_ms: 5_000,
            tcp_keepalive_probes: 3,
            tcp_user_timeout_ms: 30_000,
            refusal_body_max_ms: 5_000,
            credential_max_ms: 10_000,
            credential_failures_max: 2,
            redirects_max: 3,
            answers_queue_max: 64,
            answers_queue_bytes_max: 32 * MIB,
            host_queue_max: 256,
            host_queue_bytes_max: 64 * MIB,
        }
    }
}
