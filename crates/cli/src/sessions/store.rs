//! The directory of a Rejoin that is stopped.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rejoin_core::effect::{Event, EventKind};
use rejoin_core::id::{Seq, StreamId, hex};
use rejoin_core::limits::Limits;
use rejoin_gateway::operator::Described;
use rejoin_store::sqlite::{Durability, OpenError, SqliteOptions, SqliteStore};
use rejoin_store::{LoadError, ReadError, SessionKey, Store as _};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::terminal::escaped;

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
    /// This user may not look.
    #[error(
        "{} cannot be looked at ({source}): run this as the user who runs Rejoin", folder.display()
    )]
    Hidden {
        /// The directory.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
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
    /// An event cannot be written as JSON.
    #[error("an event cannot be shown")]
    Event(#[from] serde_json::Error),
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
                    lines.push_str(&line(event)?);
                    lines.push('\n');
                }
                if !page.more {
                    break;
                }
            }
        }
        Ok(lines)
    })
}

/// An event as a line of JSON, its message as it was sent, but for what would end the line or what
/// a terminal would obey.
pub(super) fn line(event: &Event) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Line<'a> {
        stream: StreamId,
        seq: Seq,
        kind: EventKind,
        last: bool,
        message: Option<&'a RawValue>,
    }
    let message = serde_json::from_slice(&event.payload).ok();
    let (stream, seq, kind, last) = (event.stream, event.seq, event.kind, event.last);
    let line = serde_json::to_string(&Line { stream, seq, kind, last, message })?;
    Ok(escaped(&line.replace(['\n', '\r'], " ")))
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
    let log = folder.join("rejoin.db");
    if !log
        .try_exists()
        .map_err(|source| StoredError::Hidden { folder: folder.to_owned(), source })?
    {
        return Err(StoredError::Nothing { folder: folder.to_owned() });
    }
    let options = SqliteOptions::new(Durability::Calls, &Limits::default());
    let store = SqliteStore::open(folder, options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(&store))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_message_is_exported_as_it_was_sent_on_one_line() {
        let message = r#"{"z":1e999,"a":12345678901234567890123.10,
"id":1}"#;
        let event = Event {
            stream: StreamId(3),
            seq: Seq(7),
            previous: Seq(6),
            kind: EventKind::Response,
            last: true,
            payload: Bytes::from(message),
        };
        let line = line(&event).unwrap();
        assert!(line.contains(r#"{"z":1e999,"a":12345678901234567890123.10, "id":1}"#), "{line}");
        assert!(!line.contains('\n'));
    }
}
