//! The events of a session's streams, as the writer changes them.

use std::collections::BTreeMap;

use rejoin_core::effect::{Event, Eviction};
use rejoin_core::id::{Seq, StreamId};
use rusqlite::{Connection, OptionalExtension, Params};

use crate::charge::EVENT_OVERHEAD_BYTES;
use crate::error::CommitError;
use crate::page::Bounds;
use crate::sqlite::row::{RESPONSE, integer, kind_number, number};
use crate::sqlite::sessions::SessionRow;

/// Events that are deleted at once, by an eviction or later; what is left goes in parts, between
/// commits.
const PART_ROWS_MAX: i64 = 256;
/// The same in bytes, but for the last of them.
const PART_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// How far a stream's log reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) last: Seq,
    /// Events up to here are gone, but for responses.
    pub(super) evicted: Seq,
    /// Events up to here are gone.
    pub(super) emptied: Seq,
}

impl Chain {
    /// A stream's chain; one without events if there is none.
    pub(super) fn find(
        connection: &Connection,
        session: i64,
        stream: StreamId,
    ) -> rusqlite::Result<Self> {
        let query = "select last, evicted, emptied from chains where session = ?1 and stream = ?2";
        let chain = connection
            .prepare_cached(query)?
            .query_row((session, stream.0), |row| {
                let seq = |column| Ok::<_, rusqlite::Error>(Seq(number(row.get(column)?)));
                Ok(Self { last: seq(0)?, evicted: seq(1)?, emptied: seq(2)? })
            })
            .optional()?;
        Ok(chain.unwrap_or_default())
    }

    pub(super) fn bounds(self) -> Bounds {
        Bounds { last: self.last, evicted: self.evicted }
    }
}

/// The chains that a batch touches.
pub(super) struct Chains<'a> {
    connection: &'a Connection,
    session: i64,
    touched: BTreeMap<StreamId, Chain>,
    forgotten: Vec<StreamId>,
    /// Charged for what was deleted.
    pub(super) freed_bytes: u64,
}

impl<'a> Chains<'a> {
    pub(super) fn new(connection: &'a Connection, session: i64) -> Self {
        let (touched, forgotten) = (BTreeMap::new(), Vec::new());
        Self { connection, session, touched, forgotten, freed_bytes: 0 }
    }

