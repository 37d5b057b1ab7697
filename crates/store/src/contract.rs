//! The contract that every store keeps.

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::effect::{Batch, Event};
use rejoin_core::id::{Digest32, Seq, StreamId};
use rejoin_core::ledger::Call;
use rejoin_core::limits::Limits;
use rejoin_core::session::{SessionRow, Tail};
use rejoin_core::stream::Stream;
use rejoin_core::token::{DedupKey, DedupRecord};

use crate::error::{
    CommitError, CreateError, ExpireError, LoadError, ReadError, RemoveError, TokenError,
    UsageError,
};
use crate::page::Page;
use crate::watch::StreamWatch;

/// Payload bytes that are read at once for the numbers of events.
const SEQS_PAGE_BYTES: usize = 16 * 1024;

/// A session, by the SHA-256 of its id: the id itself never reaches a store.
pub type SessionKey = Digest32;
/// A principal, by the SHA-256 of what names it.
pub type PrincipalKey = Digest32;

/// Payload bytes of an event that ends its stream, or of a token's result, that are admitted over
/// quota: what is full must still be able to say so.
pub const END_BYTES_MAX: usize = 4_096;

/// Right to write to a session. A newer owner gets a greater one, and the older ones lose theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// State of a session's log and ledger; every commit that changes something raises it by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The version after it.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Bytes that may be stored: payloads, tokens' results, and a fixed overhead for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// For one principal.
    pub principal_bytes_max: u64,
    /// In all.
    pub total_bytes_max: u64,
}

impl From<&Limits> for Quota {
    fn from(limits: &Limits) -> Self {
        Self {
            principal_bytes_max: limits.principal_log_bytes_max,
            total_bytes_max: limits.total_log_bytes_max,
        }
    }
}

/// A new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opened {
    /// The right to write to it.
    pub fence: Fence,
    /// The version to commit at.
    pub version: Version,
}

impl Opened {
    /// What [`Store::create`] returns.
    pub fn new(fence: Fence, version: Version) -> Self {
        Self { fence, version }
    }
}

/// A session as it stands in the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The right to write to it; every older one is void.
    pub fence: Fence,
    /// The version to commit at.
    pub version: Version,
    /// Who it belongs to.
    pub principal: PrincipalKey,
    /// Its own row, as of its last commit; `None`: there was none yet.
    pub row: Option<SessionRow>,
    /// Its calls, oldest first.
    pub calls: Vec<Call>,
    /// Its streams, oldest first.
    pub streams: Vec<Stream>,
    /// How far the log of each stream goes that something was appended to, oldest first.
    pub tails: Vec<Tail>,
    /// The last event ever appended; evictions do not lower it.
    pub last_seq: Seq,
}

/// What one [`Store::expire`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Results that were dropped; their tokens stay known.
    pub tombstones: u64,
    /// Tokens that were forgotten.
    pub forgotten: u64,
    /// True if the budget ended before the work.
    pub more: bool,
}

/// What is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes in all, as the quotas count them.
    pub bytes: u64,
    /// Payload bytes in this process's memory.
    pub memory_bytes: u64,
    /// Payload bytes that a memory store has put in its file.
    pub spilled_bytes: u64,
    /// Sessions.
    pub sessions: u64,
    /// Tokens, tombstones included.
    pub tokens: u64,
}

/// What is stored for one principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrincipalUsage {
    /// Bytes, as the quotas count them.
    pub bytes: u64,
    /// Sessions.
    pub sessions: u64,
}

