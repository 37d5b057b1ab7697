//! What many tasks at once may never see.

use std::sync::Arc;

use rejoin_core::effect::Batch;
use rejoin_core::id::{Seq, StreamId};
use rejoin_core::ledger::Phase;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::writer::{ALL, STREAM, Writer, call, dedup, events, key};
use crate::contract::{SessionKey, Store};
use crate::error::CommitError;

/// Tasks at once.
const TASKS: usize = 32;

/// Of 32 sessions that claim a token at the same time exactly one wins, and all others learn who,
/// and leave nothing behind.
pub async fn one_claim_of_a_token_wins(store: Arc<dyn Store>) {
    let mut writers = Vec::new();
    for number in 0..TASKS {
        writers.push(Writer::create(&store, &format!("s{number}")).await);
    }
    for round in 0..50_u64 {
        let (token, barrier) = (format!("t{round}"), Arc::new(Barrier::new(TASKS)));
        let mut tasks = JoinSet::new();
        for mut writer in writers.drain(..) {
            let (token, barrier) = (token.clone(), Arc::clone(&barrier));
            tasks.spawn(async move {
                let event = writer.note(StreamId(round as u32), b"claimed");
                let mut batch = dedup([writer.claim(&token, round)]);
                (batch.calls, batch.events) = (vec![call(round, Phase::Claimed)], vec![event]);
                barrier.wait().await;
                let result = writer.commit(batch).await;
                (writer, result)
            });
        }
        let (mut winners, mut named) = (Vec::new(), Vec::new());
        for (writer, result) in tasks.join_all().await {
            let written = writer.contents(StreamId(round as u32), Seq::ORIGIN).await.len();
            match result {
                Ok(()) => winners.push(writer.owner(round)),
                Err(CommitError::TokenTaken { record, .. }) => named.push(record.owner),
                Err(other) => panic!("{other:?}"),
            }
            assert_eq!(written, usize::from(winners.last() == Some(&writer.owner(round))));
            writers.push(writer);
        }
        assert_eq!((winners.len(), named.len()), (1, TASKS - 1), "round {round}");
        assert!(named.iter().all(|owner| *owner == winners[0]), "round {round}");
        let row = store.token(key(&token)).await.expect("it is looked up").expect("it is there");
        assert_eq!(row.owner, winners[0]);
    }
}

/// Whoever sees a token finds the events of its commit, and the other way round.
pub async fn a_token_is_never_seen_without_its_events(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let session = writer.session;
    let reader = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let mut done = 0;
            while done < 300 {
                let stream = StreamId(done);
                let token = key(&format!("t{done}"));
                let first = store.token(token).await.expect("it is looked up");
                let page = store.read(session, stream, Seq::ORIGIN, ALL).await.expect("it is read");
                let second = store.token(token).await.expect("it is looked up");
                assert!(first.is_none() || !page.events.is_empty(), "token {done} came first");
                assert!(page.events.is_empty() || second.is_some(), "event {done} came first");
                done += u32::from(second.is_some());
                tokio::task::yield_now().await;
            }
        }
    });
    for number in 0..300_u32 {
        let mut batch = dedup([writer.claim(&format!("t{number}"), 1)]);
        batch.events.push(writer.note(StreamId(number), b"claimed"));
        writer.commit(batch).await.expect("it is claimed");
        tokio::task::yield_now().await;
    }
    reader.await.expect("it sees both or none");
}

/// Batches of eight events are seen as eights.
pub async fn a_batch_is_never_seen_in_part(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let session = writer.session;
    let mut readers = JoinSet::new();
    for _ in 0..4 {
        let store = Arc::clone(&store);
        readers.spawn(async move {
            let mut seen = 0;
            while seen < 8 * 200 {
                let page = store.read(session, STREAM, Seq::ORIGIN, ALL).await.expect("it is read");
                assert!(page.events.len().is_multiple_of(8), "{} events", page.events.len());
                assert!(page.events.len() >= seen, "what was seen is gone");
                seen = page.events.len();
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..200 {
        let mut batch = Batch::default();
        for _ in 0..8 {
            batch.events.push(writer.note(STREAM, b"part"));
            batch.events.push(writer.note(StreamId(0), b"between"));
        }
        writer.commit(batch).await.expect("it is appended");
        tokio::task::yield_now().await;
    }
    readers.join_all().await;
}

/// 32 sessions append while each is read twice; every reader gets every event once, in order.
pub async fn following_readers_miss_nothing(store: Arc<dyn Store>) {
    const EVENTS: usize = 200;
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let mut writer = Writer::create(&store, &format!("s{number}")).await;
        for _ in 0..2 {
            tasks.spawn(follow(Arc::clone(&store), writer.session, number, EVENTS));
        }
        tasks.spawn(async move {
            for count in 0..EVENTS {
                let between = writer.note(StreamId(0), b"another stream");
                let event = writer.note(STREAM, format!("{number} {count}").as_bytes());
                writer.commit(events([between, event])).await.expect("it is appended");
                if count % 16 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    tasks.join_all().await;
}

async fn follow(store: Arc<dyn Store>, session: SessionKey, number: usize, events: usize) {
    let mut watch = store.watch(session, STREAM).await.expect("it is watched");
    let (mut cursor, mut count) = (Seq::ORIGIN, 0);
    while count < events {
        let page = store.read(session, STREAM, cursor, 50).await.expect("it is read");
        assert_eq!(page.gap, None);
        for event in &page.events {
            assert_eq!(event.previous, cursor, "a hole or a duplicate");
            assert_eq!(event.payload, format!("{number} {count}"));
            (cursor, count) = (event.seq, count + 1);
        }
        if !page.more && count < events {
            watch.passed(cursor).await.expect("the session stays");
        }
    }
}

/// A writer that waits for its reader after every event never waits for ever, whoever is faster.
pub async fn no_wake_up_is_lost(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let session = writer.session;
    let mut back = Writer::create(&store, "back").await;
    let mut answers = store.watch(back.session, STREAM).await.expect("it is watched");
    let reader = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for number in 0..500 {
                // A new watch each time: it starts from what is there, not from what comes.
                let mut watch = store.watch(session, STREAM).await.expect("it is watched");
                watch.passed(Seq(100 + number)).await.expect("the session stays");
                back.append(STREAM, &["seen"]).await;
            }
        }
    });
    for number in 0..500 {
        writer.append(STREAM, &["ping"]).await;
        answers.passed(Seq(100 + number)).await.expect("the session stays");
    }
    reader.await.expect("it ends");
}

/// Two owners that think the same version is the newest: one commit is applied.
pub async fn one_commit_of_a_version_wins(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    for round in 0..100 {
        let event = writer.note(STREAM, b"x");
        let (mut tasks, barrier) = (JoinSet::new(), Arc::new(Barrier::new(4)));
        for _ in 0..4 {
            let (store, batch) = (Arc::clone(&store), events([event.clone()]));
            let (session, fence, version) = (writer.session, writer.fence, writer.version);
            let barrier = Arc::clone(&barrier);
            tasks.spawn(async move {
                barrier.wait().await;
                store.commit(session, fence, version, batch).await
            });
        }
        let results = tasks.join_all().await;
        let won = results.iter().filter(|result| result.is_ok()).count();
        let stale =
            |result: &&Result<_, _>| matches!(result, Err(CommitError::StaleVersion { .. }));
        assert_eq!((won, results.iter().filter(stale).count()), (1, 3), "{results:?}");
        writer.version = writer.version.next();
        assert_eq!(writer.contents(STREAM, Seq::ORIGIN).await.len(), round + 1);
    }
}
