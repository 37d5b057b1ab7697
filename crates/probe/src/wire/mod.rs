//! A raw HTTP/1.1 client: one request on each connection, and an account of what came back.
//!
//! Nothing is read unless it is asked for, so a stalled reader is one that does not ask.

mod connect;
mod exchange;
mod head;
mod request;

pub(crate) use connect::Dialer;
pub use connect::SetUpError;
pub(crate) use exchange::{End, Exchange, Heard, Item};
pub(crate) use head::Head;
pub(crate) use request::Request;

/// Why an exchange gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// No connection.
    #[error("cannot connect to {server}: {what}")]
    Connect {
        /// Its host and port.
        server: String,
        /// What was wrong.
        what: String,
    },
    /// A system call on the socket failed.
    #[error("{what} failed: {source}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// What came is not HTTP/1.1.
    #[error("the answer is not HTTP/1.1: {what}")]
    Http {
        /// What is wrong with it.
        what: String,
    },
    /// More came than any tool of use sends.
    #[error("the answer does not end: more than {max} {unit} came")]
    TooMuch {
        /// The bound.
        max: usize,
        /// Of what.
        unit: &'static str,
    },
    /// No head came.
    #[error("no answer within {waited_ms} ms")]
    Late {
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// The connection ended before the head.
    #[error("the connection was closed before an answer")]
    Closed,
    /// All requests of a run are used up.
    #[error("the run has used up its {requests_max} requests")]
    UsedUp {
        /// The bound.
        requests_max: u64,
    },
}
