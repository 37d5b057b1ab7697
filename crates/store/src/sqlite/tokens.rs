//! The dedup tokens of all sessions.

use std::collections::HashMap;

use bytes::Bytes;
use rejoin_core::effect::DedupWrite;
use rejoin_core::id::CallId;
use rejoin_core::token::{DedupKey, DedupRecord, Outcome, Owner};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::charge::{ROW_OVERHEAD_BYTES, response, size};
use crate::contract::{Expired, PrincipalKey};
use crate::error::CommitError;
use crate::sqlite::books::Amounts;
use crate::sqlite::operation::{Operation, Transaction};
use crate::sqlite::row::{digest, integer, number};

const RUNNING: i64 = 0;
const FINISHED: i64 = 1;
const CANCELLED: i64 = 2;
const UNKNOWN: i64 = 3;
const TOMBSTONE: i64 = 4;

/// Finds a token's record, and the commit that wrote it.
pub(super) fn find(
    connection: &Connection,
    key: &DedupKey,
) -> rusqlite::Result<Option<(DedupRecord, i64)>> {
    let query = "select owner_session, owner_call, params, outcome, ended_ms, result_expires_ms,
        expires_ms, tick, response from tokens where key = ?1";
    connection.prepare_cached(query)?.query_row([&key.0[..]], record).optional()
}

fn record(row: &Row<'_>) -> rusqlite::Result<(DedupRecord, i64)> {
    let owner =
        Owner { session: digest(row.get_ref(0)?.as_blob()?)?, call: CallId(number(row.get(1)?)) };
    let outcome = match row.get(3)? {
        RUNNING => Outcome::Running,
        FINISHED => {
            let response = Bytes::from(row.get::<_, Vec<u8>>(8)?);
            Outcome::Finished { response, ended_ms: number(row.get(4)?) }
        }
        CANCELLED => Outcome::Cancelled,
        UNKNOWN => Outcome::Unknown,
        TOMBSTONE => Outcome::Tombstone,
        other => return Err(FromSqlError::OutOfRange(other).into()),
    };
    let record = DedupRecord {
        owner,
        params: digest(row.get_ref(2)?.as_blob()?)?,
        outcome,
        result_expires_ms: number(row.get(5)?),
        expires_ms: number(row.get(6)?),
    };
    Ok((record, row.get(7)?))
}

/// Whether all writes hold, one after the other.
pub(super) fn check(
    connection: &Connection,
    writes: &[DedupWrite],
) -> rusqlite::Result<Result<(), CommitError>> {
    let mut written: HashMap<DedupKey, Option<&DedupRecord>> = HashMap::new();
    for write in writes {
        let key = write.key;
        let row = match written.get(&key) {
            Some(record) => record.cloned(),
            None => find(connection, &key)?.map(|(record, _)| record),
        };
        if let Some(record) = row
            && write.expected != Some(record.owner)
        {
            return Ok(Err(CommitError::TokenTaken { key, record: Box::new(record) }));
        }
        let is_freed = write.record.outcome == Outcome::Freed;
        written.insert(key, (!is_freed).then_some(&write.record));
    }
    Ok(Ok(()))
}

/// Writes rows that were checked in the same transaction.
pub(super) fn apply(
    transaction: &mut Transaction<'_>,
    principal: PrincipalKey,
    writes: &[DedupWrite],
) -> rusqlite::Result<()> {
    for write in writes {
        take(transaction, &write.key)?;
        if write.record.outcome != Outcome::Freed {
            put(transaction, principal, &write.key, &write.record)?;
        }
    }
    Ok(())
}

/// Deletes a row, if it is there, and gives back what it was charged.
fn take(transaction: &mut Transaction<'_>, key: &DedupKey) -> rusqlite::Result<()> {
    let delete = "delete from tokens where key = ?1 returning principal, length(response)";
    let taken = transaction
        .connection
        .prepare_cached(delete)?
        .query_row([&key.0[..]], |row| {
            Ok((digest(row.get_ref(0)?.as_blob()?)?, number(row.get(1)?)))
        })
        .optional()?;
    if let Some((principal, response_bytes)) = taken {
        let bytes = -integer(ROW_OVERHEAD_BYTES + response_bytes);
        transaction.enter(principal, Amounts { bytes, sessions: 0, tokens: -1 });
    }
    Ok(())
}

