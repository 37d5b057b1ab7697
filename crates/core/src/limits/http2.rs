//! Limits of the connections that speak HTTP/2 with the gateway, where that is switched on.

use serde::{Deserialize, Serialize};

described! {
/// What one HTTP/2 connection of a client may take, beside what any connection and any request may.
/// Times are milliseconds, sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Http2Limits {
    /// Requests of one connection at the same time, streams that it reads among them.
    pub streams_max: u32,
    /// Bytes of request bodies that one connection may send before they are read.
    pub unread_bytes_max: u32,
    /// A connection that was silent for so long is asked whether it lives (PING).
    pub ping_ms: u64,
    /// Time a connection has to answer that; then it is lost.
    pub ping_answer_ms: u64,
    /// Requests of one connection that were reset before they were looked at; one more ends it.
    pub early_resets_max: usize,
    /// Requests of one connection that were malformed, or beyond `streams_max`, in its whole life;
    /// one more ends it.
    pub refused_max: usize,
}
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            // What proxies and browsers reckon with is 100 at least (RFC 9113 section 6.5.2).
            streams_max: 128,
            unread_bytes_max: 256 * 1024,
            ping_ms: 15_000,
            ping_answer_ms: 10_000,
            early_resets_max: 20,
            refused_max: 1_024,
        }
    }
}
