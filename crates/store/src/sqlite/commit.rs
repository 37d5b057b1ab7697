//! One batch: checked, then written.

use rejoin_core::effect::Batch;

use crate::charge::{EVENT_OVERHEAD_BYTES, batch_bytes, is_always_admitted, size};
use crate::contract::{Fence, SessionKey, Version};
use crate::error::CommitError;
use crate::sqlite::books::Amounts;
use crate::sqlite::chains::Chains;
use crate::sqlite::operation::{Operation, Transaction};
use crate::sqlite::row::{encode, integer};
use crate::sqlite::sessions::SessionRow;
use crate::sqlite::tail::Change;
use crate::sqlite::tokens;

/// Applies a batch, or says why not.
pub(super) struct Commit {
    session: SessionKey,
    fence: Fence,
    expected: Version,
    batch: Batch,
    calls: Vec<(i64, Vec<u8>)>,
    streams: Vec<(u32, Vec<u8>)>,
    own: Option<Vec<u8>>,
}

impl Commit {
    /// Prepares a batch: all that need not be done by the one writer.
    ///
    /// # Errors
    /// If a row cannot be encoded.
    pub(super) fn new(
        session: SessionKey,
        fence: Fence,
        expected: Version,
        batch: Batch,
    ) -> std::io::Result<Self> {
        let call = |call: &_| -> std::io::Result<_> { Ok((integer(id_of(call)), encode(call)?)) };
        let calls = batch.calls.iter().map(call).collect::<std::io::Result<_>>()?;
        let streams = batch.streams.iter();
        let streams = streams
            .map(|stream| Ok((stream.id.0, encode(stream)?)))
            .collect::<std::io::Result<_>>()?;
        let own = batch.session.as_deref().map(encode).transpose()?;
        Ok(Self { session, fence, expected, batch, calls, streams, own })
    }

    /// Bytes that it holds in memory until it is written.
    pub(super) fn weight_bytes(&self) -> u64 {
        let rows = self.calls.iter().map(|(_, row)| row.len() as u64);
        let streams = self.streams.iter().map(|(_, row)| row.len() as u64);
        let own = self.own.iter().map(|row| row.len() as u64);
        batch_bytes(&self.batch) + rows.chain(streams).chain(own).sum::<u64>()
    }
}

fn id_of(call: &rejoin_core::ledger::Call) -> u64 {
    call.id.0
}

impl Operation for Commit {
    type Output = Result<Version, CommitError>;

    fn is_durable(&self) -> bool {
        self.batch.durable
    }

    fn is_progress(&self) -> bool {
        true
    }

    fn run(self, transaction: &mut Transaction<'_>) -> rusqlite::Result<Self::Output> {
        let connection = transaction.connection;
        let Some(mut session) = SessionRow::find(connection, &self.session)? else {
            return Ok(Err(CommitError::UnknownSession));
        };
        if session.fence != self.fence {
            return Ok(Err(CommitError::Fenced));
        }
        let (expected, actual) = (self.expected, session.version);
        if expected != actual {
            return Ok(Err(CommitError::StaleVersion { expected, actual }));
        }
        let mut chains = Chains::new(connection, session.number);
        if let Err(refused) = chains.extend(&mut session, &self.batch.events)? {
            return Ok(Err(refused));
        }
        if let Err(taken) = tokens::check(connection, &self.batch.dedup)? {
            return Ok(Err(taken));
        }
        if !is_always_admitted(&self.batch)
            && let Err(full) = transaction.check_room(&session.principal, batch_bytes(&self.batch))
        {
            return Ok(Err(full.into()));
        }
        if self.batch.is_empty() {
            return Ok(Ok(expected));
        }
        self.write(transaction, session, chains).map(Ok)
    }
}

impl Commit {
    /// Writes what was checked in the same transaction.
    fn write(
        self,
        transaction: &mut Transaction<'_>,
        mut session: SessionRow,
        mut chains: Chains<'_>,
    ) -> rusqlite::Result<Version> {
        let Batch { events, evictions, forgotten_streams, forgotten_calls, dedup, .. } = self.batch;
        chains.append(&events)?;
        put_rows(transaction, PUT_CALL, session.number, &self.calls)?;
        put_rows(transaction, PUT_STREAM, session.number, &self.streams)?;
        if let Some(own) = &self.own {
            transaction.connection.prepare_cached(PUT_OWN)?.execute((session.number, own))?;
        }
        for eviction in &evictions {
            chains.evict(*eviction)?;
        }
        for call in forgotten_calls {
            drop_row(transaction, DROP_CALL, session.number, integer(call.0))?;
        }
        for stream in &forgotten_streams {
            drop_row(transaction, DROP_STREAM, session.number, i64::from(stream.0))?;
            chains.forget(*stream, session.last_seq)?;
        }
        tokens::apply(transaction, session.principal, &dedup)?;
        let added: u64 = events.iter().map(|e| EVENT_OVERHEAD_BYTES + size(&e.payload)).sum();
        let bytes = integer(added) - integer(chains.freed_bytes);
        let bounds = chains.write()?;
        transaction.enter(session.principal, Amounts { bytes, ..Amounts::default() });
        session.bytes = session.bytes.saturating_add(bytes);
        session.version = session.version.next();
        session.write(transaction)?;
        transaction.change(Change::Log {
            session: self.session,
            events,
            evictions,
            bounds,
            forgotten: forgotten_streams,
        });
        Ok(session.version)
    }
}

const PUT_OWN: &str = "insert or replace into facts (session, facts) values (?1, ?2)";
const PUT_CALL: &str = "insert or replace into calls (session, number, row) values (?1, ?2, ?3)";
const PUT_STREAM: &str =
    "insert or replace into streams (session, number, row) values (?1, ?2, ?3)";
const DROP_CALL: &str = "delete from calls where session = ?1 and number = ?2";
const DROP_STREAM: &str = "delete from streams where session = ?1 and number = ?2";

fn put_rows<N: rusqlite::ToSql>(
    transaction: &Transaction<'_>,
    write: &str,
    session: i64,
    rows: &[(N, Vec<u8>)],
) -> rusqlite::Result<()> {
    let mut write = transaction.connection.prepare_cached(write)?;
    for (number, row) in rows {
        write.execute((session, number, row))?;
    }
    Ok(())
}

fn drop_row(
    transaction: &Transaction<'_>,
    delete: &str,
    session: i64,
    number: i64,
) -> rusqlite::Result<()> {
    transaction.connection.prepare_cached(delete)?.execute((session, number))?;
    Ok(())
}
