//! `initialize`: caps first, then a server, then a session (design sections 2 and 3, spec SES-1).

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use rejoin_core::effect::Batch;
use rejoin_core::id::{CallId, Epoch, SessionId, digest, hex};
use rejoin_core::message::{Incoming, Kind, Message, parse};
use rejoin_core::revision::Revision;
use rejoin_core::session::SessionStart;
use rejoin_core::token::{ATTEMPT_META, CONTINUITY_CAPABILITY, TOKEN_META};
use rejoin_store::{CommitError, CreateError, SessionKey, UsageError, Version};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::gateway::Gateway;
use crate::handle::{DriverParts, SessionHandle};
use crate::principal::Principal;
use crate::registry::Place;
use crate::respond::{self, AnswerBody};
use crate::revive::Origin;
use crate::upstream::{self, OpenError, Opened};

/// Random bytes of a session id; the specification asks for a secure one, we for 128 bits or more.
const SESSION_ID_BYTES: usize = 32;
/// The JSON-RPC id that a server sees on `initialize`.
const MINTED_ID: &[u8] = b"0";

/// Why no session was opened. Nothing of the attempt remains.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitializeError {
    /// The request names a live session.
    #[error("this session is initialized already: leave Mcp-Session-Id out to start another one")]
    AlreadyInitialized,
    /// The gateway is about to stop.
    #[error("Rejoin is about to stop")]
    Draining,
    /// The cap on sessions is reached.
    #[error(
        "all {sessions_max} sessions are in use: end one with DELETE, or raise \
         `--limit sessions_max=`"
    )]
    TooManySessions {
        /// The cap.
        sessions_max: usize,
    },
    /// A byte quota is used up.
    #[error(
        "the log {of} has all {bytes_max} bytes that it may have: wait until events expire, or \
         raise `--limit {name}=`"
    )]
    LogFull {
        /// Whose.
        of: &'static str,
        /// The limit.
        name: &'static str,
        /// Its value.
        bytes_max: u64,
    },
    /// The quotas could not be looked up.
    #[error("the log cannot be reached")]
    Usage(#[from] UsageError),
    /// The session could not be stored.
    #[error("the session could not be stored")]
    Create(#[from] CreateError),
    /// Nor could its row.
    #[error("the session could not be stored")]
    Commit(#[from] CommitError),
    /// What another process would need cannot be written.
    #[error("the session cannot be written down")]
    Origin(#[from] serde_json::Error),
    /// The server did not start or answer.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The server's answer is no response.
    #[error("`{upstream}` did not answer initialize with a JSON-RPC response")]
    BadAnswer {
        /// The upstream's name.
        upstream: String,
    },
    /// The server agreed on a revision that has no sessions: nothing could be guarded.
    #[error(
        "`{upstream}` agreed on revision {agreed} in its answer to initialize, which was asked for \
         {asked}, and that revision has no sessions: send requests of {agreed} without initialize, \
         or let the server agree on {} at most",
        Revision::NEWEST_GUARDED
    )]
    StatelessAgreement {
        /// The upstream's name.
        upstream: String,
        /// What it was asked for.
        asked: Revision,
        /// What it agreed on.
        agreed: Revision,
    },
    /// The system has no random bytes.
    #[error("the system gives no random bytes for a session id")]
    NoRandomness,
}

/// What is read of the server's answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Agreement {
    protocol_version: Option<String>,
}

impl Gateway {
    /// Opens a session; `headers` are those of its client that may be forwarded. If the returned
    /// future is dropped, because the client left, so is the server that was started.
    pub(crate) async fn initialize(
        &self,
        message: &Message,
        principal: Principal,
        headers: HeaderMap,
    ) -> Result<Response<AnswerBody>, InitializeError> {
        let opening = self.open_session(message, principal, headers).await;
        if let Err(error) = &opening {
            self.metrics().sessions_refused.inc();
            if let Some(unlogged) = self.may_log_refusal() {
                let text = error.to_string();
                // For the operator alone: what the store holds is no client's business.
                let cause = error.source().map(ToString::to_string);
                let cause = cause.filter(|cause| !text.contains(cause));
                let server = self.upstream().name();
                tracing::warn!(server, error = text, cause, unlogged, "no session was opened");
            }
        }
        opening
    }

