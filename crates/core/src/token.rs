//! Dedup tokens and their records (design section 5, "Token").

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, Digest32};

/// Key of the request member that carries a token (`params._meta`).
pub const TOKEN_META: &str = "dev.rejoin/dedup-token";
/// Key of the request member that counts attempts with the same token, from 1.
pub const ATTEMPT_META: &str = "dev.rejoin/attempt";
/// Key of the request member that names the ledger epoch at attempt 1.
pub const EPOCH_META: &str = "dev.rejoin/epoch";
/// Key of the mark on every answer that is a record; its value is when the original ended.
pub const RECORDED_META: &str = "dev.rejoin/recorded";
/// Key of the member beside that mark that names the origin of the stream on which the call's
/// progress still is.
pub const ORIGIN_META: &str = "dev.rejoin/origin";
/// Key of the capability that a continuity-aware client looks for.
pub const CONTINUITY_CAPABILITY: &str = "dev.rejoin/continuity";

/// A request's token, hashed together with its scope: principal, upstream, method and tool
/// (anonymous: the session). Never stored or logged in clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DedupKey(pub Digest32);

/// The token part of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The hashed key.
    pub key: DedupKey,
    /// Which attempt this is, from 1.
    pub attempt: u64,
    /// The ledger epoch that the client saw at attempt 1, if it said so.
    pub epoch: Option<u64>,
}

/// A call, wherever it lives: session (by the SHA-256 of its id) and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// SHA-256 of the session id.
    pub session: Digest32,
    /// Number of the call in that session's ledger.
    pub call: CallId,
}

/// How the call of a token stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Claimed or sent.
    Running,
    /// Its response, as upstream wrote it but for the id, and when it came (Unix ms).
    Finished {
        /// The whole JSON-RPC response.
        response: Bytes,
        /// When it was recorded.
        ended_ms: u64,
    },
    /// Cancelled, without result so far.
    Cancelled,
    /// Nobody knows.
    Unknown,
    /// The claim was released: upstream never saw it, or refused it as malformed. The row counts as
    /// absent.
    Freed,
    /// The result is no longer kept; the token stays known until the tombstone expires.
    Tombstone,
}

/// What the ledger knows of a token across sessions; or, under `repeat_scope = "principal"`, of a
/// tokenless call by its params. The latter row goes as soon as the answer is known to be
/// delivered, and with the repeat window at the latest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DedupRecord {
    /// The call that runs or ran under the token.
    pub owner: Owner,
    /// SHA-256 of its method and canonical params.
    pub params: Digest32,
    /// How it stands.
    pub outcome: Outcome,
    /// When the result is dropped and only the tombstone stays (Unix ms).
    pub result_expires_ms: u64,
    /// When the token is forgotten (Unix ms).
    pub expires_ms: u64,
}

impl DedupRecord {
    /// True if a call owns the row; a freed row counts as absent.
    pub fn is_owned(&self) -> bool {
        self.outcome != Outcome::Freed
    }

    /// True while a repeat by params of another session is a repeat of this row's call. Its owner
    /// moves the end for as long as it still runs, or waits for its client.
    pub fn is_in_repeat_window(&self, now_ms: u64) -> bool {
        self.is_owned() && now_ms < self.result_expires_ms
    }
}