    fn chain(&mut self, stream: StreamId) -> rusqlite::Result<&mut Chain> {
        use std::collections::btree_map::Entry;
        match self.touched.entry(stream) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                Ok(entry.insert(Chain::find(self.connection, self.session, stream)?))
            }
        }
    }

    /// Whether events extend their chains; if they do, these end with them from now on.
    pub(super) fn extend(
        &mut self,
        session: &mut SessionRow,
        events: &[Event],
    ) -> rusqlite::Result<Result<(), CommitError>> {
        for event in events {
            let (stream, seq, previous) = (event.stream, event.seq, event.previous);
            let last_seq = session.last_seq;
            if seq <= last_seq {
                return Ok(Err(CommitError::Backwards { last_seq, seq }));
            }
            let chain = self.chain(stream)?;
            if previous != chain.last {
                let expected_previous = chain.last;
                return Ok(Err(CommitError::Gap { stream, expected_previous, previous }));
            }
            (chain.last, session.last_seq) = (seq, seq);
        }
        Ok(Ok(()))
    }

    /// Writes events that extend their chains.
    pub(super) fn append(&self, events: &[Event]) -> rusqlite::Result<()> {
        let write = "insert into events (session, stream, seq, previous, kind, last, payload)
            values (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let mut write = self.connection.prepare_cached(write)?;
        for event in events {
            write.execute((
                self.session,
                event.stream.0,
                integer(event.seq.0),
                integer(event.previous.0),
                kind_number(event.kind),
                event.last,
                &event.payload[..],
            ))?;
        }
        Ok(())
    }

    /// Makes events unreadable, and deletes them if they are not too many to do it at once.
    pub(super) fn evict(&mut self, eviction: Eviction) -> rusqlite::Result<()> {
        let chain = self.chain(eviction.stream)?;
        let through = eviction.through.min(chain.last);
        chain.evicted = chain.evicted.max(through);
        if eviction.responses_too {
            chain.emptied = chain.emptied.max(through);
        }
        let chain = *chain;
        self.delete(eviction.stream, chain)
    }

    /// Forgets a stream with its events.
    pub(super) fn forget(&mut self, stream: StreamId, last_seq: Seq) -> rusqlite::Result<()> {
        // Until its rows are deleted the chain says that they are gone.
        let chain = Chain { last: Seq::ORIGIN, evicted: last_seq, emptied: last_seq };
        *self.chain(stream)? = chain;
        self.forgotten.push(stream);
        self.delete(stream, chain)
    }

    fn delete(&mut self, stream: StreamId, chain: Chain) -> rusqlite::Result<()> {
        let deleted = delete_unreadable(self.connection, self.session, stream, chain)?;
        self.freed_bytes += deleted.bytes;
        if !deleted.is_all {
            self.connection
                .prepare_cached("insert or ignore into garbage (session, stream) values (?1, ?2)")?
                .execute((self.session, stream.0))?;
        } else if self.forgotten.contains(&stream) {
            self.touched.remove(&stream);
            self.connection
                .prepare_cached("delete from chains where session = ?1 and stream = ?2")?
                .execute((self.session, stream.0))?;
        }
        Ok(())
    }

    /// Writes the chains; returns how far they reach.
    pub(super) fn write(self) -> rusqlite::Result<Vec<(StreamId, Bounds)>> {
        let write = "insert or replace into chains (session, stream, last, evicted, emptied)
            values (?1, ?2, ?3, ?4, ?5)";
        let mut write = self.connection.prepare_cached(write)?;
        for (stream, chain) in &self.touched {
            if *chain == Chain::default() {
                continue;
            }
            write.execute((
                self.session,
                stream.0,
                integer(chain.last.0),
                integer(chain.evicted.0),
                integer(chain.emptied.0),
            ))?;
        }
        let forgotten = self.forgotten;
        let left = self.touched.into_iter().filter(|(stream, _)| !forgotten.contains(stream));
        Ok(left.map(|(stream, chain)| (stream, chain.bounds())).collect())
    }
}

/// What was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deleted {
    /// As they were charged.
    pub(super) bytes: u64,
    /// True if nothing is left of what was to be deleted.
    pub(super) is_all: bool,
}

/// Deletes a part of a stream's events that are no longer readable.
pub(super) fn delete_unreadable(
    connection: &Connection,
    session: i64,
    stream: StreamId,
    chain: Chain,
) -> rusqlite::Result<Deleted> {
    let query = "select number, length(payload) from events
        where session = ?1 and stream = ?2 and seq <= ?3 and (kind <> ?4 or seq <= ?5)
        order by seq limit ?6";
    let parameters = (
        session,
        stream.0,
        integer(chain.evicted.0),
        RESPONSE,
        integer(chain.emptied.0),
        PART_ROWS_MAX + 1,
    );
    delete_part(connection, query, parameters)
}

/// Deletes a part of the events of a session that was removed.
pub(super) fn delete_removed(connection: &Connection, session: i64) -> rusqlite::Result<Deleted> {
    let query = "select number, length(payload) from events where session = ?1
        order by stream, seq limit ?2";
    delete_part(connection, query, (session, PART_ROWS_MAX + 1))
}

/// Deletes the first of the events that a query finds (number and length).
fn delete_part(
    connection: &Connection,
    query: &str,
    parameters: impl Params,
) -> rusqlite::Result<Deleted> {
    let mut query = connection.prepare_cached(query)?;
    let found = query.query_map(parameters, |row| row.try_into())?;
    let found: Vec<(i64, i64)> = found.collect::<rusqlite::Result<_>>()?;
    let mut delete = connection.prepare_cached("delete from events where number = ?1")?;
    let mut deleted = Deleted { bytes: 0, is_all: true };
    for ((event, length), rows) in found.into_iter().zip(0..) {
        if rows == PART_ROWS_MAX || deleted.bytes >= PART_BYTES_MAX {
            deleted.is_all = false;
            break;
        }
        delete.execute([event])?;
        deleted.bytes += EVENT_OVERHEAD_BYTES + number(length);
    }
    Ok(deleted)
}
