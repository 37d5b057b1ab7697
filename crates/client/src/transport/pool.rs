//! Idle connections, kept for a moment: calls often follow each other.
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;

/// Idle connections at most.
const IDLE_MAX: usize = 8;

/// A connection that can take requests.
pub(super) struct Link {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// See [`super::connect::Connected`].
    pub(super) through: Option<Option<HeaderValue>>,
}

/// The idle connections.
pub(super) struct Pool {
    idle: Mutex<Vec<(Link, Since)>>,
    idle_max: Duration,
}

/// Since when a connection is idle. A machine that sleeps stops the first clock and not the second.
struct Since(Instant, SystemTime);

impl Since {
    fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    fn is_within(&self, max: Duration) -> bool {
        self.0.elapsed() < max && self.1.elapsed().is_ok_and(|elapsed| elapsed < max)
    }
}

impl Pool {
    pub(super) fn new(idle_max: Duration) -> Self {
        Self { idle: Mutex::default(), idle_max }
    }

    /// A connection that looks alive and was not idle for long.
    ///
    /// One that its server has closed by now does not count: a request that is written to it may or
    /// may not have run. So the runtime looks at the sockets first, then the connections' own tasks
    /// at what it found.
    pub(super) async fn take(&self) -> Option<Link> {
        for _look in 0..2 {
            tokio::task::yield_now().await;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(link, since)| since.is_within(self.idle_max) && !link.sender.is_closed());
        let at = idle.iter().rposition(|(link, _)| link.sender.is_ready())?;
        Some(idle.swap_remove(at).0)
    }

    /// Keeps a connection whose last answer has been read to its end.
    pub(super) fn keep(&self, link: Link) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !link.sender.is_closed() {
            idle.push((link, Since::now()));
        }
    }
}
