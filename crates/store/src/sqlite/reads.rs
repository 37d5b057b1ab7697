//! What readers ask the file.

use std::io::{Read, Seek, SeekFrom};

use bytes::Bytes;
use rejoin_core::effect::Event;
use rejoin_core::id::{Seq, StreamId};
use rejoin_core::session::{SessionRow as OwnRow, Tail};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::de::DeserializeOwned;

use crate::contract::{Fence, Loaded, SessionKey};
use crate::error::ReadError;
use crate::page::{Page, PageBuilder};
use crate::sqlite::chains::Chain;
use crate::sqlite::row::{RESPONSE, decode, digest, integer, kind, number};
use crate::sqlite::sessions::SessionRow;

/// What was read of a session, and the last commit that changed it: the tails must have that, too,
/// before anybody learns of it. `None`: there is no such session.
pub(super) type Seen<T> = Option<(T, i64)>;

/// A page after a cursor.
pub(super) fn page(
    connection: &Connection,
    session: &SessionKey,
    stream: StreamId,
    after: Seq,
    bytes_max: usize,
) -> rusqlite::Result<Seen<Result<Page, ReadError>>> {
    let Some(row) = SessionRow::find(connection, session)? else { return Ok(None) };
    let chain = Chain::find(connection, row.number, stream)?;
    let mut page = PageBuilder::new(stream, after, bytes_max, chain.bounds());
    // A payload that does not fit is not even brought into memory.
    let query = "select number, seq, previous, kind, last, length(payload),
            case when length(payload) <= ?5 then payload end
        from events where session = ?1 and stream = ?2 and seq > ?3 and (seq > ?4 or kind = ?6)
        order by seq";
    let from = after.max(chain.emptied);
    let mut query = connection.prepare_cached(query)?;
    let mut rows = query.query((
        row.number,
        stream.0,
        integer(from.0),
        integer(chain.evicted.0),
        i64::try_from(bytes_max).unwrap_or(i64::MAX),
        RESPONSE,
    ))?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let event = Found::read(row)?;
        match page.offer(event.seq, event.previous, event.bytes) {
            Ok(true) => events.push(event.event(connection, stream, bytes_max)?),
            Ok(false) => break,
            Err(damaged) => return Ok(Some((Err(damaged), 0))),
        }
    }
    let page = page.finish().map(|shape| Page::new(events, shape));
    Ok(Some((page, row.tick)))
}

/// Numbers of a stream's events after a cursor: the index alone has them.
pub(super) fn seqs(
    connection: &Connection,
    session: &SessionKey,
    stream: StreamId,
    after: Seq,
) -> rusqlite::Result<Seen<Vec<Seq>>> {
    let Some(row) = SessionRow::find(connection, session)? else { return Ok(None) };
    let chain = Chain::find(connection, row.number, stream)?;
    // The kind is not in the index: it is looked at where something was evicted only.
    let query = "select seq from events
        where session = ?1 and stream = ?2 and seq > ?3 and (seq > ?4 or kind = ?5)
        order by seq";
    let (from, evicted) = (integer(after.max(chain.emptied).0), integer(chain.evicted.0));
    let mut query = connection.prepare_cached(query)?;
    let asked = (row.number, stream.0, from, evicted, RESPONSE);
    let seqs = query.query_map(asked, |found| Ok(Seq(number(found.get(0)?))))?;
    Ok(Some((seqs.collect::<rusqlite::Result<_>>()?, row.tick)))
}

/// A row of an event.
struct Found {
    number: i64,
    seq: Seq,
    previous: Seq,
    kind: i64,
    last: bool,
    bytes: usize,
    payload: Option<Bytes>,
}

impl Found {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            number: row.get(0)?,
            seq: Seq(number(row.get(1)?)),
            previous: Seq(number(row.get(2)?)),
            kind: row.get(3)?,
            last: row.get(4)?,
            bytes: usize::try_from(row.get::<_, i64>(5)?).unwrap_or(0),
            payload: row.get::<_, Option<Vec<u8>>>(6)?.map(Bytes::from),
        })
    }

    /// The event, with at most `bytes_max` bytes of its payload.
    fn event(
        self,
        connection: &Connection,
        stream: StreamId,
        bytes_max: usize,
    ) -> rusqlite::Result<Event> {
        let payload = match self.payload {
            Some(payload) => payload,
            None => payload_part(connection, self.number, 0, bytes_max)?,
        };
        let (seq, previous, last) = (self.seq, self.previous, self.last);
        Ok(Event { stream, seq, previous, kind: kind(self.kind)?, last, payload })
    }
}

/// One event.
pub(super) fn event(
    connection: &Connection,
    session: &SessionKey,
    stream: StreamId,
    seq: Seq,
) -> rusqlite::Result<Seen<Option<Event>>> {
    let Some(row) = SessionRow::find(connection, session)? else { return Ok(None) };
    let found = find(connection, row.number, stream, seq)?;
    let whole = |found: Found| found.event(connection, stream, usize::MAX);
    Ok(Some((found.map(whole).transpose()?, row.tick)))
}

