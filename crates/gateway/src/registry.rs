//! The sessions of the gateways of one listener, by the id that clients present.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rejoin_core::id::SessionId;
use rejoin_core::revision::Revision;
use rejoin_store::SessionKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::handle::SessionHandle;
use crate::principal::Principal;
use crate::subjects::Subjects;

/// Maps of sessions, so that requests rarely meet in one.
const SHARDS: usize = 16;

/// A session that can be asked for.
pub(crate) struct Entry {
    /// Path of the endpoint where it was opened, and alone is known.
    pub(crate) path: Arc<str>,
    /// Its id; a secret.
    pub(crate) id: SessionId,
    /// What the store knows it by.
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
    pub(crate) _place: Place,
}

impl Entry {
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

/// A place for one session, held from before its server is started until it is forgotten.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

type Shard = HashMap<SessionId, Arc<Entry>>;

/// All sessions.
pub(crate) struct Registry {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    places: Arc<Semaphore>,
}

impl Registry {
    /// A registry for at most `sessions_max` sessions.
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            places: Arc::new(Semaphore::new(sessions_max.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// A place for one more session; `None`: there is none, even after those that are over were
    /// removed.
    pub(crate) fn reserve(&self) -> Option<Place> {
        if self.places.available_permits() == 0 {
            self.sweep();
        }
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Place { _permit: permit })
    }

    /// Makes a session known.
    pub(crate) fn insert(&self, entry: Entry) -> Arc<Entry> {
        let entry = Arc::new(entry);
        self.shard(&entry.id).insert(entry.id.clone(), Arc::clone(&entry));
        entry
    }

    /// The session with this id, if it was opened at `path`, is this principal's and not over. All
    /// others are equally unknown.
    pub(crate) fn find(&self, path: &str, id: &str, principal: &Principal) -> Option<Arc<Entry>> {
        let id = SessionId::new(id);
        let found = self.shard(&id).get(&id).cloned().filter(|found| *found.path == *path)?;
        if found.handle.is_over() {
            self.remove(&id);
            return None;
        }
        let found = Some(found).filter(|found| found.is_of(principal))?;
        found.used.send_if_modified(|used| !std::mem::replace(used, true));
        Some(found)
    }

    /// True if this is the id of a session, whoever's it is.
    pub(crate) fn knows(&self, id: &str) -> bool {
        let id = SessionId::new(id);
        self.shard(&id).contains_key(&id)
    }

    /// Forgets a session: its id is unknown from now on.
    pub(crate) fn remove(&self, id: &SessionId) {
        let removed = self.shard(id).remove(id);
        drop(removed);
    }

    /// Removes the sessions that are over.
    pub(crate) fn sweep(&self) {
        for shard in &self.shards {
            lock(shard).retain(|_, entry| !entry.handle.is_over());
        }
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

    fn shard(&self, id: &SessionId) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(id);
        // The remainder is less than the number of shards.
        lock(&self.shards[(hash % SHARDS as u64) as usize])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