/// The log and ledger of all sessions, and the tokens across them (design section 4).
///
/// A session has one writer at a time, any number of readers, and these parts:
///
/// ```text
/// session ── fence 2, version 41, last seq 113
///   ├─ calls     one row per CallId, as of its last commit
///   ├─ streams   one row per StreamId, as of its last commit
///   └─ log       one order of seqs for the session, one chain of events per stream
///
///        seq        101   102   103   104   ...   111   112   113
///        stream 3   o <───────────────o <──────────o <─────────o       `previous` is the arrow
///        stream 0         o <───o <────────────────────── o
///
/// tokens   one row per DedupKey, shared by all sessions; they outlive the sessions
/// ```
///
/// **Visibility.** What `commit` returned `Ok` for, every later `read`, `read_one`, `token` and
/// `load` sees. Nobody ever sees a part of a batch: whoever sees one event, row or token of it
/// finds the rest if they look.
///
/// **Cancellation.** Any of these futures may be dropped; the operation has then happened or not,
/// whole, as after [`CommitError::Ambiguous`].
///
/// **Order of refusals** of a commit: unknown session, fence, version, chain of events, tokens,
/// quota, storage. A refused batch leaves no trace.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The life of what is stored, if it outlives the process: another number for what was begun
    /// anew. `None`: it ends with the process.
    fn epoch(&self) -> Option<u64> {
        None
    }

    /// At most `rows_max` stored sessions after `after`, in the order of their keys; fewer only if
    /// there are no more.
    async fn sessions(
        &self,
        after: Option<SessionKey>,
        rows_max: usize,
    ) -> Result<Vec<SessionKey>, LoadError>;

    /// Makes a session without calls, streams and events.
    ///
    /// # Errors
    /// [`CreateError::OverQuota`] once the principal's or the total quota is used up.
    async fn create(
        &self,
        session: SessionKey,
        principal: PrincipalKey,
    ) -> Result<Opened, CreateError>;

    /// Takes a session over: hands out a new fence, voids all older ones, and returns what is
    /// stored. `None`: there is no such session.
    ///
    /// ```text
    /// owner A   create -> fence 1   commit(1) ok                     commit(1) -> Fenced
    /// owner B                                     load -> fence 2    commit(2) ok
    /// ```
    async fn load(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError>;

    /// Takes several sessions over, as [`load`](Self::load) does with each, in one write if the
    /// store can. What became of each stands in its place.
    ///
    /// # Errors
    /// If none was taken over.
    async fn load_all(
        &self,
        sessions: Vec<SessionKey>,
    ) -> Result<Vec<Result<Option<Loaded>, LoadError>>, LoadError> {
        let mut all = Vec::with_capacity(sessions.len());
        for session in sessions {
            all.push(self.load(session).await);
        }
        Ok(all)
    }

    /// Applies a batch, all of it or nothing, and returns the version it made. An empty batch is
    /// checked and changes nothing, the version included.
    ///
    /// **Events** extend their stream's chain. `seq` grows over the session, in the batch's order;
    /// numbers may be skipped. `previous` is the stream's last event, evicted or not.
    ///
    /// ```text
    /// stream 3 before   0 <- 101 <- 104                     session's last seq: 110
    /// batch                          └── 111(104) <- 113(111)
    /// stream 3 after    0 <- 101 <- 104 <- 111 <- 113       session's last seq: 113
    ///
    /// 111(101)  -> Gap { expected_previous: 104, previous: 101 }
    /// 109(104)  -> Backwards { last_seq: 110, seq: 109 }
    /// ```
    ///
    /// **Calls, streams** and the **session's own row** replace what was there.
    ///
    /// **Tokens** are written in order. A row of anyone but `expected` refuses the batch, and is
    /// returned as it is; no row refuses nothing (it may have expired). A record that is `Freed`
    /// removes the row. This is the only race across sessions, and exactly one claim wins.
    ///
    /// ```text
    /// expected     no row    row of A    row of B
    /// None         insert    taken       taken
    /// Some(A)      insert    replace     taken
    /// ```
    ///
    /// **Evictions** follow the events: of the stream's events up to `through` they drop all, or
    /// (`responses_too: false`) all but the responses. `through` beyond the stream's end means all
    /// there is. They neither shorten the chain nor lower `last_seq`.
    ///
    /// ```text
    /// before                  101n <- 104n <- 111r <- 113n     n: notification, r: response
    /// evict through 111       [101 <- 104] <- 111r <- 113n
    /// ... responses_too       [101 <- 104  <- 111] <- 113n
    /// ```
    ///
    /// **Quota** counts what the batch adds, before anything that it replaces or evicts is given
    /// back. Never refused: a batch without events and tokens, and one that holds nothing but
    /// events with `last` and replaced tokens, of up to [`END_BYTES_MAX`] payload bytes each.
    ///
    /// # Errors
    /// [`CommitError::Ambiguous`] if it may have been applied; any other if it was not.
    async fn commit(
        &self,
        session: SessionKey,
        fence: Fence,
        expected: Version,
        batch: Batch,
    ) -> Result<Version, CommitError>;

    /// Reads a stream's events after a cursor, in order: at least one if there is any, and no more
    /// than `bytes_max` payload bytes. They are whole, unless the first is larger than that: then
    /// it is alone in its page, and cut ([`Page::rest_bytes`]). A stream that nothing was appended
    /// to, or a cursor at or beyond its end, reads as an empty page.
    ///
    /// A page has no hole inside. It ends before evicted events, and the next one reports them:
    ///
    /// ```text
    /// log            101 <- [104 <- 111] <- 113 <- [120]
    /// read(0)        101                     more, next cursor 101
    /// read(101)      gap 101..111, 113       more, next cursor 113
    /// read(113)      gap 113..120            next cursor 120
    /// ```
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if an event is missing that was not evicted.
    async fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Seq,
        bytes_max: usize,
    ) -> Result<Page, ReadError>;

    /// Numbers of the events of a stream after `after`, oldest first, without those that were
    /// evicted. An implementation that can tell them without their payloads does.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    async fn seqs(
        &self,
        session: SessionKey,
        stream: StreamId,
        mut after: Seq,
    ) -> Result<Vec<Seq>, ReadError> {
        let mut seqs = Vec::new();
        loop {
            let page = self.read(session, stream, after, SEQS_PAGE_BYTES).await?;
            after = page.next(after);
            seqs.extend(page.events.iter().map(|event| event.seq));
            if !page.more {
                return Ok(seqs);
            }
        }
    }

    /// Reads at most `bytes_max` payload bytes of one event, from `offset` on; none are left at or
    /// beyond its end. No more than these are brought into memory. `None`: the event was evicted,
    /// or the stream has no such event.
    async fn read_part(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
        offset: usize,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, ReadError>;

    /// Reads one event, whole. `None`: it was evicted, or the stream has no such event.
    async fn read_one(
        &self,
        session: SessionKey,
        stream: StreamId,
        seq: Seq,
    ) -> Result<Option<Event>, ReadError>;

    /// Follows a stream, which need not have an event yet. Whoever subscribes first and then reads
    /// misses nothing:
    ///
    /// ```text
    /// watch ──> read(cursor) ──> deliver, move the cursor ──> nothing more: passed(cursor) ──┐
    ///             ^                                                                          │
    ///             └──────────────────────────────────────────────────────────────────────────┘
    /// ```
    ///
    /// Every commit that the first `read` did not see makes `passed` return. An implementation
    /// whose notifications can be lost polls by itself.
    async fn watch(&self, session: SessionKey, stream: StreamId) -> Result<StreamWatch, ReadError>;

    /// Looks a token up.
    async fn token(&self, key: DedupKey) -> Result<Option<DedupRecord>, TokenError>;

    /// Forgets a session: log, calls and streams. Its tokens stay until they expire. Its watches
    /// end. Doing it again, or for a session that is not there, changes nothing.
    ///
    /// # Errors
    /// [`RemoveError::Fenced`] if a newer owner loaded the session.
    async fn remove(&self, session: SessionKey, fence: Fence) -> Result<(), RemoveError>;

    /// Works off at most `rows_max` tokens whose time has come, without keeping commits waiting
    /// for long: finished results become tombstones at `result_expires_ms`, rows go at
    /// `expires_ms`. `now_ms` is Unix time, as in the rows.
    ///
    /// ```text
    /// claim          finished         result_expires_ms         expires_ms
    ///   ├─ Running ────┼── Finished ──────────┼── Tombstone ────────┤
    ///   ├─ Running, Cancelled, Unknown ─────────────────────────────┤
    /// ```
    ///
    /// Outcomes play no part in `expires_ms`: whoever claims must choose one that no call outlives.
    async fn expire(&self, now_ms: u64, rows_max: usize) -> Result<Expired, ExpireError>;

    /// What is stored in all.
    async fn usage(&self) -> Result<Usage, UsageError>;

    /// What is stored for one principal.
    async fn principal_usage(&self, principal: PrincipalKey) -> Result<PrincipalUsage, UsageError>;
}
