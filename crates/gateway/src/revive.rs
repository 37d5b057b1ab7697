//! Sessions whose driver is gone and whose log is not: after a restart, and after the log could not
//! be written for a while.

use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::session::{SessionStart, Stored};
use rejoin_core::settings::Settings;
use rejoin_store::{Fence, LoadError, Loaded, SessionKey};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::driver::Unsent;
use crate::gateway::Gateway;
use crate::handle::{DriverParts, SessionHandle, SessionTag};
use crate::principal::Principal;
use crate::registry::{Entry, Found, Place};

/// Sessions that are listed at once.
const LISTED_MAX: usize = 256;

/// What a gateway keeps of a session in the session's row, to serve it again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The endpoint where it was opened.
    pub(crate) path: String,
    /// The `initialize` request, as servers get it.
    #[serde(with = "rejoin_core::text")]
    pub(crate) initialize: Bytes,
    /// True if its client presented no credential.
    pub(crate) anonymous: bool,
}

/// Why a session is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSession {
    /// It is not there, is over, or is another principal's.
    Unknown,
    /// It is there, and its log cannot be read at the moment.
    Unavailable,
}

/// What became of the sessions of an earlier process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sessions that are served again.
    pub sessions: usize,
    /// Sessions of endpoints that are not served now, beyond the cap, or with a damaged row: they
    /// stay in the store, and are unknown to their clients.
    pub left: usize,
}

impl Gateway {
    /// Serves the sessions again that an earlier process left in the store, each at the one of
    /// `gateways` where it was opened. To be called before requests are taken; without effect if
    /// the store ends with its process.
    ///
    /// # Errors
    /// If the sessions cannot be listed, or taken over from that process.
    pub async fn recover(gateways: &[Self]) -> Result<Recovered, LoadError> {
        let mut recovered = Recovered::default();
        let Some(first) = gateways.first().filter(|first| first.store().epoch().is_some()) else {
            return Ok(recovered);
        };
        let mut after = None;
        loop {
            let keys = first.store().sessions(after, LISTED_MAX).await?;
            let all = first.store().load_all(keys.clone()).await?;
            for (&key, loaded) in keys.iter().zip(all) {
                let is_served = match loaded {
                    Ok(Some(loaded)) if is_over(&loaded) => {
                        first.clear(key, loaded.fence).await;
                        continue;
                    }
                    Ok(Some(loaded)) => first.serve_at(gateways, key, loaded).await,
                    Ok(None) => continue,
                    Err(error) => {
                        let session = SessionTag::new(&key);
                        tracing::error!(%session, %error, "a session could not be read");
                        false
                    }
                };
                if is_served { recovered.sessions += 1 } else { recovered.left += 1 }
            }
            match keys.last() {
                Some(&last) if keys.len() == LISTED_MAX => after = Some(last),
                _ => return Ok(recovered),
            }
        }
    }

    /// Removes a session whose process ended before its client was told of it, or when it was over
    /// and not yet removed.
    async fn clear(&self, key: SessionKey, fence: Fence) {
        if let Err(error) = self.store().remove(key, fence).await {
            let session = SessionTag::new(&key);
            tracing::warn!(%session, %error, "the log of an ended session was not removed");
        }
    }

    /// Serves a session at the gateway where it was opened; false if there is none.
    async fn serve_at(&self, gateways: &[Self], key: SessionKey, loaded: Loaded) -> bool {
        let row = loaded.row.as_ref();
        let origin = row.and_then(|row| serde_json::from_slice::<Origin>(&row.origin).ok());
        let gateway = origin.as_ref().and_then(|origin| {
            gateways.iter().find(|gateway| gateway.is_mounted() || gateway.path() == origin.path)
        });
        let served = match gateway.and_then(|one| Some((one, one.registry().reserve()?))) {
            Some((gateway, place)) => gateway.revive(key, loaded, place, &Unsent::default()).await,
            None => None,
        };
        if served.is_none() {
            let session = SessionTag::new(&key);
            let path = origin.map(|origin| origin.path);
            tracing::warn!(%session, path, "a stored session is not served: no endpoint has it");
        }
        served.is_some()
    }

