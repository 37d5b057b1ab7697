//! What can go wrong in an exchange.

use std::net::SocketAddr;

use super::body::BodyError;
use super::head::HeadError;
use super::sse::SseError;
use crate::deadline::DeadlineError;

/// Why an exchange did not go as the test asked.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The server.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A system call on the socket failed.
    #[error("{what} failed: {source}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The head is not HTTP/1.1.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The body breaks its framing.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The stream is not SSE as promised.
    #[error(transparent)]
    Sse(#[from] SseError),
    /// The stream ended cleanly inside a block.
    #[error("the stream ended cleanly in the middle of a block: {account}")]
    Torn {
        /// What came before.
        account: String,
    },
    /// Something else came.
    #[error("expected {expected}, but {account}")]
    Unexpected {
        /// What the test waited for.
        expected: String,
        /// What came.
        account: String,
    },
    /// It did not come in time.
    #[error("{deadline}; {account}")]
    Late {
        /// The limit.
        deadline: DeadlineError,
        /// What came before.
        account: String,
    },
    /// A condition on another part did not come true in time.
    #[error(transparent)]
    Deadline(#[from] DeadlineError),
}
