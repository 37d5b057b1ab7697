//! Sessions: made, taken over, removed.

use rejoin_core::id::Seq;
use rusqlite::{Connection, OptionalExtension};

use crate::contract::{Fence, Opened, PrincipalKey, SessionKey, Version};
use crate::error::{CreateError, RemoveError};
use crate::sqlite::books::Amounts;
use crate::sqlite::operation::{Operation, Transaction};
use crate::sqlite::row::{digest, integer, number};
use crate::sqlite::tail::Change;

/// A session's row.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionRow {
    pub(super) number: i64,
    pub(super) principal: PrincipalKey,
    pub(super) fence: Fence,
    pub(super) version: Version,
    pub(super) last_seq: Seq,
    /// Charged for its events.
    pub(super) bytes: i64,
    pub(super) tick: i64,
}

impl SessionRow {
    /// Finds a session.
    pub(super) fn find(
        connection: &Connection,
        key: &SessionKey,
    ) -> rusqlite::Result<Option<Self>> {
        let query = "select number, principal, fence, version, last_seq, bytes, tick
            from sessions where key = ?1";
        let row = |row: &rusqlite::Row<'_>| {
            Ok(Self {
                number: row.get(0)?,
                principal: digest(row.get_ref(1)?.as_blob()?)?,
                fence: Fence(number(row.get(2)?)),
                version: Version(number(row.get(3)?)),
                last_seq: Seq(number(row.get(4)?)),
                bytes: row.get(5)?,
                tick: row.get(6)?,
            })
        };
        connection.prepare_cached(query)?.query_row([&key[..]], row).optional()
    }

    /// Writes what commits change.
    pub(super) fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let write = "update sessions set version = ?2, last_seq = ?3, bytes = ?4, tick = ?5
            where number = ?1";
        transaction.connection.prepare_cached(write)?.execute((
            self.number,
            integer(self.version.0),
            integer(self.last_seq.0),
            self.bytes,
            transaction.tick,
        ))?;
        Ok(())
    }
}

/// Makes a session.
pub(super) struct Create {
    pub(super) session: SessionKey,
    pub(super) principal: PrincipalKey,
}

impl Operation for Create {
    type Output = Result<Opened, CreateError>;

    fn is_durable(&self) -> bool {
        true
    }

    fn run(self, transaction: &mut Transaction<'_>) -> rusqlite::Result<Self::Output> {
        if SessionRow::find(transaction.connection, &self.session)?.is_some() {
            return Ok(Err(CreateError::Exists));
        }
        if let Err(full) = transaction.check_room(&self.principal, 1) {
            return Ok(Err(full.into()));
        }
        let opened = Opened::new(Fence(1), Version(0));
        let write = "insert into sessions
            (key, principal, fence, version, last_seq, bytes, tick)
            values (?1, ?2, ?3, ?4, 0, 0, ?5)";
        transaction.connection.prepare_cached(write)?.execute((
            &self.session[..],
            &self.principal[..],
            integer(opened.fence.0),
            integer(opened.version.0),
            transaction.tick,
        ))?;
        transaction.enter(self.principal, Amounts { sessions: 1, ..Amounts::default() });
        Ok(Ok(opened))
    }
}

/// Hands out new fences, for all of these sessions in one transaction.
pub(super) struct TakeOver {
    pub(super) sessions: Vec<SessionKey>,
}

impl Operation for TakeOver {
    /// In the order of the sessions; `None`: there is no such session.
    type Output = Vec<Option<Fence>>;

    fn run(self, transaction: &mut Transaction<'_>) -> rusqlite::Result<Self::Output> {
        let write = "update sessions set fence = fence + 1, tick = ?2 where key = ?1
            returning fence";
        let mut write = transaction.connection.prepare_cached(write)?;
        let mut fences = Vec::with_capacity(self.sessions.len());
        for session in &self.sessions {
            let fence = |row: &rusqlite::Row<'_>| Ok(Fence(number(row.get(0)?)));
            fences.push(write.query_row((&session[..], transaction.tick), fence).optional()?);
        }
        if fences.iter().any(Option::is_some) {
            transaction.wrote();
        }
        Ok(fences)
    }
}

/// Forgets a session. Its rows are deleted later, in parts.
pub(super) struct Remove {
    pub(super) session: SessionKey,
    pub(super) fence: Fence,
}

impl Operation for Remove {
    type Output = Result<(), RemoveError>;

    fn is_durable(&self) -> bool {
        true
    }

    fn run(self, transaction: &mut Transaction<'_>) -> rusqlite::Result<Self::Output> {
        let Some(row) = SessionRow::find(transaction.connection, &self.session)? else {
            return Ok(Ok(()));
        };
        if row.fence != self.fence {
            return Ok(Err(RemoveError::Fenced));
        }
        transaction
            .connection
            .prepare_cached("delete from sessions where number = ?1")?
            .execute([row.number])?;
        transaction
            .connection
            .prepare_cached("insert into garbage (session, stream) values (?1, -1)")?
            .execute([row.number])?;
        let amounts = Amounts { bytes: row.bytes.saturating_neg(), sessions: -1, tokens: 0 };
        transaction.enter(row.principal, amounts);
        transaction.change(Change::Removed(self.session));
        Ok(Ok(()))
    }
}
