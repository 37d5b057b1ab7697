//! What a connection runs over: a TCP socket, or whatever else tells the same.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::ReadBuf;

/// How the sockets of a listener are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportOptions {
    /// Longest time that what was written stays unacknowledged (`TCP_USER_TIMEOUT`).
    pub user_timeout: Duration,
    /// Time without traffic until the peer is probed.
    pub keepalive_time: Duration,
    /// Time between two probes.
    pub keepalive_interval: Duration,
    /// Probes without an answer until the peer counts as gone.
    pub keepalive_probes: u32,
}

impl TransportOptions {
    /// As the limits of a listener say.
    pub(crate) fn new(limits: &rejoin_core::limits::Limits) -> Self {
        Self {
            user_timeout: Duration::from_millis(limits.tcp_user_timeout_ms),
            keepalive_time: Duration::from_millis(limits.tcp_keepalive_time_ms),
            keepalive_interval: Duration::from_millis(limits.tcp_keepalive_interval_ms),
            keepalive_probes: limits.tcp_keepalive_probes,
        }
    }
}

/// An accepted connection: bytes both ways, and what its kernel knows of the peer.
///
/// Its drop closes it: by a reset if bytes were left unread, as TCP does, else in order.
/// Readiness may be stale: after `WouldBlock` the next poll registers the waker anew. Of the
/// pollers of one direction only the last one's waker counts.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Sets the connection up, once, before anything else.
    ///
    /// # Errors
    /// If it cannot be set up so; then it is closed.
    fn prepare(&self, options: &TransportOptions) -> io::Result<()>;

    /// Ready when a read would not block: bytes, the peer's end or an error are there.
    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads into the room that `buffer` has; 0 is the peer's end.
    ///
    /// # Errors
    /// `WouldBlock`, or how the connection broke.
    fn try_read(&self, buffer: &mut ReadBuf<'_>) -> io::Result<usize>;

    /// Ready when a write would not block.
    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Writes as much as there is room for, from the first of `parts` on.
    ///
    /// # Errors
    /// `WouldBlock`, or how the connection broke.
    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends this side after what was written.
    ///
    /// # Errors
    /// `NotConnected` if the connection is over already.
    fn shutdown_write(&self) -> io::Result<()>;

    /// Written bytes that the peer's kernel has acknowledged; an acknowledged end may count as one
    /// more. `None`: it does not say.
    fn acked_bytes(&self) -> Option<u64>;

    /// The error that no read or write has told yet.
    ///
    /// # Errors
    /// If that cannot be told.
    fn take_error(&self) -> io::Result<Option<io::Error>>;

    /// Waits until the peer ended its side or the connection broke, without a read.
    ///
    /// # Errors
    /// If it cannot be told any more.
    async fn hung_up(&self) -> io::Result<()>;

    /// Has the close be a reset at once that throws away what the peer did not take.
    fn reset_on_close(&self);
}
