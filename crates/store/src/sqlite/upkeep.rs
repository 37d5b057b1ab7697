//! What is done between commits, a little at a time: deleting what is no longer readable, and
//! giving the file's unused end back.

use rejoin_core::id::StreamId;
use rusqlite::{Connection, OptionalExtension};

use crate::sqlite::books::{Amounts, Entries};
use crate::sqlite::chains::{Chain, delete_removed, delete_unreadable};
use crate::sqlite::row::{digest, integer};

/// Rows of the ledger that are deleted at once.
const ROWS_MAX: i64 = 256;
/// Pages that are given back at once (1 MiB).
const PAGES_MAX: i64 = 256;
/// Unused pages that are kept for what comes (4 MiB), or an eighth of the file if that is more.
const SPARE_PAGES: i64 = 1_024;

/// Deletes a part of the garbage; false if there is none. In a transaction.
pub(super) fn collect(connection: &Connection, entries: &mut Entries) -> rusqlite::Result<bool> {
    let next = "select session, stream from garbage limit 1";
    let next = connection.prepare_cached(next)?.query_row([], |row| row.try_into()).optional()?;
    let Some((session, stream)): Option<(i64, i64)> = next else { return Ok(false) };
    let is_clean = match u32::try_from(stream) {
        Ok(stream) => collect_stream(connection, session, StreamId(stream), entries)?,
        Err(_) => collect_session(connection, session)?,
    };
    if is_clean {
        connection
            .prepare_cached("delete from garbage where session = ?1 and stream = ?2")?
            .execute((session, stream))?;
    }
    Ok(true)
}

/// Deletes events of a living session that were evicted; true if none is left.
fn collect_stream(
    connection: &Connection,
    session: i64,
    stream: StreamId,
    entries: &mut Entries,
) -> rusqlite::Result<bool> {
    let chain = Chain::find(connection, session, stream)?;
    let deleted = delete_unreadable(connection, session, stream, chain)?;
    let bytes = -integer(deleted.bytes);
    let give_back = "update sessions set bytes = bytes + ?2 where number = ?1 returning principal";
    let principal = connection
        .prepare_cached(give_back)?
        .query_row((session, bytes), |row| digest(row.get_ref(0)?.as_blob()?))
        .optional()?;
    // A session that was removed meanwhile has given all back.
    if let Some(principal) = principal {
        entries.add(principal, Amounts { bytes, ..Amounts::default() });
    }
    if deleted.is_all && chain.last.0 == 0 {
        connection
            .prepare_cached("delete from chains where session = ?1 and stream = ?2")?
            .execute((session, stream.0))?;
    }
    Ok(deleted.is_all)
}

/// Deletes what a removed session left; true if nothing is left.
fn collect_session(connection: &Connection, session: i64) -> rusqlite::Result<bool> {
    const PARTS: [&str; 4] = [
        "delete from calls where session = ?1 and number in (
            select number from calls where session = ?1 limit ?2)",
        "delete from streams where session = ?1 and number in (
            select number from streams where session = ?1 limit ?2)",
        "delete from chains where session = ?1 and stream in (
            select stream from chains where session = ?1 limit ?2)",
        "delete from facts where session in (
            select session from facts where session = ?1 limit ?2)",
    ];
    if !delete_removed(connection, session)?.is_all {
        return Ok(false);
    }
    let mut left = ROWS_MAX;
    for part in PARTS {
        let deleted = connection.prepare_cached(part)?.execute((session, left))?;
        left -= i64::try_from(deleted).unwrap_or(ROWS_MAX);
        if left <= 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives a part of the unused pages back to the file system; false if there are few.
pub(super) fn shrink(connection: &Connection) -> rusqlite::Result<bool> {
    let count = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let (unused, all) = (count("freelist_count")?, count("page_count")?);
    if unused <= SPARE_PAGES.max(all / 8) + PAGES_MAX {
        return Ok(false);
    }
    let mut vacuum =
        connection.prepare_cached(&format!("pragma incremental_vacuum({PAGES_MAX})"))?;
    let mut steps = vacuum.query([])?;
    while steps.next()?.is_some() {}
    Ok(true)
}
