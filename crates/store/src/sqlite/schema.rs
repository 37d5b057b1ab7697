//! Tables, and how older ones become these.

use rusqlite::{Connection, TransactionBehavior};

/// Marks the file as ours (`PRAGMA application_id`): "Rjon".
pub(super) const APPLICATION_ID: i32 = 0x526A_6F6E;

/// Steps from one schema to the next. A step that was released is never changed; the number of
/// steps is the schema's version (`PRAGMA user_version`).
pub(super) const MIGRATIONS: &[&str] = &[VERSION_1, WITHOUT_RESERVED_NUMBERS];

/// Sessions are known by a small number, which is never used again, so that what a removed one
/// leaves behind can be deleted later. `tick` is the number of the commit that wrote a row last.
///
/// An event is there if `seq > emptied and (seq > evicted or kind = 2)`, whether or not the rows
/// that are not have been deleted yet; `garbage` says where such rows are (`stream = -1`: all that
/// is left of a removed session).
const VERSION_1: &str = "
create table meta (key text primary key, value any not null) strict, without rowid;

create table principals (
    key blob primary key,
    bytes integer not null,
    sessions integer not null,
    tokens integer not null
) strict, without rowid;

create table sessions (
    number integer primary key autoincrement,
    key blob not null unique,
    principal blob not null,
    fence integer not null,
    version integer not null,
    last_seq integer not null,
    reserved_seq integer not null,
    bytes integer not null,
    tick integer not null
) strict;

create table facts (session integer primary key, facts blob not null) strict;

create table lost (
    session integer not null,
    after integer not null,
    through integer not null,
    primary key (session, after)
) strict, without rowid;

create table calls (
    session integer not null,
    number integer not null,
    row blob not null,
    primary key (session, number)
) strict, without rowid;

create table streams (
    session integer not null,
    number integer not null,
    row blob not null,
    primary key (session, number)
) strict, without rowid;

create table chains (
    session integer not null,
    stream integer not null,
    last integer not null,
    evicted integer not null,
    emptied integer not null,
    primary key (session, stream)
) strict, without rowid;

create table events (
    number integer primary key,
    session integer not null,
    stream integer not null,
    seq integer not null,
    previous integer not null,
    kind integer not null,
    last integer not null,
    payload blob not null
) strict;
create unique index events_in_order on events (session, stream, seq);

create table tokens (
    number integer primary key,
    key blob not null unique,
    principal blob not null,
    owner_session blob not null,
    owner_call integer not null,
    params blob not null,
    outcome integer not null,
    ended_ms integer not null,
    result_expires_ms integer not null,
    expires_ms integer not null,
    due_ms integer not null,
    tick integer not null,
    response blob not null
) strict;
create index tokens_by_due on tokens (due_ms);

create table garbage (
    session integer not null,
    stream integer not null,
    primary key (session, stream)
) strict, without rowid;
";

/// A session reserves its numbers by itself, in its own row (`rejoin_core::session::Reserved`).
const WITHOUT_RESERVED_NUMBERS: &str = "
alter table sessions drop column reserved_seq;
drop table lost;
";

/// Brings a database from whatever version it has to `steps.len()`, one transaction a step.
///
/// # Errors
/// As SQLite says; the steps before the failed one stay.
pub(super) fn migrate(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let version = version(connection)?;
    for (step, number) in steps.iter().zip(1_i64..).skip(usize::try_from(version).unwrap_or(0)) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The version of a database's schema; 0 if it has none.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[&str] = &["create table a (x)", "create table b (x); insert into b values (7)"];

    #[test]
    fn an_older_database_gets_the_steps_it_lacks_and_keeps_its_rows() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, OLD).unwrap();
        assert_eq!(version(&connection).unwrap(), 2);
        let new = [OLD[0], OLD[1], "alter table b add column y default 3"];
        migrate(&mut connection, &new).unwrap();
        migrate(&mut connection, &new).unwrap();
        let row = connection.query_row("select x, y from b", [], |row| row.try_into());
        assert_eq!((version(&connection).unwrap(), row.unwrap()), (3, (7, 3)));
    }

    #[test]
    fn a_database_of_each_older_version_becomes_one_of_the_newest() {
        for steps in 0..=MIGRATIONS.len() {
            let mut connection = Connection::open_in_memory().unwrap();
            migrate(&mut connection, &MIGRATIONS[..steps]).unwrap();
            migrate(&mut connection, MIGRATIONS).unwrap();
            assert_eq!(version(&connection).unwrap(), MIGRATIONS.len() as i64);
        }
    }

    #[test]
    fn a_step_that_fails_leaves_nothing_of_itself() {
        let mut connection = Connection::open_in_memory().unwrap();
        let broken = [OLD[0], "create table c (x); insert into nowhere values (1)"];
        assert!(migrate(&mut connection, &broken).is_err());
        assert_eq!(version(&connection).unwrap(), 1);
        assert!(connection.execute_batch("select * from c").is_err());
    }
}
