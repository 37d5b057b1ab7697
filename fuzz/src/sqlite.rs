//! The log in a file after its bytes were damaged: it opens or says why not, nothing of it is
//! thrown away, and what the log before the database has lost is lost from the end.

mod log;

use std::fmt::Write as _;
use std::path::Path;

use arbitrary::{Result, Unstructured};
use rejoin_core::effect::Batch;
use rejoin_core::id::{Digest32, Seq, digest};
use rejoin_store::sqlite::SqliteStore;
use rejoin_store::{ReadError, Store as _};
use rusqlite::Connection;
use tokio::runtime::Runtime;

use log::{FILES, Files, STREAMS, TOKENS, files, folder, left, path, sessions, token_key};

/// More damages are no worse.
const DAMAGES_MAX: usize = 8;
const PAGE_BYTES: usize = 4_096;
/// Pages of one reading; a chain that goes on for ever is a finding.
const PAGES_MAX: usize = 200;

/// Something that happens to the bytes of a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip { at: usize, bit: u8 },
    Write { at: usize, byte: u8 },
    Zero { at: usize, bytes: usize },
    Cut { at: usize },
    SwapPages { one: usize, other: usize },
    Remove,
}

/// Numbers that the database holds, by table and column.
const NUMBERS: [(&str, &str); 17] = [
    ("meta", "value"),
    ("principals", "bytes"),
    ("principals", "sessions"),
    ("principals", "tokens"),
    ("sessions", "fence"),
    ("sessions", "version"),
    ("sessions", "last_seq"),
    ("sessions", "bytes"),
    ("sessions", "tick"),
    ("chains", "last"),
    ("chains", "evicted"),
    ("chains", "emptied"),
    ("events", "previous"),
    ("events", "kind"),
    ("tokens", "outcome"),
    ("tokens", "expires_ms"),
    ("tokens", "owner_call"),
];

/// The input chooses what was left, and what happens to it; the other damages are at any place.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let is_moved = input.arbitrary().unwrap_or(false);
    let left = &left()[usize::from(is_moved)];
    let mut damaged = left.files.clone();
    let is_set = input.ratio(1_u8, 3_u8).unwrap_or(false);
    let change = if is_set { number(&mut input).ok() } else { None };
    let mut is_database_whole = change.is_none();
    for _ in 0..DAMAGES_MAX {
        let Ok((file, damage)) = choose(&mut input, &damaged) else { break };
        is_database_whole &= file > 0;
        apply(&mut damaged, file, damage);
    }
    let directory = folder();
    for (file, bytes) in &damaged {
        std::fs::write(path(directory.path(), *file), bytes).expect("the folder can be written");
    }
    if let Some((column, value)) = change {
        set(directory.path(), column, value);
        damaged = files(directory.path());
    }
    let runtime = runtime();
    runtime.block_on(async {
        let found = open_and_use(directory.path(), &damaged).await;
        if !is_database_whole {
            return;
        }
        // The log before the database has sums: what is left of it is its begin.
        match found {
            Some(found) => assert!(left.states.contains(&found), "no state of it was: {found}"),
            None => panic!("the database itself was whole"),
        }
    });
}

fn choose(input: &mut Unstructured<'_>, files: &Files) -> Result<(usize, Damage)> {
    if input.is_empty() {
        return Err(arbitrary::Error::NotEnoughData);
    }
    let file = input.int_in_range(0..=FILES.len() - 1)?;
    let bytes = files.get(&file).map_or(0, Vec::len);
    let at = input.int_in_range(0..=bytes.saturating_sub(1))?;
    let page = |input: &mut Unstructured<'_>| input.int_in_range(0..=bytes / PAGE_BYTES);
    let damage = match input.int_in_range(0..=15_u8)? {
        0..=4 => Damage::Flip { at, bit: input.int_in_range(0..=7)? },
        5..=9 => Damage::Write { at, byte: input.arbitrary()? },
        10..=11 => Damage::Zero { at, bytes: input.int_in_range(1..=PAGE_BYTES)? },
        12 => Damage::Cut { at },
        13..=14 => Damage::SwapPages { one: page(input)?, other: page(input)? },
        _ => Damage::Remove,
    };
    Ok((file, damage))
}

fn number(input: &mut Unstructured<'_>) -> Result<((&'static str, &'static str), i64)> {
    let column = *input.choose(&NUMBERS)?;
    let extremes = [i64::MIN, -1, 0, i64::MAX - 1, i64::MAX];
    let value = if input.arbitrary()? { input.arbitrary()? } else { *input.choose(&extremes)? };
    Ok((column, value))
}

/// Sets a number in the database, if that is still to be had.
fn set(directory: &Path, (table, column): (&str, &str), value: i64) {
    let Ok(connection) = Connection::open(path(directory, 0)) else { return };
    let change = format!("update {table} set {column} = ?1 where typeof({column}) = 'integer'");
    let _refused = connection.execute(&change, [value]);
}

