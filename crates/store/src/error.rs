//! What can go wrong, one enum per operation.

use std::fmt;
use std::io;
use std::sync::Arc;

use rejoin_core::id::{Seq, StreamId};
use rejoin_core::token::{DedupKey, DedupRecord};

use crate::contract::Version;

/// The storage below failed; nothing is wrong with the request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the store could not {act}: {source}; {remedy}")]
pub struct Failure {
    act: &'static str,
    remedy: &'static str,
    source: Arc<io::Error>,
}

impl Failure {
    /// A failure of `act` ("write to its file"); `remedy` says what an operator can do.
    pub fn new(act: &'static str, remedy: &'static str, source: io::Error) -> Self {
        Self { act, remedy, source: Arc::new(source) }
    }

    /// What the operating system or the service below said.
    pub fn source_kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// Which quota a batch or a session does not fit in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaScope {
    /// Log bytes of the session's principal.
    Principal,
    /// Log bytes in all.
    Total,
}

impl fmt::Display for QuotaScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Principal => "the principal's log",
            Self::Total => "the whole log",
        })
    }
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{scope} holds {used_bytes} bytes and may hold {bytes_max}, {added_bytes} more do not fit: \
     evict events, end sessions, or raise the quota"
)]
pub struct OverQuota {
    /// Which quota.
    pub scope: QuotaScope,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that were to be added.
    pub added_bytes: u64,
    /// The quota.
    pub bytes_max: u64,
}

/// Why a session was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The key is in use.
    #[error("a session with this id exists already: make a new random id")]
    Exists,
    /// A quota is used up.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    /// The storage below failed; the session may or may not exist.
    #[error(transparent)]
    Io(#[from] Failure),
}

/// Why a session was not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The storage below failed. Older owners may be fenced all the same.
    #[error(transparent)]
    Io(#[from] Failure),
}

/// Why a batch was not committed. Only [`Ambiguous`](Self::Ambiguous) leaves open whether it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// There is no such session: it was removed, or never created.
    #[error(
        "the session is not in the store: it was removed, and its client must initialize again"
    )]
    UnknownSession,
    /// A newer owner loaded the session; this one must stop at once and send nothing.
    #[error("the session has a newer owner: stop, and serve it from there")]
    Fenced,
    /// The batch was computed from a state that is not the newest.
    #[error(
        "the batch expected version {} of the ledger, which is at {}: load the session again",
        .expected.0, .actual.0
    )]
    StaleVersion {
        /// What the caller thought.
        expected: Version,
        /// What it is.
        actual: Version,
    },
    /// An event does not follow its stream's last event, so that a hole would go unseen.
    #[error(
        "an event of stream {stream} follows {previous}, but the last one in the log is \
         {expected_previous}: load the session again"
    )]
    Gap {
        /// The stream.
        stream: StreamId,
        /// The last event of the stream ([`Seq::ORIGIN`]: none).
        expected_previous: Seq,
        /// What the event named.
        previous: Seq,
    },
    /// An event's `seq` does not grow within the session.
    #[error("event {seq} comes after event {last_seq} of the session: load the session again")]
    Backwards {
        /// The session's last event.
        last_seq: Seq,
        /// The event's own.
        seq: Seq,
    },
    /// A token's row is not what the batch expected.
    #[error("the dedup token belongs to another call: decide again with its record")]
    TokenTaken {
        /// The token.
        key: DedupKey,
        /// Its row as it is.
        record: Box<DedupRecord>,
    },
    /// What the batch adds does not fit.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    /// The storage below failed, and nothing was committed.
    #[error(transparent)]
    Io(Failure),
    /// The storage below failed, and nobody knows whether the batch was committed. The caller
    /// must load the session again before it does anything else.
    #[error("{0}; whether the batch was committed is unknown: load the session again")]
    Ambiguous(Failure),
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no such session: it was removed, or never created.
    #[error(
        "the session is not in the store: it was removed, and its client must initialize again"
    )]
    UnknownSession,
    /// The log has a hole that no eviction explains. Nothing after it may be delivered.
    #[error(
        "the log of stream {stream} is damaged: after event {after} follows {next}, which names \
         {previous} as its predecessor; end the stream and check the storage"
    )]
    Damaged {
        /// The stream.
        stream: StreamId,
        /// The last event before the hole.
        after: Seq,
        /// The first event after it ([`Seq::ORIGIN`]: the log just ends too early).
        next: Seq,
        /// The missing event.
        previous: Seq,
    },
    /// The storage below failed.
    #[error(transparent)]
    Io(#[from] Failure),
}

/// Why a token was not looked up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The storage below failed.
    #[error(transparent)]
    Io(#[from] Failure),
}

/// Why a session was not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// A newer owner loaded the session.
    #[error("the session has a newer owner: remove it from there")]
    Fenced,
    /// The storage below failed; the session may or may not be gone.
    #[error(transparent)]
    Io(#[from] Failure),
}

/// Why nothing was expired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpireError {
    /// The storage below failed; some rows may be gone.
    #[error(transparent)]
    Io(#[from] Failure),
}

/// Why usage is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// The storage below failed.
    #[error(transparent)]
    Io(#[from] Failure),
}
