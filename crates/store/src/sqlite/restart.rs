//! What a gateway needs of a store that survives it, besides the contract.

use rejoin_core::id::Seq;

use crate::contract::{Loaded, SessionKey};
use crate::error::LoadError;
use crate::sqlite::{SqliteStore, reads};

/// Events that a power cut may have taken: they may have been sent, and are not in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The last event of the session before them.
    pub after: Seq,
    /// The last number that one of them may have had. What comes now has greater ones.
    pub through: Seq,
}

impl SqliteStore {
    /// A session as it stands, and nobody is fenced: the fence is its present owner's.
    ///
    /// # Errors
    /// If the storage below fails.
    pub async fn look(&self, session: SessionKey) -> Result<Option<Loaded>, LoadError> {
        let read = move |connection: &_| reads::load(connection, &session, None);
        let Some((loaded, tick)) = self.readers.read(read).await? else { return Ok(None) };
        self.published(tick).await;
        Ok(Some(loaded))
    }

    /// What power cuts may have taken of a session's events, oldest first. A cursor among them is
    /// to be told that its history is lost.
    ///
    /// # Errors
    /// If the storage below fails.
    pub async fn lost(&self, session: SessionKey) -> Result<Vec<Lost>, LoadError> {
        let rows = self.readers.read(move |connection| reads::lost(connection, &session)).await?;
        Ok(rows.into_iter().map(|(after, through)| Lost { after, through }).collect())
    }
}