    async fn open_session(
        &self,
        message: &Message,
        principal: Principal,
        headers: HeaderMap,
    ) -> Result<Response<AnswerBody>, InitializeError> {
        if self.is_draining() {
            return Err(InitializeError::Draining);
        }
        let limits = &self.settings().limits;
        let sessions_max = limits.sessions_max;
        let place =
            self.registry().reserve().ok_or(InitializeError::TooManySessions { sessions_max })?;
        self.check_quotas(&principal).await?;
        let (asked, initialize) = to_guarded(message);
        let with = upstream::Opening { initialize: initialize.clone(), headers: headers.clone() };
        let opened = self.upstream().open(with).await?;
        let parsed = parse(opened.answer.clone(), limits.json_depth_max);
        let Ok(Incoming::One(answer)) = parsed else { return Err(self.bad_answer()) };
        let client_id = message.id().unwrap_or(MINTED_ID);
        match answer.kind() {
            Kind::Response => {}
            // The server refuses: its client is told why, and there is no session.
            Kind::ErrorResponse => {
                return Ok(respond::initialized(answer.edit().id(client_id).finish(), None));
            }
            Kind::Request | Kind::Notification => return Err(self.bad_answer()),
        }
        let agreed = agreed_on(&answer);
        if agreed.is_stateless() {
            let upstream = self.upstream().name().to_owned();
            return Err(InitializeError::StatelessAgreement { upstream, asked, agreed });
        }
        let capability = self.capability().to_string();
        let body = answer
            .edit()
            .id(client_id)
            .experimental_capability(CONTINUITY_CAPABILITY, capability.as_bytes())
            .finish();
        let opening = Opening { principal, place, opened, initialize, headers, asked, agreed };
        let id = self.start_session(opening).await?;
        Ok(respond::initialized(body, Some(&id)))
    }

    async fn check_quotas(&self, principal: &Principal) -> Result<(), InitializeError> {
        let limits = &self.settings().limits;
        let all = self.store().usage().await?;
        let own = self.store().principal_usage(principal.key()).await?;
        let quotas = [
            ("of all sessions", "total_log_bytes_max", limits.total_log_bytes_max, all.bytes),
            (
                "of this principal",
                "principal_log_bytes_max",
                limits.principal_log_bytes_max,
                own.bytes,
            ),
        ];
        match quotas.into_iter().find(|&(_, _, bytes_max, used)| used >= bytes_max) {
            Some((of, name, bytes_max, _)) => Err(InitializeError::LogFull { of, name, bytes_max }),
            None => Ok(()),
        }
    }

    async fn start_session(&self, opening: Opening) -> Result<SessionId, InitializeError> {
        let Opening { principal, place, opened, initialize, headers, asked, agreed } = opening;
        // Of use only to another process.
        let is_kept = self.store().epoch().is_some();
        let continuation = opened.continuation.clone().filter(|_| is_kept);
        let id = mint_session_id()?;
        let key = digest(id.expose().as_bytes());
        let created = self.store().create(key, principal.key()).await?;
        let start = SessionStart {
            session: key,
            ledger_epoch: self.ledger_epoch(),
            call_base: mint_call_base()?,
            epoch: mint_epoch()?,
            asked,
            agreed: agreed.clone(),
            origin: self.origin(&initialize, &principal)?,
            continuation,
            settings: self.settings().clone(),
        };
        let version = self.keep(&created, &start).await?;
        let parts = DriverParts {
            store: self.store(),
            fence: created.fence,
            principal: principal.key(),
            version,
            upstream: self.upstream().clone(),
            opened: Some(opened),
            initialize,
            sending: self.sending(),
            notes: self.notes(),
            connections: self.connections(),
            clock: self.clock(),
        };
        // No await from here on: a client that leaves now finds a session that ends when unused.
        let handle = SessionHandle::spawn(start, parts);
        // A new driver has room. The server knows them already; they are kept for a reopening.
        let _kept = handle.present(headers);
        tracing::info!(
            server = self.upstream().name(),
            session = %handle.tag(),
            revision = %agreed,
            anonymous = principal.is_anonymous(),
            "a session was opened"
        );
        let (used, seen) = watch::channel(false);
        self.end_if_unused(key, handle.clone(), seen);
        self.enter(key, handle, principal, agreed, used, place);
        Ok(id)
    }

    fn origin(&self, initialize: &Bytes, of: &Principal) -> Result<Bytes, InitializeError> {
        let origin = Origin {
            path: self.path().to_owned(),
            initialize: initialize.clone(),
            anonymous: of.is_anonymous(),
        };
        Ok(serde_json::to_vec(&origin)?.into())
    }

