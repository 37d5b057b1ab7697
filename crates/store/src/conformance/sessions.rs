//! Sessions: created, loaded, fenced, removed.

use std::sync::Arc;

use rejoin_core::effect::{Batch, Event, EventKind};
use rejoin_core::id::{CallId, Seq, StreamId, digest};
use rejoin_core::ledger::Phase;
use rejoin_core::session::{Continuation, Tail};
use rejoin_core::stream::StreamState;

use super::writer::{
    STREAM, Writer, call, dedup, events, finished, key, principal, record, row, stream,
};
use crate::contract::Store;
use crate::error::{CommitError, CreateError, ReadError, RemoveError};

/// An id is never shared, and one that is not there is no error.
pub async fn a_session_is_created_once(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let again = store.create(writer.session, principal("anyone else")).await;
    assert!(matches!(again, Err(CreateError::Exists)), "{again:?}");
    writer.append(STREAM, &["still its owner"]).await;
    assert!(store.load(digest(b"nobody")).await.expect("it is looked up").is_none());
    assert_eq!(store.usage().await.expect("it is counted").sessions, 1);
}

/// Calls, streams, principal and the last number come back as they were committed.
pub async fn what_was_committed_is_loaded(store: Arc<dyn Store>) {
    let mut writer = Writer::create_for(&store, "s", "alice").await;
    let fresh = store.load(writer.session).await.expect("it loads").expect("it is there");
    assert_eq!((fresh.version, fresh.last_seq), (writer.version, Seq::ORIGIN));
    assert!(fresh.calls.is_empty() && fresh.streams.is_empty() && fresh.tails.is_empty());
    assert!(fresh.row.is_none(), "nothing was committed");
    writer.fence = fresh.fence;
    let event = writer.note(STREAM, b"e");
    let last_seq = event.seq;
    let batch = Batch {
        events: vec![event],
        calls: vec![call(2, Phase::Sent), call(1, Phase::Finished)],
        streams: vec![stream(STREAM, StreamState::Live), stream(StreamId(1), StreamState::Owed)],
        session: Some(Box::new(row("as it is"))),
        durable: true,
        ..Batch::default()
    };
    writer.commit(batch).await.expect("it is committed");
    let loaded = store.load(writer.session).await.expect("it loads").expect("it is there");
    assert_eq!((loaded.version, loaded.last_seq), (writer.version, last_seq));
    assert_eq!(loaded.principal, principal("alice"));
    let calls: Vec<_> = loaded.calls.iter().map(|call| (call.id, call.phase)).collect();
    assert_eq!(calls, [(CallId(1), Phase::Finished), (CallId(2), Phase::Sent)]);
    assert_eq!(loaded.calls[0].request_id, "\"a\"");
    let cursors: Vec<_> = loaded.calls.iter().map(|call| call.upstream_cursor.as_deref()).collect();
    assert_eq!(cursors, [Some("at 7"); 2], "where the server's streams stand");
    let streams: Vec<_> = loaded.streams.iter().map(|stream| (stream.id, stream.state)).collect();
    assert_eq!(streams, [(StreamId(1), StreamState::Owed), (STREAM, StreamState::Live)]);
    let own = loaded.row.map(|row| (row.origin, row.continuation));
    assert_eq!(own, Some(("as it is".into(), Some(Continuation::new("go on")))));
    let tail = Tail { stream: STREAM, produced: last_seq, bytes: 1, response_bytes: 0 };
    assert_eq!(loaded.tails, [tail]);
    writer.fence = loaded.fence;
    writer.evict(STREAM, u64::MAX, true).await;
    let evicted = store.load(writer.session).await.expect("it loads").expect("it is there");
    assert_eq!(evicted.last_seq, last_seq, "evictions do not lower it");
    assert_eq!(evicted.tails, [Tail { bytes: 0, ..tail }]);
    assert_eq!(evicted.row.map(|row| row.origin), Some("as it is".into()));
}

/// The log goes further than the rows of its streams: a load tells how far, and what is kept.
pub async fn a_load_tells_how_far_each_stream_goes(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    writer.append(STREAM, &["1", "22", "333"]).await;
    let answer = Event { kind: EventKind::Response, ..writer.note(STREAM, b"4444") };
    writer.commit(events([answer])).await.expect("it is committed");
    writer.append(StreamId(1), &["55555"]).await;
    let _watched = store.watch(writer.session, StreamId(9)).await.expect("it is watched");
    writer.evict(STREAM, 102, false).await;
    let tails = store.load(writer.session).await.expect("it loads").expect("it is there").tails;
    let tail = |stream, produced, bytes, response_bytes| Tail {
        stream,
        produced: Seq(produced),
        bytes,
        response_bytes,
    };
    assert_eq!(tails, [tail(StreamId(1), 105, 5, 0), tail(STREAM, 104, 7, 4)]);
}

/// All sessions can be walked through in parts, and no other.
pub async fn sessions_are_listed_in_parts(store: Arc<dyn Store>) {
    let mut keys = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        keys.push(Writer::create(&store, name).await.session);
    }
    let gone = Writer::create(&store, "gone").await;
    store.remove(gone.session, gone.fence).await.expect("it is removed");
    keys.sort_unstable();
    let mut listed = Vec::new();
    loop {
        let part = store.sessions(listed.last().copied(), 2).await.expect("they are listed");
        let is_last = part.len() < 2;
        listed.extend(part);
        if is_last {
            break;
        }
    }
    assert_eq!(listed, keys);
}

