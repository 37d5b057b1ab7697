//! Limits of the conversation with the MCP server behind the gateway.

use serde::{Deserialize, Serialize};

described! {
/// What one session with an MCP server may take. All but the first three are about servers over
/// HTTP. Times are milliseconds, sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct UpstreamLimits {
    /// Messages of one server that wait for the gateway. What follows waits where it came from and
    /// costs nothing there; more would only delay answers that come behind a flood of progress.
    pub events_max: usize,
    /// Settings (the log level, each subscription) that are kept to tell the server when it is
    /// started again. One beyond is refused.
    pub kept_settings_max: usize,
    /// Bytes of these settings.
    pub kept_settings_bytes_max: usize,
    /// Time to connect, TLS included, until the first byte of a request leaves.
    pub connect_max_ms: u64,
    /// Time until an answer begins, to anything but a call and the standalone GET: those may take
    /// as long as the server likes.
    pub head_max_ms: u64,
    /// Time a pooled connection may be idle. Less than servers keep theirs, since a request that
    /// meets a closing connection has an unknown outcome.
    pub pool_idle_max_ms: u64,
    /// A server that cannot be reached for so long has lost the session.
    pub unreachable_max_ms: u64,
    /// Resumes of one stream that the server answers with nothing new.
    pub resume_attempts_max: u32,
    /// Time to resume one stream without progress, beside the waits that the server asked for.
    pub resume_max_ms: u64,
    /// Wait before a stream is resumed, where the server says nothing (`retry:`).
    pub retry_ms: u64,
    /// Longest `retry:` that is honoured in full.
    pub retry_max_ms: u64,
    /// Longest wait between two attempts, where the server says nothing.
    pub backoff_max_ms: u64,
    /// Silence after the response to a call that ends the reading of its stream.
    pub linger_ms: u64,
    /// Silence after a cancel that ends the reading of a call's stream.
    pub cancelled_silence_max_ms: u64,
    /// Time an answer may still come on the standalone stream after the call's own has ended.
    pub elsewhere_ms: u64,
    /// Time that running requests get when the session ends.
    pub end_grace_ms: u64,
    /// Time a DELETE gets.
    pub delete_max_ms: u64,
    /// Bytes read of the body of a refusal.
    pub refusal_bytes_max: usize,
}
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            events_max: 64,
            kept_settings_max: 1_024,
            kept_settings_bytes_max: 256 * 1024,
            connect_max_ms: 10_000,
            head_max_ms: 30_000,
            pool_idle_max_ms: 1_500,
            unreachable_max_ms: 30_000,
            resume_attempts_max: 8,
            resume_max_ms: 60_000,
            retry_ms: 1_000,
            retry_max_ms: 600_000,
            backoff_max_ms: 30_000,
            linger_ms: 1_000,
            cancelled_silence_max_ms: 60_000,
            elsewhere_ms: 1_000,
            end_grace_ms: 2_000,
            delete_max_ms: 2_000,
            refusal_bytes_max: 64 * 1024,
        }
    }
}