    /// Writes the session's own row, if another process could need it: before its client is told.
    async fn keep(
        &self,
        created: &rejoin_store::Opened,
        start: &SessionStart,
    ) -> Result<Version, InitializeError> {
        if self.store().epoch().is_none() {
            return Ok(created.version);
        }
        let session = Some(Box::new(start.row()));
        let batch = Batch { session, durable: true, ..Batch::default() };
        Ok(self.store().commit(start.session, created.fence, created.version, batch).await?)
    }

    /// A client that never comes back, perhaps because the answer did not reach it, must not keep a
    /// server as long as one that is only idle.
    fn end_if_unused(
        &self,
        key: SessionKey,
        handle: SessionHandle,
        mut seen: watch::Receiver<bool>,
    ) {
        let gateway = self.clone();
        let longest = Duration::from_millis(self.settings().limits.session_unused_ms);
        tokio::spawn(async move {
            // An error means that the session is forgotten already.
            let used = async { drop(seen.wait_for(|used| *used).await) };
            if timeout(longest, used).await.is_ok() {
                return;
            }
            let (server, session) = (gateway.upstream().name(), handle.tag());
            tracing::info!(server, %session, "a session ends: its client did not come back");
            gateway.registry().remove(&key);
            // Over already is as good.
            let _ended = handle.delete().await;
        });
    }

    /// What an aware client reads in the answer to `initialize` (docs/protocol.md, section 1).
    fn capability(&self) -> serde_json::Value {
        let limits = &self.settings().limits;
        json!({
            "version": 1,
            "resume": "GET",
            "ack": "Mcp-Stream-Ack",
            "token": TOKEN_META,
            "attempt": ATTEMPT_META,
            "epoch": self.ledger_epoch(),
            "retentionMs": limits.retention_ms,
            "tombstoneMs": limits.tombstone_ms,
        })
    }

    fn bad_answer(&self) -> InitializeError {
        InitializeError::BadAnswer { upstream: self.upstream().name().to_owned() }
    }
}

/// A server that answered, and what its session will be made of.
struct Opening {
    principal: Principal,
    place: Place,
    opened: Opened,
    initialize: Bytes,
    headers: HeaderMap,
    asked: Revision,
    agreed: Revision,
}

/// The revision that a server is asked for, and the `initialize` that asks for it: the client's
/// own, but for one without sessions. That one has no `initialize`, so a client that sends it takes
/// what a server of sessions offers instead, the newest (spec: Lifecycle, "Version Negotiation").
fn to_guarded(message: &Message) -> (Revision, Bytes) {
    let asked = message.param_str("protocolVersion");
    let asked = Revision::new(asked.as_deref().unwrap_or(Revision::FIRST));
    let edit = message.edit().id(MINTED_ID);
    if !asked.is_stateless() {
        return (asked, edit.finish());
    }
    let newest = json!(Revision::NEWEST_GUARDED).to_string();
    let initialize = edit.protocol_version(newest.as_bytes()).finish();
    (Revision::new(Revision::NEWEST_GUARDED), initialize)
}

/// What an answer to `initialize` agrees on.
fn agreed_on(answer: &Message) -> Revision {
    let agreed = answer
        .result()
        .and_then(|result| serde_json::from_slice::<Agreement>(result).ok())
        .and_then(|agreement| agreement.protocol_version);
    Revision::new(agreed.unwrap_or_else(|| Revision::FIRST.to_owned()))
}

/// Visible ASCII (spec SES-3), from `SESSION_ID_BYTES` random bytes.
fn mint_session_id() -> Result<SessionId, InitializeError> {
    let mut random = [0; SESSION_ID_BYTES];
    getrandom::fill(&mut random).map_err(|_| InitializeError::NoRandomness)?;
    Ok(SessionId::new(hex(&random)))
}

/// Below 2^52, so that the ids of all its calls are exact in every JSON reader.
fn mint_call_base() -> Result<CallId, InitializeError> {
    let random = getrandom::u64().map_err(|_| InitializeError::NoRandomness)?;
    Ok(CallId(random >> 12))
}

/// Makes the session's event ids unknown to every other session.
fn mint_epoch() -> Result<Epoch, InitializeError> {
    getrandom::u32().map(Epoch).map_err(|_| InitializeError::NoRandomness)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_are_long_visible_and_never_the_same() -> Result<(), InitializeError> {
        let (one, other) = (mint_session_id()?, mint_session_id()?);
        assert_ne!(one, other);
        assert_eq!(one.expose().len(), 2 * SESSION_ID_BYTES);
        assert!(one.expose().bytes().all(|byte| byte.is_ascii_graphic()));
        Ok(())
    }
}
