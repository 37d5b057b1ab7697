//! The end of a peer that left bytes behind which nobody reads.
//!
//! While hyper answers, it looks at the socket for its end, but not once bytes of a next request
//! lie in its buffer: then neither a FIN nor a reset would be seen until the answer is done. The
//! kernel tells of both without a read (`EPOLLRDHUP`, `EPOLLHUP`; epoll_ctl(2)).

use std::future::pending;
use std::time::Duration;

use tokio::time::sleep;

use super::WireEnd;
use super::socket::Linger;

/// A reader that takes nothing for so long, although the end is there, does not read any more.
const UNREAD_LONGEST: Duration = Duration::from_millis(100);

impl Linger {
    /// Waits until the peer ended its side or the connection broke, and nobody reads on towards
    /// that end. Stays pending if a read has seen it: the reader knows.
    pub async fn abandoned(&self) {
        let socket = &*self.0;
        if socket.stream.hung_up().await.is_err() {
            return pending().await;
        }
        loop {
            let reads = socket.shared.reads();
            sleep(UNREAD_LONGEST).await;
            if socket.shared.end().is_some() {
                return pending().await;
            }
            if socket.shared.reads() == reads {
                break;
            }
        }
        if let Ok(Some(error)) = socket.stream.take_error() {
            socket.shared.record_error(&error);
        }
        // The first end counts: this one, unless the error was an end.
        if socket.shared.end().is_none() {
            socket.shared.record_end(WireEnd::Fin);
        }
    }
}