/// Of several owners only the newest writes or removes; readers are not affected.
pub async fn a_load_fences_every_older_owner(store: Arc<dyn Store>) {
    let mut first = Writer::create(&store, "s").await;
    first.append(STREAM, &["1"]).await;
    let second = store.load(first.session).await.expect("it loads").expect("it is there");
    let third = store.load(first.session).await.expect("it loads").expect("it is there");
    assert!(first.fence < second.fence && second.fence < third.fence);
    for fence in [first.fence, second.fence] {
        first.fence = fence;
        let event = first.note(STREAM, b"late");
        let refused = first.commit(events([event])).await;
        assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
        let refused = first.commit(Batch::default()).await;
        assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
        let refused = store.remove(first.session, fence).await;
        assert!(matches!(refused, Err(RemoveError::Fenced)), "{refused:?}");
    }
    assert_eq!(first.contents(STREAM, Seq::ORIGIN).await, [(101, "1".into())]);
    let mut event = first.note(STREAM, b"2");
    event.previous = Seq(101);
    let batch = events([event]);
    let version = store.commit(first.session, third.fence, third.version, batch).await;
    assert_eq!(version.expect("the newest owner commits"), third.version.next());
}

/// Each is fenced and comes in its place; one that is not there takes no other with it.
pub async fn several_are_loaded_as_each_is_alone(store: Arc<dyn Store>) {
    let mut writers = Vec::new();
    for (name, text) in [("a", "1"), ("b", "22"), ("c", "333")] {
        let mut writer = Writer::create_for(&store, name, name).await;
        writer.append(STREAM, &[text]).await;
        writers.push(writer);
    }
    let mut keys: Vec<_> = writers.iter().map(|writer| writer.session).collect();
    keys.insert(1, digest(b"nobody"));
    let mut loaded = store.load_all(keys).await.expect("they load");
    assert!(loaded.remove(1).expect("it is looked up").is_none());
    for (writer, (loaded, name)) in writers.iter_mut().zip(loaded.into_iter().zip(["a", "b", "c"]))
    {
        let loaded = loaded.expect("it loads").expect("it is there");
        assert_eq!((loaded.principal, loaded.version), (principal(name), writer.version));
        assert_eq!(
            loaded.tails[0].bytes,
            writer.contents(STREAM, Seq::ORIGIN).await[0].1.len() as u64
        );
        let refused = writer.commit(Batch::default()).await;
        assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
        writer.fence = loaded.fence;
        writer.append(STREAM, &["its newest owner's"]).await;
    }
    assert!(store.load_all(Vec::new()).await.expect("nothing is no error").is_empty());
}

/// Nothing of a session is left but the rows that keep its calls from running again.
pub async fn a_removed_session_is_unknown_and_its_tokens_stay(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    writer.append(STREAM, &["1"]).await;
    writer.commit(dedup([writer.claim("t", 1)])).await.expect("it is claimed");
    let (session, fence) = (writer.session, writer.fence);
    store.remove(session, fence).await.expect("it is removed");
    store.remove(session, fence).await.expect("again changes nothing");
    assert!(store.load(session).await.expect("it is looked up").is_none());
    let unknown = store.read(session, STREAM, Seq::ORIGIN, 1).await;
    assert!(matches!(unknown, Err(ReadError::UnknownSession)), "{unknown:?}");
    let unknown = store.read_one(session, STREAM, Seq(101)).await;
    assert!(matches!(unknown, Err(ReadError::UnknownSession)), "{unknown:?}");
    let unknown = store.watch(session, STREAM).await;
    assert!(matches!(unknown, Err(ReadError::UnknownSession)), "{unknown:?}");
    let unknown = writer.commit(Batch::default()).await;
    assert!(matches!(unknown, Err(CommitError::UnknownSession)), "{unknown:?}");
    let row = store.token(key("t")).await.expect("it is looked up").expect("the row stays");
    assert_eq!(row.owner, writer.owner(1));
}

/// Evictions, removals and expiry leave nothing behind that is counted.
pub async fn everything_is_given_back(store: Arc<dyn Store>) {
    let mut writer = Writer::create_for(&store, "s", "alice").await;
    writer.append(STREAM, &["x".repeat(10_000).as_str(); 10]).await;
    let full = store.usage().await.expect("it is counted");
    assert!(full.bytes >= 100_000, "{full:?}");
    assert!(full.memory_bytes + full.spilled_bytes <= full.bytes, "{full:?}");
    writer.evict(STREAM, 105, false).await;
    let half = store.usage().await.expect("it is counted");
    assert_eq!(half.bytes * 2, full.bytes);
    let mut write = writer.claim("t", 1);
    write.record = record(writer.owner(1), finished(&[b'r'; 5_000]));
    writer.commit(dedup([write])).await.expect("it is committed");
    let mine = store.principal_usage(principal("alice")).await.expect("it is counted");
    assert!(mine.bytes >= half.bytes + 5_000, "a token's result counts: {mine:?}");
    assert_eq!(mine.sessions, 1);
    store.remove(writer.session, writer.fence).await.expect("it is removed");
    let mine = store.principal_usage(principal("alice")).await.expect("it is counted");
    assert!(mine.bytes >= 5_000 && mine.bytes < 10_000, "{mine:?}");
    assert_eq!(mine.sessions, 0);
    store.expire(u64::MAX, 10).await.expect("it expires");
    assert_eq!(store.usage().await.expect("it is counted"), Default::default());
    let mine = store.principal_usage(principal("alice")).await.expect("it is counted");
    assert_eq!(mine, Default::default());
}
