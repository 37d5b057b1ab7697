//! Why no session could be opened.

use std::io;
use std::path::PathBuf;

use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;

use super::{CloseReason, stdio};

/// Why a session could not be opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The command could not be started.
    #[error("cannot start `{command}`: {source}; {}", stdio::remedy(command, source))]
    Spawn {
        /// The configured command.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// The directory that the command is to run in cannot be entered.
    #[error(
        "cannot start `{command}` in `{}`: {source}; make that directory, or name another as its \
         cwd", directory.display()
    )]
    Directory {
        /// The configured command.
        command: String,
        /// The configured directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The cap on child processes is reached; none was started.
    #[error(
        "all {children_max} child processes are in use: \
         try again when a session has ended, or raise `--limit children_max=`"
    )]
    TooManyChildren {
        /// The cap.
        children_max: usize,
    },
    /// The server ended before it answered `initialize`.
    #[error(
        "`{upstream}` {status} before it answered initialize: \
         see its standard error in the log, or run the command by hand"
    )]
    ExitedBeforeAnswer {
        /// The upstream's name.
        upstream: String,
        /// How it ended.
        status: CloseReason,
    },
    /// No answer to `initialize` in time. What was started is ended.
    #[error(
        "`{upstream}` did not answer initialize within {limit_ms} ms: \
         see {log}, or raise `--limit initialize_max_ms=`"
    )]
    TimedOut {
        /// The upstream's name.
        upstream: String,
        /// The limit.
        limit_ms: u64,
        /// Where the server tells what it does.
        log: &'static str,
    },
    /// What came instead of an answer to `initialize` cannot be used.
    #[error("`{upstream}` {what}: check that it is an MCP server")]
    BadAnswer {
        /// The upstream's name.
        upstream: String,
        /// What it did.
        what: &'static str,
    },
    /// The server cannot be reached.
    #[error("`{upstream}` cannot be reached: {what}; check the URL, and that the server runs")]
    Unreachable {
        /// The upstream's name.
        upstream: String,
        /// What the system said.
        what: String,
    },
    /// The server is in this process, and broke.
    #[error("`{upstream}` broke before it answered initialize: {what}; {remedy}")]
    Broken {
        /// The upstream's name.
        upstream: String,
        /// What it did.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The server answered `initialize` with an HTTP status that is no success. 401 and 403 are
    /// meant for the client, who gets them unchanged.
    #[error("`{upstream}` refused initialize with HTTP status {status}: {remedy}")]
    Refused {
        /// The upstream's name.
        upstream: String,
        /// What to do.
        remedy: &'static str,
        /// Its status.
        status: StatusCode,
        /// `WWW-Authenticate`, `Retry-After` and `Content-Type`, as far as they were there.
        headers: Box<HeaderMap>,
        /// The body, up to a limit.
        body: Bytes,
    },
    /// The server redirects to where a session must not follow.
    #[error("`{upstream}` {what}: set the upstream's URL to the final one, if you trust it")]
    Redirected {
        /// The upstream's name.
        upstream: String,
        /// Where it redirects to.
        what: String,
    },
    /// The value for `Authorization` could not be had.
    #[error("the credential for `{upstream}` cannot be read: {what}")]
    Credential {
        /// The upstream's name.
        upstream: String,
        /// What was wrong, without the value.
        what: String,
    },
    /// The message given to `open` is not a request with an id.
    #[error("the initialize message is not a JSON-RPC request with an id: send one")]
    NotARequest,
}