    /// Has a session driven as the store has it, but for calls that are known not to have been
    /// sent; `None` if it has no row to start from.
    async fn revive(
        &self,
        key: SessionKey,
        loaded: Loaded,
        place: Place,
        unsent: &Unsent,
    ) -> Option<Arc<Entry>> {
        let origin = serde_json::from_slice::<Origin>(&loaded.row.as_ref()?.origin).ok()?;
        if let Err(error) = self.counted().adopt(key, &loaded).await {
            let session = SessionTag::new(&key);
            tracing::warn!(%session, %error, "what a session owes could not be counted");
        }
        let principal = Principal::stored(loaded.principal, origin.anonymous);
        let parts = DriverParts {
            store: self.store(),
            fence: loaded.fence,
            principal: loaded.principal,
            version: loaded.version,
            upstream: self.upstream().clone(),
            opened: None,
            initialize: origin.initialize,
            sending: self.sending(),
            notes: self.notes(),
            connections: self.connections(),
            clock: self.clock(),
        };
        let settings = self.settings().clone();
        let (start, stored) = parts_of(key, loaded, self.ledger_epoch(), settings)?;
        let agreed = start.agreed.clone();
        let handle = SessionHandle::restart(start, stored, unsent, parts);
        tracing::info!(session = %handle.tag(), revision = %agreed, "a session goes on");
        let (used, _) = watch::channel(true);
        Some(self.enter(key, handle, principal, agreed, used, place))
    }

    /// The session with this id, if it was opened here by this principal and is not over.
    pub(crate) async fn session(
        &self,
        id: &str,
        principal: &Principal,
    ) -> Result<Arc<Entry>, NoSession> {
        let find = || self.registry().find(self.path(), id, principal);
        let kept = match find() {
            Found::Running(entry) => return Ok(entry),
            Found::Nothing => return Err(NoSession::Unknown),
            Found::Kept(entry) => entry,
        };
        if self.is_draining() {
            return Err(NoSession::Unavailable);
        }
        // Not in turn: the servers of many may take their time to end.
        kept.handle.gone().await;
        // One at a time: each takes the log over from the one before.
        let _turn = self.reviving().lock().await;
        // Another request may have been first, and what it started may have failed again.
        let kept = match find() {
            Found::Running(entry) => return Ok(entry),
            Found::Nothing => return Err(NoSession::Unknown),
            Found::Kept(entry) => entry,
        };
        kept.handle.gone().await;
        match self.store().load(kept.key).await {
            // It was ended by a commit of which nobody knew whether it was made.
            Ok(Some(loaded)) if is_over(&loaded) => {
                self.registry().remove(&kept.key);
                self.clear(kept.key, loaded.fence).await;
                Err(NoSession::Unknown)
            }
            Ok(Some(loaded)) => {
                // It keeps its place: whoever else waits for it here may hold on to the old entry.
                let (place, unsent) = (kept.place.clone(), kept.handle.unsent());
                self.revive(kept.key, loaded, place, unsent).await.ok_or(NoSession::Unavailable)
            }
            Ok(None) => {
                self.registry().remove(&kept.key);
                Err(NoSession::Unknown)
            }
            Err(error) => {
                let session = kept.handle.tag();
                tracing::warn!(%session, %error, "a session still cannot be read");
                Err(NoSession::Unavailable)
            }
        }
    }
}

/// True if nobody can use it: it has ended, or its client was never told of it.
fn is_over(loaded: &Loaded) -> bool {
    loaded.row.as_ref().is_none_or(|row| row.ended)
}

/// What the state machine of a stored session starts from; `None`: it has no row of its own yet.
pub(crate) fn parts_of(
    session: SessionKey,
    loaded: Loaded,
    ledger_epoch: u64,
    settings: Arc<Settings>,
) -> Option<(SessionStart, Stored)> {
    let Loaded { row, calls, streams, tails, last_seq, .. } = loaded;
    let row = row?;
    let start = SessionStart {
        session,
        ledger_epoch,
        call_base: row.reserved.call,
        epoch: row.epoch,
        asked: row.asked.clone(),
        agreed: row.agreed.clone(),
        origin: row.origin.clone(),
        continuation: row.continuation.clone(),
        settings,
    };
    Some((start, Stored { row, calls, streams, tails, last_seq }))
}
