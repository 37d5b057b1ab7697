//! Sessions whose driver is gone and whose log is not: after a restart, and after the log could not
//! be written for a while.

use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::id::digest;
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
    /// Sessions that stay in the store and are not served now. Those of endpoints that are not
    /// served are unknown to their clients; those that cannot be read, or are beyond the cap, are
    /// refused with 503, and tried again whenever their clients ask.
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
                        first.registry().note_unseen(key);
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

    /// Serves a session at the gateway where it was opened; false if that is not possible now.
    async fn serve_at(&self, gateways: &[Self], key: SessionKey, loaded: Loaded) -> bool {
        let session = SessionTag::new(&key);
        let Some(path) = path_of(&loaded) else {
            tracing::error!(%session, "a stored session is not served: its origin is unreadable");
            self.registry().note_unseen(key);
            return false;
        };
        let Some(gateway) = gateways.iter().find(|gateway| gateway.is_endpoint(&path)) else {
            tracing::warn!(%session, path, "a stored session is not served: no endpoint has it");
            return false;
        };
        let Some(place) = gateway.registry().reserve() else {
            tracing::warn!(%session, path, "a stored session is not served: beyond sessions_max");
            self.registry().note_unseen(key);
            return false;
        };
        gateway.revive(key, loaded, place, &Unsent::default()).await.is_some()
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
        let (fence, owner, version) = (loaded.fence, loaded.principal, loaded.version);
        let principal = Principal::stored(owner, origin.anonymous);
        let settings = self.settings().clone();
        let (start, stored) = parts_of(key, loaded, self.ledger_epoch(), settings)?;
        let parts = DriverParts {
            store: self.store(),
            fence,
            principal: owner,
            version,
            upstream: self.upstream().clone(),
            opened: None,
            initialize: origin.initialize,
            sending: self.sending(),
            notes: self.notes(),
            connections: self.connections(),
            clock: self.clock().not_before(stored.latest_ms()),
        };
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
        let kept = match self.registry().find(self.path(), id, principal) {
            Found::Running(entry) => return Ok(entry),
            Found::Nothing if !self.registry().is_unseen(id) => return Err(NoSession::Unknown),
            Found::Nothing => return self.look_again(id, principal).await,
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
        let kept = match self.registry().find(self.path(), id, principal) {
            Found::Running(entry) => return Ok(entry),
            Found::Nothing => return Err(NoSession::Unknown),
            Found::Kept(entry) => entry,
        };
        kept.handle.gone().await;
        self.drive_again(&kept).await
    }

    /// Has a session driven again that is gone and kept, by whoever has the turn.
    async fn drive_again(&self, kept: &Entry) -> Result<Arc<Entry>, NoSession> {
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

    /// Has sessions driven again that are kept and gone, at most `sessions_max` of them: without a
    /// driver none of their timers runs, and they would neither expire nor end.
    pub(crate) async fn drive_kept(&self, sessions_max: usize) {
        let is_gone = |entry: &&Arc<Entry>| entry.handle.is_kept() && entry.handle.is_gone();
        let all = self.registry().all();
        for entry in all.iter().filter(is_gone).take(sessions_max) {
            let _turn = self.reviving().lock().await;
            // A request may have been first.
            let is_same =
                self.registry().get(&entry.key).is_some_and(|now| Arc::ptr_eq(&now, entry));
            if self.is_draining() || !is_same {
                continue;
            }
            let gateway = self.at(Arc::clone(&entry.endpoint));
            // What still cannot be read is tried again in the next round.
            let _driven = gateway.drive_again(entry).await.is_ok();
        }
    }

    /// Looks for a session that could not be served when this process began.
    async fn look_again(&self, id: &str, principal: &Principal) -> Result<Arc<Entry>, NoSession> {
        if self.is_draining() {
            return Err(NoSession::Unavailable);
        }
        let key = digest(id.as_bytes());
        let _turn = self.reviving().lock().await;
        if self.registry().get(&key).is_none() && self.registry().is_unseen(id) {
            match self.store().load(key).await {
                Ok(Some(loaded)) if is_over(&loaded) => self.clear(key, loaded.fence).await,
                Ok(Some(loaded)) => {
                    let path = path_of(&loaded).ok_or(NoSession::Unavailable)?;
                    if !self.is_endpoint(&path) {
                        return Err(NoSession::Unknown);
                    }
                    let place = self.registry().reserve().ok_or(NoSession::Unavailable)?;
                    let revived = self.revive(key, loaded, place, &Unsent::default()).await;
                    revived.ok_or(NoSession::Unavailable)?;
                }
                Ok(None) => {}
                Err(error) => {
                    let session = SessionTag::new(&key);
                    tracing::warn!(%session, %error, "a session still cannot be read");
                    return Err(NoSession::Unavailable);
                }
            }
            self.registry().note_seen(&key);
        }
        match self.registry().find(self.path(), id, principal) {
            Found::Running(entry) => Ok(entry),
            Found::Nothing => Err(NoSession::Unknown),
            Found::Kept(_) => Err(NoSession::Unavailable),
        }
    }
}

/// Path of the endpoint where a session was opened; `None`: that cannot be read.
fn path_of(loaded: &Loaded) -> Option<String> {
    let origin = &loaded.row.as_ref()?.origin;
    Some(serde_json::from_slice::<Origin>(origin).ok()?.path)
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
