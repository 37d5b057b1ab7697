//! The directory of a Rejoin that is stopped.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rejoin_core::id::{Seq, hex};
use rejoin_core::limits::Limits;
use rejoin_gateway::operator::Described;
use rejoin_store::sqlite::{Durability, OpenError, SqliteOptions, SqliteStore};
use rejoin_store::{LoadError, ReadError, SessionKey, Store as _};
use serde_json::{Value, json, value::RawValue};

/// Sessions that are listed at once.
const LISTED_MAX: usize = 256;
/// Bytes of events that are read at once.
const PAGE_BYTES: usize = 1024 * 1024;

/// Why the directory tells nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoredError {
    /// There is no log.
    #[error("{} has no log of Rejoin: name the directory of --data", folder.display())]
    Nothing {
        /// The directory.
        folder: PathBuf,
    },
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A session cannot be read.
    #[error("the log cannot be read")]
    Load(#[from] LoadError),
    /// Its events cannot be read.
    #[error("the events of a session cannot be read")]
    Read(#[from] ReadError),
    /// There is none, or several.
    #[error(
        "{found} sessions have a key that begins with {prefix:?}: `rejoin sessions list` has all"
    )]
    NotOne {
        /// How many.
        found: usize,
        /// What was given.
        prefix: String,
    },
    /// Nothing runs here.
    #[error("the system gives no runtime")]
    Runtime(#[from] std::io::Error),
}

/// All sessions.
pub(super) fn list(folder: &Path) -> Result<Value, StoredError> {
    with(folder, async |store| {
        let mut sessions = Vec::new();
        for key in keys(store, "").await? {
            sessions.extend(described(store, &key).await?);
        }
        Ok(json!({ "sessions": sessions }))
    })
}

/// One session.
pub(super) fn show(folder: &Path, prefix: &str) -> Result<Value, StoredError> {
    with(folder, async |store| {
        let key = one(store, prefix).await?;
        Ok(json!(described(store, &key).await?))
    })
}

/// The events of a session, one JSON object a line, in the order of their streams.
pub(super) fn export(folder: &Path, prefix: &str) -> Result<String, StoredError> {
    with(folder, async |store| {
        let key = one(store, prefix).await?;
        let Some(loaded) = store.look(key).await? else { return Ok(String::new()) };
        let mut lines = String::new();
        for tail in loaded.tails {
            let mut after = Seq::ORIGIN;
            loop {
                let page = store.read(key, tail.stream, after, PAGE_BYTES).await?;
                after = page.next(after);
                for event in &page.events {
                    let payload = serde_json::from_slice::<&RawValue>(&event.payload).ok();
                    let line = json!({
                        "stream": event.stream, "seq": event.seq, "kind": event.kind,
                        "last": event.last, "message": payload,
                    });
                    lines.push_str(&format!("{line}\n"));
                }
                if !page.more {
                    break;
                }
            }
        }
        Ok(lines)
    })
}

async fn described(
    store: &SqliteStore,
    key: &SessionKey,
) -> Result<Option<Described>, StoredError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let loaded = store.look(*key).await?;
    Ok(loaded.and_then(|loaded| Described::stored(key, loaded, now_ms)))
}

/// The keys that begin so.
async fn keys(store: &SqliteStore, prefix: &str) -> Result<Vec<SessionKey>, StoredError> {
    let mut keys: Vec<SessionKey> = Vec::new();
    loop {
        let part = store.sessions(keys.last().copied(), LISTED_MAX).await?;
        let is_last = part.len() < LISTED_MAX;
        keys.extend(part);
        if is_last {
            break;
        }
    }
    keys.retain(|key| hex(key).starts_with(prefix));
    Ok(keys)
}

async fn one(store: &SqliteStore, prefix: &str) -> Result<SessionKey, StoredError> {
    let keys = keys(store, prefix).await?;
    match &keys[..] {
        [key] if !prefix.is_empty() => Ok(*key),
        _ => Err(StoredError::NotOne { found: keys.len(), prefix: prefix.to_owned() }),
    }
}

fn with<T>(
    folder: &Path,
    work: impl AsyncFnOnce(&SqliteStore) -> Result<T, StoredError>,
) -> Result<T, StoredError> {
    if !folder.join("rejoin.db").exists() {
        return Err(StoredError::Nothing { folder: folder.to_owned() });
    }
    let options = SqliteOptions::new(Durability::Calls, &Limits::default());
    let store = SqliteStore::open(folder, options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(&store))
}