/// A part of an event's payload.
pub(super) fn part(
    connection: &Connection,
    session: &SessionKey,
    stream: StreamId,
    seq: Seq,
    offset: usize,
    bytes_max: usize,
) -> rusqlite::Result<Seen<Option<Bytes>>> {
    let Some(row) = SessionRow::find(connection, session)? else { return Ok(None) };
    let found = find(connection, row.number, stream, seq)?;
    let part = |found: Found| payload_part(connection, found.number, offset, bytes_max);
    Ok(Some((found.map(part).transpose()?, row.tick)))
}

/// Finds an event, without its payload.
fn find(
    connection: &Connection,
    session: i64,
    stream: StreamId,
    seq: Seq,
) -> rusqlite::Result<Option<Found>> {
    let chain = Chain::find(connection, session, stream)?;
    let query = "select number, seq, previous, kind, last, length(payload), null
        from events where session = ?1 and stream = ?2 and seq = ?3 and seq > ?4
            and (seq > ?5 or kind = ?6)";
    let mut query = connection.prepare_cached(query)?;
    let parameters = (
        session,
        stream.0,
        integer(seq.0),
        integer(chain.emptied.0),
        integer(chain.evicted.0),
        RESPONSE,
    );
    query.query_row(parameters, Found::read).optional()
}

fn payload_part(
    connection: &Connection,
    event: i64,
    offset: usize,
    bytes_max: usize,
) -> rusqlite::Result<Bytes> {
    let mut blob = connection.blob_open("main", "events", "payload", event, true)?;
    let offset = offset.min(blob.len());
    let mut part = vec![0; bytes_max.min(blob.len() - offset)];
    let read = blob.seek(SeekFrom::Start(offset as u64)).and_then(|_| blob.read_exact(&mut part));
    let unreadable = |error: std::io::Error| {
        rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, error.into())
    };
    read.map_err(unreadable)?;
    Ok(part.into())
}

/// A stream's last event.
pub(super) fn last(
    connection: &Connection,
    session: &SessionKey,
    stream: StreamId,
) -> rusqlite::Result<Seen<Seq>> {
    let Some(row) = SessionRow::find(connection, session)? else { return Ok(None) };
    Ok(Some((Chain::find(connection, row.number, stream)?.last, row.tick)))
}

/// What a new owner starts from, or (`fence: None`) the present one has.
pub(super) fn load(
    connection: &Connection,
    session: &SessionKey,
    fence: Option<Fence>,
) -> rusqlite::Result<Seen<Loaded>> {
    let Some(row) = SessionRow::find(connection, session)? else { return Ok(None) };
    let calls = "select row from calls where session = ?1 order by number";
    let streams = "select row from streams where session = ?1 order by number";
    let loaded = Loaded {
        fence: fence.unwrap_or(row.fence),
        version: row.version,
        principal: row.principal,
        row: own_row(connection, row.number)?,
        calls: rows(connection, calls, row.number)?,
        streams: rows(connection, streams, row.number)?,
        tails: tails(connection, row.number)?,
        last_seq: row.last_seq,
    };
    Ok(Some((loaded, row.tick)))
}

fn rows<T: DeserializeOwned>(
    connection: &Connection,
    query: &str,
    session: i64,
) -> rusqlite::Result<Vec<T>> {
    let mut query = connection.prepare_cached(query)?;
    let rows = query.query_map([session], |row| decode(row.get_ref(0)?.as_blob()?))?;
    rows.collect()
}

/// How far each of its streams goes, and what is kept of it.
fn tails(connection: &Connection, session: i64) -> rusqlite::Result<Vec<Tail>> {
    let query = "select stream, last,
            (select total(length(payload)) from events e where e.session = ?1
                and e.stream = c.stream and e.seq > c.emptied
                and (e.seq > c.evicted or e.kind = ?2)),
            (select total(length(payload)) from events e where e.session = ?1
                and e.stream = c.stream and e.seq > c.emptied and e.kind = ?2)
        from chains c where session = ?1 and last > 0 order by stream";
    let mut query = connection.prepare_cached(query)?;
    let tail = |row: &Row<'_>| {
        Ok(Tail {
            stream: StreamId(row.get(0)?),
            produced: Seq(number(row.get(1)?)),
            // Totals are floating point, and exact: no log has 2^53 bytes.
            bytes: row.get::<_, f64>(2)? as u64,
            response_bytes: row.get::<_, f64>(3)? as u64,
        })
    };
    query.query_map((session, RESPONSE), tail)?.collect()
}

/// The session's own row.
fn own_row(connection: &Connection, session: i64) -> rusqlite::Result<Option<OwnRow>> {
    let query = "select facts from facts where session = ?1";
    let read = |row: &Row<'_>| decode(row.get_ref(0)?.as_blob()?);
    connection.prepare_cached(query)?.query_row([session], read).optional()
}

/// Sessions, by key.
pub(super) fn sessions(
    connection: &Connection,
    after: Option<SessionKey>,
    rows_max: usize,
) -> rusqlite::Result<Vec<SessionKey>> {
    let query = "select key from sessions where key > ?1 order by key limit ?2";
    let mut query = connection.prepare_cached(query)?;
    let after = after.as_ref().map_or(&[][..], |key| &key[..]);
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    let rows = query.query_map((after, rows_max), |row| digest(row.get_ref(0)?.as_blob()?))?;
    rows.collect()
}