fn put(
    transaction: &mut Transaction<'_>,
    principal: PrincipalKey,
    key: &DedupKey,
    record: &DedupRecord,
) -> rusqlite::Result<()> {
    let response = response(record);
    let (outcome, ended_ms) = match &record.outcome {
        Outcome::Running => (RUNNING, 0),
        Outcome::Finished { ended_ms, .. } => (FINISHED, *ended_ms),
        Outcome::Cancelled => (CANCELLED, 0),
        Outcome::Unknown | Outcome::Freed => (UNKNOWN, 0),
        Outcome::Tombstone => (TOMBSTONE, 0),
    };
    let due_ms = match record.outcome {
        Outcome::Finished { .. } => record.result_expires_ms.min(record.expires_ms),
        _ => record.expires_ms,
    };
    let write = "insert into tokens (key, principal, owner_session, owner_call, params, outcome,
            ended_ms, result_expires_ms, expires_ms, due_ms, tick, response)
        values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    transaction.connection.prepare_cached(write)?.execute((
        &key.0[..],
        &principal[..],
        &record.owner.session[..],
        integer(record.owner.call.0),
        &record.params[..],
        outcome,
        integer(ended_ms),
        integer(record.result_expires_ms),
        integer(record.expires_ms),
        integer(due_ms),
        transaction.tick,
        &response[..],
    ))?;
    let bytes = integer(ROW_OVERHEAD_BYTES + size(&response));
    transaction.enter(principal, Amounts { bytes, sessions: 0, tokens: 1 });
    Ok(())
}

/// Works off tokens whose time has come.
pub(super) struct Expire {
    pub(super) now_ms: u64,
    pub(super) rows_max: usize,
}

impl Operation for Expire {
    type Output = Expired;

    fn run(self, transaction: &mut Transaction<'_>) -> rusqlite::Result<Expired> {
        let now_ms = integer(self.now_ms);
        let rows_max = i64::try_from(self.rows_max).unwrap_or(i64::MAX);
        let mut expired = Expired::default();
        let forget = "delete from tokens where number in (
                select number from tokens where due_ms <= ?1 order by due_ms limit ?2)
            and expires_ms <= ?1
            returning principal, length(response)";
        let bury = "select number, principal, length(response) from tokens
            where due_ms <= ?1 order by due_ms limit ?2";
        let mut gone = Vec::new();
        let mut statement = transaction.connection.prepare_cached(forget)?;
        let mut rows = statement.query((now_ms, rows_max))?;
        while let Some(row) = rows.next()? {
            gone.push((digest(row.get_ref(0)?.as_blob()?)?, number(row.get(1)?)));
        }
        expired.forgotten = gone.len() as u64;
        for (principal, response_bytes) in gone {
            let bytes = -integer(ROW_OVERHEAD_BYTES + response_bytes);
            transaction.enter(principal, Amounts { bytes, sessions: 0, tokens: -1 });
        }
        let left = rows_max - integer(expired.forgotten);
        let mut due = Vec::new();
        let mut statement = transaction.connection.prepare_cached(bury)?;
        let mut rows = statement.query((now_ms, left))?;
        while let Some(row) = rows.next()? {
            due.push((row.get(0)?, digest(row.get_ref(1)?.as_blob()?)?, number(row.get(2)?)));
        }
        for (token, principal, response_bytes) in due {
            expired.tombstones += self.bury(transaction, token)?;
            let bytes = -integer(response_bytes);
            transaction.enter(principal, Amounts { bytes, ..Amounts::default() });
        }
        let more = "select exists (select 1 from tokens where due_ms <= ?1)";
        expired.more =
            transaction.connection.prepare_cached(more)?.query_row([now_ms], |row| row.get(0))?;
        Ok(expired)
    }
}

impl Expire {
    /// Drops a result; its token stays known.
    fn bury(&self, transaction: &Transaction<'_>, token: i64) -> rusqlite::Result<u64> {
        let write = "update tokens set outcome = ?2, ended_ms = 0, response = x'',
            due_ms = expires_ms, tick = ?3 where number = ?1";
        let mut statement = transaction.connection.prepare_cached(write)?;
        Ok(statement.execute((token, TOMBSTONE, transaction.tick))? as u64)
    }
}
