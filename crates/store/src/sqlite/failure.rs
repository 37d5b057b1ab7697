//! What SQLite reports, in the words of the contract.

use std::io;

use rusqlite::{Error, ErrorCode};

use crate::error::Failure;

/// A failure of `act`, with what an operator can do about it.
pub(super) fn failure(act: &'static str, error: Error) -> Failure {
    let kind = kind(&error);
    let remedy = match kind {
        io::ErrorKind::StorageFull => "make room on the disk of the data directory",
        io::ErrorKind::InvalidData => {
            "the database is damaged: stop, and restore the data directory from a copy, or move \
             it away to start without its sessions"
        }
        io::ErrorKind::PermissionDenied => "make the data directory writable for this user",
        io::ErrorKind::ResourceBusy => "close the other program that has the database open",
        _ => "check the disk of the data directory",
    };
    Failure::new(act, remedy, io::Error::new(kind, error))
}

/// The writer ended before it answered.
pub(super) fn writer_is_gone() -> Failure {
    let error = io::Error::new(io::ErrorKind::BrokenPipe, "the writer of the store has ended");
    Failure::new("write to its database", "restart", error)
}

/// What the operating system would call it.
pub(super) fn kind(error: &Error) -> io::ErrorKind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => io::ErrorKind::StorageFull,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            io::ErrorKind::PermissionDenied
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => io::ErrorKind::ResourceBusy,
        Some(ErrorCode::OutOfMemory) => io::ErrorKind::OutOfMemory,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => io::ErrorKind::InvalidData,
        Some(_) => io::ErrorKind::Other,
        // Not SQLite's: a column is not what the schema says.
        None => io::ErrorKind::InvalidData,
    }
}

/// True if what a commit wrote before this error may still turn out to be in the file: when it was
/// written, and only then could not be synced.
pub(super) fn is_ambiguous(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}
