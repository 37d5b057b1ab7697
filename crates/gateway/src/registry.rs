//! The sessions of the gateways of one listener, by the id that clients present.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rejoin_core::id::digest;
use rejoin_core::revision::Revision;
use rejoin_store::SessionKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::gateway::{Gateway, Shared};
use crate::handle::SessionHandle;
use crate::principal::Principal;
use crate::subjects::Subjects;

/// Maps of sessions, so that requests rarely meet in one.
const SHARDS: usize = 16;
/// Sessions that could not be served and are remembered, 32 bytes each.
const UNSEEN_MAX: usize = 100_000;

/// A session that can be asked for.
pub(crate) struct Entry {
    /// The endpoint where it was opened, and alone is known.
    pub(crate) endpoint: Arc<Shared>,
    /// What the store and the registry know it by: the SHA-256 of its id, which is a secret.
    pub(crate) key: SessionKey,
    /// To its driver.
    pub(crate) handle: SessionHandle,
    /// Who opened it: what quotas and the scope of tokens go by, all its life.
    pub(crate) principal: Principal,
    /// The subject whose it has become, if it was opened by a credential that was mapped later.
    pub(crate) subject: OnceLock<Principal>,
    /// The revision it agreed on.
    pub(crate) agreed: Revision,
    /// True once its client has presented its id.
    pub(crate) used: watch::Sender<bool>,
    /// Its place among all sessions.
    pub(crate) place: Place,
}

impl Entry {
    /// Path of its endpoint.
    pub(crate) fn path(&self) -> &str {
        self.endpoint.path()
    }

    /// True if whoever presents `principal` may use it. Takes the same time for all who may not.
    fn is_of(&self, principal: &Principal) -> bool {
        self.subject.get().unwrap_or(&self.principal).is(principal)
    }

    /// Makes it its subject's for good, if the credential that opened it is mapped to one: with
    /// this credential alone it would be lost as soon as the map names it.
    pub(crate) fn settle(&self, subjects: &Subjects) {
        let subject = self.principal.under(subjects);
        if !subject.is(&self.principal) {
            // Settled before is settled: a session changes hands once.
            let _first = self.subject.set(subject).is_ok();
        }
    }
}

impl Gateway {
    /// Makes a session known that has a driver.
    pub(crate) fn enter(
        &self,
        key: SessionKey,
        handle: SessionHandle,
        principal: Principal,
        agreed: Revision,
        used: watch::Sender<bool>,
        place: Place,
    ) -> Arc<Entry> {
        let (endpoint, subject) = (self.endpoint(), OnceLock::new());
        let entry = Entry { endpoint, key, handle, principal, subject, agreed, used, place };
        let entry = self.registry().insert(entry);
        // After it is known: a map that was set meanwhile has not met it.
        entry.settle(&self.subjects());
        entry
    }
}

/// A place for one session, held from before its server is started until it is forgotten. Clones
/// are the same place: a session that is driven again has the one that it had.
#[derive(Clone)]
pub(crate) struct Place {
    _permit: Arc<OwnedSemaphorePermit>,
}

type Shard = HashMap<SessionKey, Arc<Entry>>;

/// What is known of an id.
pub(crate) enum Found {
    /// A session that takes requests.
    Running(Arc<Entry>),
    /// One that is over, but kept: it can be driven again.
    Kept(Arc<Entry>),
    /// Nothing.
    Nothing,
}

/// All sessions.
pub(crate) struct Registry {
    shards: [Mutex<Shard>; SHARDS],
    places: Arc<Semaphore>,
    /// Sessions in the store that could not be served.
    unseen: Mutex<HashSet<SessionKey>>,
}

impl Registry {
    /// A registry for at most `sessions_max` sessions.
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            places: Arc::new(Semaphore::new(sessions_max.min(Semaphore::MAX_PERMITS))),
            unseen: Mutex::default(),
        }
    }

    /// A place for one more session; `None`: there is none, even after those that are over were
    /// removed.
    pub(crate) fn reserve(&self) -> Option<Place> {
        if self.places.available_permits() == 0 {
            self.sweep();
        }
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Place { _permit: Arc::new(permit) })
    }

    /// Makes a session known.
    pub(crate) fn insert(&self, entry: Entry) -> Arc<Entry> {
        let entry = Arc::new(entry);
        self.shard(&entry.key).insert(entry.key, Arc::clone(&entry));
        entry
    }

    /// The session with this id, if it was opened at `path` and is this principal's. All others are
    /// equally unknown.
    pub(crate) fn find(&self, path: &str, id: &str, principal: &Principal) -> Found {
        let key = digest(id.as_bytes());
        let found = self.shard(&key).get(&key).cloned().filter(|found| found.path() == path);
        let Some(found) = found else { return Found::Nothing };
        if found.handle.is_over() && !found.handle.is_kept() {
            self.remove(&key);
            return Found::Nothing;
        }
        if !found.is_of(principal) {
            return Found::Nothing;
        }
        if found.handle.is_over() {
            return Found::Kept(found);
        }
        found.used.send_if_modified(|used| !std::mem::replace(used, true));
        Found::Running(found)
    }

    /// True if this is the id of a session, whoever's it is.
    pub(crate) fn knows(&self, id: &str) -> bool {
        let key = digest(id.as_bytes());
        self.shard(&key).contains_key(&key) || self.is_unseen(id)
    }

    /// The session that is known by this key.
    pub(crate) fn get(&self, key: &SessionKey) -> Option<Arc<Entry>> {
        self.shard(key).get(key).cloned()
    }

    /// Remembers that a session is in the store and could not be served: it is not unknown.
    pub(crate) fn note_unseen(&self, key: SessionKey) {
        let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        if unseen.len() < UNSEEN_MAX {
            unseen.insert(key);
        }
    }

    /// Forgets that a session could not be served.
    pub(crate) fn note_seen(&self, key: &SessionKey) {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// True if a session with this id may be in the store that could not be served: if too many
    /// could not, that is true of every id.
    pub(crate) fn is_unseen(&self, id: &str) -> bool {
        let unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        !unseen.is_empty()
            && (unseen.len() >= UNSEEN_MAX || unseen.contains(&digest(id.as_bytes())))
    }

    /// Forgets a session: its id is unknown from now on.
    pub(crate) fn remove(&self, key: &SessionKey) {
        let removed = self.shard(key).remove(key);
        drop(removed);
    }

    /// Removes the sessions that are over.
    pub(crate) fn sweep(&self) {
        for shard in &self.shards {
            lock(shard).retain(|_, entry| !entry.handle.is_over() || entry.handle.is_kept());
        }
    }

    /// True if a session is over and kept.
    pub(crate) fn has_kept(&self) -> bool {
        self.shards.iter().any(|shard| lock(shard).values().any(|entry| entry.handle.is_kept()))
    }

    /// All sessions.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.shards
            .iter()
            .flat_map(|shard| lock(shard).values().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// How many sessions are known.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, key: &SessionKey) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::from(key[0]) % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
