//! What a gateway needs of a store that survives it, besides the contract.

use bytes::Bytes;
use rejoin_core::id::Seq;

use crate::contract::{Fence, Loaded, PrincipalKey, SessionKey};
use crate::error::{CommitError, LoadError};
use crate::sqlite::{SqliteStore, reads, sessions};

/// A session in the list of those that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// The session.
    pub session: SessionKey,
    /// Whose it is.
    pub principal: PrincipalKey,
}

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
    /// At most `rows_max` stored sessions after `after`, by key; fewer only if there are no more.
    /// To walk through all while others come and go, go on from the last one.
    ///
    /// # Errors
    /// If the storage below fails.
    pub async fn sessions(
        &self,
        after: Option<SessionKey>,
        rows_max: usize,
    ) -> Result<Vec<Stored>, LoadError> {
        let read = move |connection: &_| reads::sessions(connection, after, rows_max);
        let rows = self.readers.read(read).await?;
        let stored = |(session, principal)| Stored { session, principal };
        Ok(rows.into_iter().map(stored).collect())
    }

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

    /// What [`set_facts`](Self::set_facts) stored last; `None`: nothing, or no such session.
    ///
    /// # Errors
    /// If the storage below fails.
    pub async fn facts(&self, session: SessionKey) -> Result<Option<Bytes>, LoadError> {
        Ok(self.readers.read(move |connection| reads::facts(connection, &session)).await?)
    }

    /// Stores what its owner wants to know of a session after a restart. It does not change the
    /// session's version, and no quota counts it.
    ///
    /// # Errors
    /// As for a commit.
    pub async fn set_facts(
        &self,
        session: SessionKey,
        fence: Fence,
        facts: Bytes,
    ) -> Result<(), CommitError> {
        let weight_bytes = facts.len() as u64;
        let operation = sessions::SetFacts { session, fence, facts };
        self.writer.run(operation, weight_bytes).await?
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
