//! Numbers, keys and rows as they stand in the file.
//!
//! Rows of the ledger are JSON, with all names: a newer Rejoin reads older rows (what they lack has
//! a default), `sqlite3` shows them, and a migration can change them.

use std::io;

use rejoin_core::effect::EventKind;
use rejoin_core::id::Digest32;
use rejoin_core::session::read_row;
use rusqlite::types::{FromSqlError, Type};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A number as SQLite has it. What is beyond its range is as good as endless here.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The number that [`integer`] wrote.
pub(super) fn number(integer: i64) -> u64 {
    u64::try_from(integer).unwrap_or(0)
}

/// A row of the ledger.
///
/// # Errors
/// Never, as these types are; but nothing may depend on that.
pub(super) fn encode(row: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(row)?)
}

/// The row that [`encode`] wrote.
///
/// # Errors
/// If it is no such row: the file is damaged.
pub(super) fn decode<T: DeserializeOwned>(row: &[u8]) -> rusqlite::Result<T> {
    read_row(row)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, error.into()))
}

/// A kind of event.
pub(super) fn kind_number(kind: EventKind) -> i64 {
    match kind {
        EventKind::Notification => 0,
        EventKind::ServerRequest => 1,
        EventKind::Response => RESPONSE,
    }
}

/// The number of [`EventKind::Response`], as in the queries.
pub(super) const RESPONSE: i64 = 2;

/// The kind that [`kind_number`] wrote.
///
/// # Errors
/// If there is none: the file is damaged.
pub(super) fn kind(number: i64) -> rusqlite::Result<EventKind> {
    match number {
        0 => Ok(EventKind::Notification),
        1 => Ok(EventKind::ServerRequest),
        RESPONSE => Ok(EventKind::Response),
        other => Err(FromSqlError::OutOfRange(other).into()),
    }
}

/// A hash of 32 bytes.
///
/// # Errors
/// If it has another length: the file is damaged.
pub(super) fn digest(blob: &[u8]) -> rusqlite::Result<Digest32> {
    let size = blob.len();
    let wrong = |_| FromSqlError::InvalidBlobSize { expected_size: 32, blob_size: size };
    Ok(blob.try_into().map_err(wrong)?)
}