fn apply(files: &mut Files, file: usize, damage: Damage) {
    if matches!(damage, Damage::Remove) {
        files.remove(&file);
    }
    let Some(bytes) = files.get_mut(&file) else { return };
    match damage {
        Damage::Flip { at, bit } => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << bit),
        Damage::Write { at, byte } => bytes.iter_mut().skip(at).take(1).for_each(|b| *b = byte),
        Damage::Zero { at, bytes: count } => {
            bytes.iter_mut().skip(at).take(count).for_each(|byte| *byte = 0);
        }
        Damage::Cut { at } => bytes.truncate(at),
        Damage::SwapPages { one, other } => {
            let (low, high) = (one.min(other) * PAGE_BYTES, one.max(other) * PAGE_BYTES);
            if low < high && high + PAGE_BYTES <= bytes.len() {
                let (before, after) = bytes.split_at_mut(high);
                before[low..low + PAGE_BYTES].swap_with_slice(&mut after[..PAGE_BYTES]);
            }
        }
        Damage::Remove => {}
    }
}

fn runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().expect("a runtime can be made")
}

/// Opens what is there, reads everything and goes on with it, twice. What could be read, if it
/// opened and all of it could.
async fn open_and_use(directory: &Path, damaged: &Files) -> Option<String> {
    let store = match SqliteStore::open(directory, log::options()) {
        Ok(store) => store,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(kept(&files(directory)), kept(damaged), "refused, but changed: {error}");
            return None;
        }
    };
    let found = read_all(&store).await.ok();
    go_on(&store).await;
    drop(store);
    if let Ok(store) = SqliteStore::open(directory, log::options()) {
        // What can be read may be less than before, but it is told.
        let _told = read_all(&store).await;
    }
    found
}

/// Sizes and sums of the files that hold something: an empty log is as good as none. What is in the
/// third one is made anew by whoever opens.
fn kept(files: &Files) -> Vec<(&'static str, usize, Digest32)> {
    let filled = files.iter().filter(|(file, bytes)| **file < 2 && !bytes.is_empty());
    filled.map(|(file, bytes)| (FILES[*file], bytes.len(), digest(bytes))).collect()
}

/// Everything that the store has of the sessions, as text: but fences and epochs, which each start
/// changes.
async fn read_all(store: &SqliteStore) -> std::result::Result<String, String> {
    let mut text = String::new();
    let known = store.sessions(None, 10).await.map_err(told)?;
    for session in sessions().into_iter().filter(|session| known.contains(session)) {
        let Some(loaded) = store.look(session).await.map_err(told)? else { continue };
        let rows = (&loaded.row, &loaded.calls, &loaded.streams, &loaded.tails);
        let _infallible = writeln!(text, "{:?} {:?} {rows:?}", loaded.version, loaded.last_seq);
        for stream in STREAMS {
            let mut after = Seq::ORIGIN;
            for pages in 0.. {
                assert!(pages < PAGES_MAX, "a stream without an end");
                let page = store.read(session, stream, after, 4_000).await.map_err(told)?;
                for event in &page.events {
                    let part = store.read_part(session, stream, event.seq, 1, 50).await;
                    let part = part.map_err(told)?;
                    let _infallible = writeln!(text, "{event:?} {:?} {part:?}", event.payload);
                }
                after = page.next(after);
                if !page.more {
                    break;
                }
            }
            let seqs = store.seqs(session, stream, Seq::ORIGIN).await.map_err(told)?;
            let _infallible = writeln!(text, "{seqs:?}");
        }
        for name in TOKENS {
            let token = store.token(token_key(session, name)).await.map_err(told)?;
            let _infallible = writeln!(text, "{token:?}");
        }
    }
    Ok(text)
}

/// An error says what it is.
fn told(error: impl std::error::Error) -> String {
    let text = error.to_string();
    assert!(!text.is_empty());
    text
}

/// Whatever was damaged, the next writes are made or refused.
async fn go_on(store: &SqliteStore) {
    for session in sessions() {
        let Ok(Some(loaded)) = store.load(session).await else { continue };
        let batch = Batch { calls: vec![log::call(90)], durable: true, ..Batch::default() };
        if let Ok(version) = store.commit(session, loaded.fence, loaded.version, batch).await {
            assert!(version > loaded.version);
        }
        match store.read(session, STREAMS[0], Seq(1), 100).await {
            Ok(_) | Err(ReadError::UnknownSession | ReadError::Damaged { .. }) => {}
            Err(error) => drop(told(error)),
        }
    }
    if let Ok(opened) = store.create([5; 32], [6; 32]).await {
        let _told = store.remove([5; 32], opened.fence).await.map_err(told);
    }
    let _told = store.expire(1, 100).await.map_err(told);
    let _told = store.usage().await.map_err(told);
}
