//! Lives of a database: what a power cut may have taken from the one before, and what follows.

use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::sqlite::Durability;

/// Transactions of one life: numbers of the next one start after these.
const LIFE_TICKS: i64 = 1 << 40;
/// Lives whose transactions have numbers.
const LIVES_MAX: i64 = i64::MAX / LIFE_TICKS - 1;
/// Epochs stay below this, so that JSON numbers of any client hold them.
const EPOCH_MAX: i64 = 1 << 52;

/// A life that began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// Number before its first transaction.
    pub(super) tick: i64,
    /// Changes when claims may have been lost.
    pub(super) epoch: u64,
}

/// Begins a life, on a connection that syncs: what the one before may have lost is written down
/// before anything can be read.
///
/// A killed process loses nothing that was committed. Only if the machine went down (its boot id is
/// another) and the end before was no clean one, commits that were not synced may be gone.
///
/// `read` reads what the life starts with; if it cannot, none has begun.
pub(super) fn begin<T>(
    connection: &mut Connection,
    durability: Durability,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<(Life, T)> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let boot = boot();
    let is_clean = get(&transaction, "clean")? == Some(1);
    let same_boot = !boot.is_empty() && get_text(&transaction, "boot")? == Some(boot.clone());
    let may_lack_commits = !is_clean && !same_boot;
    if may_lack_commits && get(&transaction, "durability")? == Some(MEMORY) {
        forget_sessions(&transaction)?;
    }
    let former = get(&transaction, "life")?.unwrap_or(0);
    let number = former.checked_add(1).filter(|number| (1..=LIVES_MAX).contains(number));
    // Nobody starts a process that often: the file is damaged.
    let number = number.ok_or(FromSqlError::OutOfRange(former))?;
    let epoch = match get(&transaction, "epoch")? {
        Some(epoch) => epoch,
        None => {
            transaction.query_row("select abs(random() % ?1)", [EPOCH_MAX], |row| row.get(0))?
        }
    };
    put(&transaction, "life", number)?;
    put(&transaction, "epoch", epoch)?;
    put(&transaction, "clean", 0)?;
    put(&transaction, "durability", code(durability))?;
    put(&transaction, "boot", boot)?;
    let read = read(&transaction)?;
    transaction.commit()?;
    Ok((Life { tick: number * LIFE_TICKS, epoch: epoch.unsigned_abs() }, read))
}

/// Notes that the life ends with everything synced. In a transaction.
pub(super) fn note_clean_end(connection: &Connection) -> rusqlite::Result<()> {
    put(connection, "clean", 1)
}

/// Claims may be gone: no session goes on, and tokens of calls from before are not believed to be
/// new.
fn forget_sessions(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "update principals set sessions = 0, bytes = bytes - coalesce(
             (select sum(bytes) from sessions where principal = principals.key), 0);
         delete from principals where bytes = 0 and tokens = 0;
         insert into garbage (session, stream) select number, -1 from sessions;
         delete from sessions;
         delete from meta where key = 'epoch';",
    )
}

const CALLS: i64 = 0;
const EVENTS: i64 = 1;
const MEMORY: i64 = 2;

fn code(durability: Durability) -> i64 {
    match durability {
        Durability::Calls => CALLS,
        Durability::Events => EVENTS,
        Durability::Memory => MEMORY,
    }
}

/// Differs from boot to boot; empty if the system does not say.
fn boot() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|id| id.trim().to_owned()).unwrap_or_default()
}

fn get(connection: &Connection, key: &str) -> rusqlite::Result<Option<i64>> {
    let query = "select value from meta where key = ?1";
    connection.query_row(query, [key], |row| row.get(0)).optional()
}

fn get_text(connection: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    let query = "select value from meta where key = ?1";
    connection.query_row(query, [key], |row| row.get(0)).optional()
}

fn put(connection: &Connection, key: &str, value: impl rusqlite::ToSql) -> rusqlite::Result<()> {
    let write = "insert or replace into meta (key, value) values (?1, ?2)";
    connection.execute(write, (key, value))?;
    Ok(())
}
