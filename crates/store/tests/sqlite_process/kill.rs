//! Killed at any moment: what was acknowledged is there, and nothing in part.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rejoin_core::id::{CallId, Seq};
use rejoin_store::Store;
use rejoin_store::sqlite::SqliteStore;

use crate::Other;
use crate::child::{self, EVENTS, SESSIONS, STREAM, event, session, token};

/// Rounds for each durability.
const ROUNDS: u64 = 8;

/// Lets the other process commit for a while, kills it, and returns the last version of each
/// session that it acknowledged.
pub(crate) fn commit_and_kill(mut other: Other, time: Duration) -> Vec<u64> {
    other.say("endless");
    let mut acked: HashMap<u64, u64> = HashMap::new();
    let mut take = |line: &str| {
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("acked"), "{line}");
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        acked.insert(number(), number());
    };
    let until = Instant::now() + time;
    while Instant::now() < until {
        take(&other.line().expect("it commits"));
    }
    other.kill();
    while let Some(line) = other.line() {
        take(&line);
    }
    (0..SESSIONS).map(|number| acked.get(&number).copied().unwrap_or(0)).collect()
}

/// Checks that a session is whole, and returns its version and last number. `None`: it is gone.
pub(crate) async fn check(store: &Arc<SqliteStore>, number: u64) -> Option<(u64, Seq)> {
    let loaded = store.load(session(number)).await.expect("it loads")?;
    let version = loaded.version.0;
    let calls: Vec<CallId> = loaded.calls.iter().map(|call| call.id).collect();
    assert!(calls.iter().copied().eq((1..=version).map(CallId)), "session {number}: {calls:?}");
    assert_eq!(loaded.streams.iter().map(|stream| stream.opened_ms).max().unwrap_or(0), version);
    let (mut cursor, mut seq) = (Seq::ORIGIN, 0);
    loop {
        let page = store.read(session(number), STREAM, cursor, 100_000).await.expect("it is read");
        for read in &page.events {
            seq += 1;
            assert!(*read == event(number, seq), "event {seq} of session {number} changed");
        }
        cursor = page.next(cursor);
        if !page.more {
            break;
        }
    }
    assert_eq!(seq, version * EVENTS);
    for version in 1..=version + 1 {
        let row = store.token(token(number, version)).await.expect("it is looked up");
        assert_eq!(row.is_some(), version <= loaded.version.0, "token {version} of {number}");
    }
    Some((version, loaded.last_seq))
}

async fn survives_kills(durability: &str) {
    let directory = tempfile::tempdir().expect("the temporary folder can be written");
    for round in 0..ROUNDS {
        // From a few commits to some checkpoints.
        let time = Duration::from_millis(20 + 97 * round * round % 700);
        let acked = commit_and_kill(Other::start(directory.path(), durability, &[]), time);
        let store = child::open(directory.path(), durability);
        for (number, acked) in (0..).zip(acked) {
            let (version, last_seq) = check(&store, number).await.unwrap_or((0, Seq::ORIGIN));
            assert!(version >= acked, "session {number}: acknowledged {acked}, found {version}");
            assert_eq!(last_seq, Seq(version * EVENTS));
        }
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_when_calls_are_synced() {
    survives_kills("calls").await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_when_everything_is_synced() {
    survives_kills("events").await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_killed_process_when_nothing_is_synced() {
    survives_kills("memory").await;
}
