//! Opening a data directory: alone, sound, and in the newest schema; or saying why not.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};

use crate::sqlite::failure;
use crate::sqlite::schema::{APPLICATION_ID, MIGRATIONS, migrate, version};

const DATABASE: &str = "rejoin.db";
/// A database that is being made; it gets its name when it is whole.
const UNFINISHED: &str = "rejoin.db.new";
const LOCK: &str = "rejoin.lock";
/// The start looks for damage no longer than this. A small database is looked at in full.
const CHECK_MAX: Duration = Duration::from_secs(2);
/// What a connection waits for another one: ours are quick, and others may be looking at the file.
const BUSY_MAX: Duration = Duration::from_secs(1);
/// Instructions of SQLite between two looks at the clock.
const CHECK_STEP: i32 = 10_000;

/// Why a data directory was not opened. Nothing was changed in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be made, or nothing can be written to it.
    #[error(
        "cannot write to the data directory {}: {source}; name a directory on a local disk that \
         this user can write to",
        .path.display()
    )]
    NotWritable {
        /// The directory, or the file in it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process serves it.
    #[error(
        "the data directory {} is in use by another process{}: end that one first, or name \
         another directory", .path.display(), holder(.process)
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Its process id, if it left one.
        process: Option<u32>,
    },
    /// The disk is full.
    #[error("the disk of {} is full: make room on it and start again", .path.display())]
    DiskFull {
        /// The database.
        path: PathBuf,
    },
    /// A newer Rejoin has written it.
    #[error(
        "{} has schema {found}, and this version knows no newer one than {known}: start the \
         version that wrote it, or a newer one", .path.display()
    )]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema that this version knows.
        known: i64,
    },
    /// Another program has written it.
    #[error(
        "{} is not a database of Rejoin: name another data directory, or move that file away",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is damaged, or a part of it is missing.
    #[error(
        "{} is damaged ({detail}): restore the data directory from a copy, or move it away to \
         start without its sessions (their clients initialize again, and repeats of their calls \
         run again)", .path.display()
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// Something else failed.
    #[error("cannot open {}: {source}; check the disk of the data directory", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn not_writable(path: &Path) -> impl Fn(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull => OpenError::DiskFull { path: path.clone() },
        _ => OpenError::NotWritable { path: path.clone(), source },
    }
}

fn holder(process: &Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(" (process {process})"))
}

/// A data directory that is ours while this lives.
#[derive(Debug)]
pub(super) struct DataDirectory {
    database: PathBuf,
    _lock: File,
}

