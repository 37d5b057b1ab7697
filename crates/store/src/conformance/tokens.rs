//! Dedup tokens: claimed once across sessions, replaced by their owner, expired in time.

use std::sync::Arc;

use rejoin_core::effect::DedupWrite;
use rejoin_core::id::Seq;
use rejoin_core::token::{DedupRecord, Outcome};

use super::writer::{STREAM, Writer, dedup, finished, key, record};
use crate::contract::{Expired, Store};
use crate::error::CommitError;

fn taken(result: Result<(), CommitError>) -> DedupRecord {
    match result {
        Err(CommitError::TokenTaken { record, .. }) => *record,
        other => panic!("the token was not taken: {other:?}"),
    }
}

async fn row(store: &Arc<dyn Store>, token: &str) -> Option<DedupRecord> {
    store.token(key(token)).await.expect("it is looked up")
}

/// Another session's row comes back with its result, and nothing of the batch is applied.
pub async fn a_taken_token_refuses_the_batch(store: Arc<dyn Store>) {
    let mut first = Writer::create(&store, "first").await;
    let mut second = Writer::create(&store, "second").await;
    let response = vec![b'r'; 100_000];
    let done = record(first.owner(1), finished(&response));
    let claim = DedupWrite { record: done.clone(), ..first.claim("t", 1) };
    first.commit(dedup([claim])).await.expect("it is claimed");
    let event = second.note(STREAM, b"x");
    let mut batch = dedup([second.claim("u", 7), second.claim("t", 7)]);
    batch.events.push(event);
    assert_eq!(taken(second.commit(batch).await), done);
    assert_eq!(row(&store, "t").await, Some(done.clone()));
    assert_eq!(row(&store, "u").await, None);
    assert!(second.contents(STREAM, Seq::ORIGIN).await.is_empty());
    assert_eq!(taken(first.commit(dedup([first.claim("t", 2)])).await), done, "its own too");
}

/// Compare-and-swap on the owner, not on what it wrote.
pub async fn a_row_is_replaced_by_its_owner_only(store: Arc<dyn Store>) {
    let mut first = Writer::create(&store, "first").await;
    let mut second = Writer::create(&store, "second").await;
    first.commit(dedup([first.claim("t", 1)])).await.expect("it is claimed");
    let over = |expected, record: DedupRecord| {
        dedup([DedupWrite { key: key("t"), expected: Some(expected), record }])
    };
    let running = record(first.owner(1), Outcome::Running);
    for wrong in [first.owner(2), second.owner(1)] {
        let batch = over(wrong, record(second.owner(1), Outcome::Running));
        assert_eq!(taken(second.commit(batch).await), running);
    }
    let done = record(first.owner(1), finished(b"first"));
    first.commit(over(first.owner(1), done.clone())).await.expect("its owner replaces it");
    assert_eq!(row(&store, "t").await, Some(done));
    let superseded = record(second.owner(4), Outcome::Running);
    second.commit(over(first.owner(1), superseded.clone())).await.expect("it is superseded");
    let late = over(first.owner(1), record(first.owner(1), Outcome::Unknown));
    assert_eq!(taken(first.commit(late).await), superseded);
    let gone = DedupWrite {
        key: key("gone"),
        expected: Some(first.owner(1)),
        record: record(first.owner(1), Outcome::Unknown),
    };
    first.commit(dedup([gone])).await.expect("a row that expired refuses nothing");
    assert!(row(&store, "gone").await.is_some());
}

/// What a batch wrote is what its next write finds.
pub async fn writes_of_one_batch_follow_each_other(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let twice = dedup([writer.claim("t", 1), writer.claim("t", 2)]);
    let first = record(writer.owner(1), Outcome::Running);
    assert_eq!(taken(writer.commit(twice).await), first);
    assert_eq!(row(&store, "t").await, None);
    let done = record(writer.owner(1), finished(b"r"));
    let finish =
        DedupWrite { key: key("t"), expected: Some(writer.owner(1)), record: done.clone() };
    writer.commit(dedup([writer.claim("t", 1), finish])).await.expect("it is committed");
    assert_eq!(row(&store, "t").await, Some(done));
}

/// A claim that was released is open to anyone.
pub async fn a_freed_token_is_free(store: Arc<dyn Store>) {
    let mut first = Writer::create(&store, "first").await;
    let mut second = Writer::create(&store, "second").await;
    first.commit(dedup([first.claim("t", 1)])).await.expect("it is claimed");
    let freed = DedupWrite {
        key: key("t"),
        expected: Some(first.owner(1)),
        record: record(first.owner(1), Outcome::Freed),
    };
    first.commit(dedup([freed.clone()])).await.expect("it is freed");
    assert_eq!(row(&store, "t").await, None);
    second.commit(dedup([second.claim("t", 1)])).await.expect("it is claimed again");
    let running = record(second.owner(1), Outcome::Running);
    assert_eq!(taken(first.commit(dedup([freed])).await), running);
    let free = DedupWrite {
        key: key("t"),
        expected: Some(second.owner(1)),
        record: record(second.owner(1), Outcome::Freed),
    };
    let claim = second.claim("t", 2);
    second.commit(dedup([free, claim])).await.expect("freed and claimed in one batch");
    assert_eq!(row(&store, "t").await, Some(record(second.owner(2), Outcome::Running)));
}

/// Results go at their time, all else stays until the row goes.
pub async fn results_expire_to_tombstones_then_to_nothing(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let outcomes = [
        ("finished", finished(b"r"), Outcome::Tombstone),
        ("running", Outcome::Running, Outcome::Running),
        ("cancelled", Outcome::Cancelled, Outcome::Cancelled),
        ("unknown", Outcome::Unknown, Outcome::Unknown),
    ];
    for (token, before, _) in &outcomes {
        let record = record(writer.owner(1), before.clone());
        let write = DedupWrite { record, ..writer.claim(token, 1) };
        writer.commit(dedup([write])).await.expect("it is written");
    }
    let early = store.expire(999, 100).await.expect("it expires");
    assert_eq!(early, Expired::default());
    let results = store.expire(1_000, 100).await.expect("it expires");
    assert_eq!(results, Expired { tombstones: 1, forgotten: 0, more: false });
    for (token, _, after) in &outcomes {
        let record = record(writer.owner(1), after.clone());
        assert_eq!(row(&store, token).await, Some(record), "{token}");
    }
    let refused = writer.commit(dedup([writer.claim("finished", 2)])).await;
    assert_eq!(taken(refused).outcome, Outcome::Tombstone, "a tombstone is no room");
    let again = store.expire(1_999, 100).await.expect("it expires");
    assert_eq!(again, Expired::default());
    let rows = store.expire(2_000, 100).await.expect("it expires");
    assert_eq!(rows, Expired { tombstones: 0, forgotten: 4, more: false });
    for (token, ..) in &outcomes {
        assert_eq!(row(&store, token).await, None, "{token}");
    }
    writer.commit(dedup([writer.claim("finished", 2)])).await.expect("forgotten is new");
}

/// No more rows than asked for, and a word that there are more.
pub async fn expiry_is_worked_off_in_parts(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    for number in 0..25 {
        let write = writer.claim(&format!("t{number}"), number);
        writer.commit(dedup([write])).await.expect("it is claimed");
    }
    for (forgotten, more) in [(10, true), (10, true), (5, false), (0, false)] {
        let part = store.expire(2_000, 10).await.expect("it expires");
        assert_eq!(part, Expired { tombstones: 0, forgotten, more });
    }
    assert_eq!(store.usage().await.expect("it is counted").tokens, 0);
}
