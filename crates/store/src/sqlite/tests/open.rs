//! Data directories that cannot be opened, and what is said about them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn refused(directory: &Path) -> OpenError {
    SqliteStore::open(directory, options(Durability::Calls, WIDE, MIB)).expect_err("it is refused")
}

/// The text of a refusal names the place and what to do.
fn says(error: &OpenError, directory: &Path, words: &[&str]) {
    let text = error.to_string();
    assert!(text.contains(directory.to_str().unwrap()), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn nobody_else_can_read_what_is_stored() {
    let directory = folder();
    let inner = directory.path().join("a/b");
    let store = open(&inner);
    let mut log = Log::create(&store, "s").await;
    log.append("secret").await.unwrap();
    log.read(0).await;
    assert_eq!(mode(&inner), 0o700);
    for file in ["rejoin.db", "rejoin.db-wal", "rejoin.db-shm", "rejoin.lock"] {
        assert_eq!(mode(&inner.join(file)), 0o600, "{file}");
    }
}

#[test]
fn a_second_process_is_told_who_has_the_directory() {
    let directory = folder();
    let store = open(directory.path());
    let error = refused(directory.path());
    assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
    let process = format!("process {}", std::process::id());
    says(&error, directory.path(), &[&process, "in use"]);
    drop(store);
    open(directory.path());
}

#[test]
fn what_cannot_be_written_to_is_named() {
    let directory = folder();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    // A directory that is there, and nobody can make a file in.
    for path in [file.clone(), file.join("below"), "/proc/self".into()] {
        let error = refused(&path);
        assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");
        says(&error, &path, &["can write to"]);
    }
}

#[test]
fn a_newer_schema_is_left_alone() {
    let directory = folder();
    drop(open(directory.path()));
    tamper(directory.path(), "pragma user_version = 77");
    let error = refused(directory.path());
    assert!(matches!(error, OpenError::NewerSchema { found: 77, .. }), "{error:?}");
    says(&error, directory.path(), &["schema 77", "newer"]);
}

#[test]
fn another_program_s_database_is_left_alone() {
    let directory = folder();
    tamper(directory.path(), "create table theirs (x); insert into theirs values (1)");
    let before = fs::read(directory.path().join("rejoin.db")).unwrap();
    let error = refused(directory.path());
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    says(&error, directory.path(), &["not a database of Rejoin"]);
    assert!(fs::read(directory.path().join("rejoin.db")).unwrap() == before, "it was changed");
}

/// Damages a database in one way; true if it did.
type Damage = fn(&Path);

#[tokio::test]
async fn a_damaged_database_is_neither_used_nor_replaced() {
    let damages: [(&str, Damage); 5] = [
        ("no database", |path| fs::write(path, vec![b'x'; 10_000]).unwrap()),
        ("empty", |path| fs::write(path, "").unwrap()),
        ("cut short", |path| {
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(20_000).unwrap();
        }),
        ("overwritten", |path| {
            let mut bytes = fs::read(path).unwrap();
            for page in bytes.chunks_mut(4_096).skip(2) {
                page[..64].fill(0xa5);
            }
            fs::write(path, bytes).unwrap();
        }),
        ("missing, its log not", |path| {
            fs::rename(path, path.with_file_name("rejoin.db-wal")).unwrap();
        }),
    ];
    let live = folder();
    let mut log = Log::create(&open(live.path()), "s").await;
    log.append_many(100, 1_000).await;
    drop(log);
    // The newest commit is in the log before the database only.
    let store = open(live.path());
    Log::create(&store, "t").await;
    for (name, damage) in damages {
        let directory = folder();
        for file in ["rejoin.db", "rejoin.db-wal"] {
            fs::copy(live.path().join(file), directory.path().join(file)).unwrap();
        }
        let path = directory.path().join("rejoin.db");
        damage(&path);
        let read = || {
            ["", "-wal"].map(|end| fs::read(path.with_file_name(format!("rejoin.db{end}"))).ok())
        };
        let before = read();
        for _ in 0..2 {
            let error = refused(directory.path());
            assert!(matches!(error, OpenError::Damaged { .. }), "{name}: {error:?}");
            says(&error, directory.path(), &["is damaged", "restore"]);
        }
        assert!(read() == before, "{name}: it was changed");
    }
}

#[tokio::test]
async fn a_database_that_was_not_finished_is_made_again() {
    let directory = folder();
    for suffix in ["", "-journal"] {
        fs::write(directory.path().join(format!("rejoin.db.new{suffix}")), "half").unwrap();
    }
    let store = open(directory.path());
    Log::create(&store, "s").await;
    assert!(!directory.path().join("rejoin.db.new").exists());
}

#[tokio::test]
async fn a_number_of_lives_that_no_file_has_is_damage() {
    let directory = folder();
    drop(open(directory.path()));
    for lives in [i64::MAX, i64::MIN, i64::MAX >> 40, -5] {
        tamper(directory.path(), &format!("update meta set value = {lives} where key = 'life'"));
        let error = refused(directory.path());
        assert!(matches!(error, OpenError::Damaged { .. }), "{lives}: {error:?}");
    }
}

#[tokio::test]
async fn bytes_that_nobody_can_have_stored_leave_no_room_and_break_nothing() {
    let directory = folder();
    let mut log = Log::create(&open(directory.path()), "s").await;
    log.append("one").await.unwrap();
    let session = log.session;
    drop(log);
    let bytes = i64::MAX;
    tamper(directory.path(), &format!("update principals set bytes = {bytes}"));
    tamper(directory.path(), &format!("update sessions set bytes = {bytes}"));
    tamper(
        directory.path(),
        &format!(
            "insert into principals (key, bytes, sessions, tokens) values (x'{}', {bytes}, 1, 1)",
            "07".repeat(32)
        ),
    );
    let store = open(directory.path());
    assert_eq!(store.usage().await.unwrap().bytes, u64::try_from(bytes).unwrap());
    let loaded = store.load(session).await.unwrap().unwrap();
    let (fence, version) = (loaded.fence, loaded.version);
    let mut log = Log { store, session, fence, version, last: 1 };
    assert!(matches!(log.append("two").await, Err(CommitError::OverQuota(_))));
    log.store.remove(session, fence).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_commit_that_never_was_is_damaged_and_nobody_waits_for_it() {
    let directory = folder();
    let mut log = Log::create(&open(directory.path()), "s").await;
    log.append("one").await.unwrap();
    let session = log.session;
    drop(log);
    tamper(directory.path(), &format!("update sessions set tick = {}", i64::MAX));
    let store = open(directory.path());
    let looked = tokio::time::timeout(std::time::Duration::from_secs(60), store.look(session));
    let error = looked.await.expect("nothing is waited for").unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    let read = store.read(session, STREAM, Seq::ORIGIN, 100).await.unwrap_err();
    assert!(read.to_string().contains("damaged"), "{read}");
}

#[tokio::test]
async fn a_row_with_a_number_larger_than_any_is_damaged() {
    let directory = folder();
    let mut log = Log::create(&open(directory.path()), "s").await;
    let row = Some(Box::new(conformance::row("its own")));
    log.commit(Batch { session: row, ..Batch::default() }).await.unwrap();
    let session = log.session;
    drop(log);
    let change = format!("'$.reserved.seq', json('{}')", u64::MAX);
    tamper(
        directory.path(),
        &format!("update facts set facts = cast(json_set(facts, {change}) as blob)"),
    );
    let error = open(directory.path()).look(session).await.unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn what_is_refused_at_last_is_left_as_it_was_too() {
    let directory = folder();
    drop(open(directory.path()));
    let theirs = rusqlite::Connection::open(directory.path().join("rejoin.db")).unwrap();
    // Its change stays in the log before the database.
    let config = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    theirs.set_db_config(config, true).unwrap();
    theirs.execute_batch("update principals set key = x'00'; update meta set value = -5").unwrap();
    drop(theirs);
    let read =
        || ["", "-wal"].map(|end| fs::read(directory.path().join(format!("rejoin.db{end}"))));
    let before = read().map(Result::unwrap);
    assert!(!before[1].is_empty());
    let error = refused(directory.path());
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert!(read().map(Result::unwrap) == before, "it was changed");
}