impl DataDirectory {
    /// Locks a data directory, which is made if it is not there.
    pub(super) fn lock(directory: &Path) -> Result<Self, OpenError> {
        make_directory(directory).map_err(not_writable(directory))?;
        let path = directory.join(LOCK);
        let mut file = private().truncate(false).open(&path).map_err(not_writable(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let text = io::read_to_string(&file).unwrap_or_default();
                let process = text.trim().parse().ok();
                return Err(OpenError::Locked { path: directory.to_owned(), process });
            }
            Err(std::fs::TryLockError::Error(source)) => {
                return Err(OpenError::Io { path, source });
            }
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(not_writable(&path))?;
        Ok(Self { database: directory.join(DATABASE), _lock: file })
    }

    /// Opens the database, in the newest schema; it is made if the directory has none.
    pub(super) fn open(&self) -> Result<Connection, OpenError> {
        self.make_if_missing()?;
        self.identify()?;
        self.check()?;
        let mut connection = self.connect_writer().map_err(|error| self.explain(error))?;
        // What turns out to be damaged is left as it is.
        let unchanged = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        unchanged.map_err(|error| self.explain(error))?;
        migrate(&mut connection, MIGRATIONS).map_err(|error| self.explain(error))?;
        Ok(connection)
    }

    /// The database is used: the log before it may be brought into it from now on.
    pub(super) fn keep(&self, connection: &Connection) -> rusqlite::Result<()> {
        let config = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        connection.set_db_config(config, false).map(drop)
    }

    /// A connection that writes.
    pub(super) fn connect_writer(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.database, flags)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "cache_size", -8_192)?;
        // The unused space of a file is not for others to read: results hold secrets.
        connection.pragma_update(None, "secure_delete", "fast")?;
        connection.pragma_update(None, "journal_size_limit", 16 * 1_024 * 1_024)?;
        configure(&connection)?;
        Ok(connection)
    }

    /// A connection that reads.
    pub(super) fn connect_reader(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.database, flags)?;
        configure(&connection)?;
        Ok(connection)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.database.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    fn make_if_missing(&self) -> Result<(), OpenError> {
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::StorageFull => OpenError::DiskFull { path: self.database.clone() },
            _ => OpenError::Io { path: self.database.clone(), source },
        };
        match self.database.metadata() {
            Ok(file) if file.len() > 0 => return Ok(()),
            Ok(_) => return Err(self.damaged("the file is empty")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
        }
        if self.beside("-wal").exists() {
            return Err(self.damaged("the file is missing, but its log is there"));
        }
        let unfinished = self.database.with_file_name(UNFINISHED);
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let mut path = unfinished.clone().into_os_string();
            path.push(suffix);
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
                _ => {}
            }
        }
        private().create_new(true).open(&unfinished).map_err(io)?;
        make(&unfinished).map_err(|error| self.explain(error))?;
        let directory = self.database.parent().unwrap_or_else(|| Path::new("."));
        let named = File::open(&unfinished)
            .and_then(|file| file.sync_all())
            .and_then(|()| std::fs::rename(&unfinished, &self.database))
            .and_then(|()| File::open(directory)?.sync_all());
        named.map_err(io)
    }

    /// Whether the file is ours; nothing else may be done with it before. The marks are where the
    /// file format of SQLite says.
    fn identify(&self) -> Result<(), OpenError> {
        let mut header = [0; 100];
        let read = File::open(&self.database).and_then(|mut file| file.read_exact(&mut header));
        if read.is_err() || !header.starts_with(b"SQLite format 3\0") {
            return Err(self.damaged("its header is not readable"));
        }
        if header[68..72] != APPLICATION_ID.to_be_bytes() {
            return Err(OpenError::Foreign { path: self.database.clone() });
        }
        Ok(())
    }

    /// Whether the database is not too new, and sound as far as can be said quickly. By a
    /// connection that reads: one that writes would bring the log into what may be damaged.
    fn check(&self) -> Result<(), OpenError> {
        let explain = |error| self.explain(error);
        let mut connection = self.connect_reader().map_err(explain)?;
        let found = version(&connection).map_err(explain)?;
        let known = MIGRATIONS.len() as i64;
        if found > known {
            return Err(OpenError::NewerSchema { path: self.database.clone(), found, known });
        }
        let until = Instant::now() + CHECK_MAX;
        let is_late = move || Instant::now() > until;
        connection.progress_handler(CHECK_STEP, Some(is_late)).map_err(explain)?;
        let checked: Result<String, Error> =
            connection.query_row("pragma quick_check(1)", [], |row| row.get(0));
        connection.progress_handler(0, None::<fn() -> bool>).map_err(explain)?;
        match checked {
            Ok(result) if result == "ok" => Ok(()),
            // It tells its findings in several lines.
            Ok(result) => {
                let findings: Vec<_> = result.split_whitespace().collect();
                Err(self.damaged(&findings.join(" ")))
            }
            // As far as it was looked at, it is sound.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                Ok(())
            }
            Err(error) => Err(explain(error)),
        }
    }

    fn damaged(&self, detail: &str) -> OpenError {
        OpenError::Damaged { path: self.database.clone(), detail: detail.to_owned() }
    }

    /// An error of SQLite at the start.
    pub(super) fn explain(&self, error: Error) -> OpenError {
        let path = self.database.clone();
        match failure::kind(&error) {
            io::ErrorKind::StorageFull => OpenError::DiskFull { path },
            io::ErrorKind::InvalidData => OpenError::Damaged { path, detail: error.to_string() },
            kind @ io::ErrorKind::PermissionDenied => {
                OpenError::NotWritable { path, source: io::Error::new(kind, error) }
            }
            kind => OpenError::Io { path, source: io::Error::new(kind, error) },
        }
    }
}

/// Makes a directory that only its owner can look into; a power cut does not take it away again.
fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    for parent in directory.canonicalize()?.ancestors().skip(1) {
        // One that we may not look into was there before.
        if let Ok(parent) = File::open(parent) {
            parent.sync_all()?;
        }
    }
    Ok(())
}

/// A file that only its owner reads and writes.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(64);
    connection.busy_timeout(BUSY_MAX)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "memory")
}

/// Makes an empty database of the newest schema.
fn make(path: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "page_size", 4_096)?;
    connection.pragma_update(None, "auto_vacuum", "incremental")?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    migrate(&mut connection, MIGRATIONS)?;
    connection.close().map_err(|(_, error)| error)
}
