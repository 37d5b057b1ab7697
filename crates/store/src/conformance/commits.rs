//! Commits: all or nothing, at the right version, without holes.

use std::sync::Arc;

use rejoin_core::effect::{Batch, Event};
use rejoin_core::id::{CallId, Seq, StreamId};
use rejoin_core::ledger::Phase;
use rejoin_core::stream::StreamState;

use super::writer::{ALL, STREAM, Writer, call, dedup, events, key, stream};
use crate::contract::{Store, Version};
use crate::error::CommitError;

/// A batch computed from an older or an invented state is refused, and learns the newest version.
pub async fn a_stale_version_is_refused(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let first = writer.version;
    writer.append(STREAM, &["1", "2"]).await;
    let newest = writer.version;
    assert_eq!(newest, first.next().next());
    for version in [first, Version(newest.0 - 1), newest.next()] {
        writer.version = version;
        let batch = Batch { calls: vec![call(1, Phase::Sent)], ..Batch::default() };
        match writer.commit(batch).await {
            Err(CommitError::StaleVersion { expected, actual }) => {
                assert_eq!((expected, actual), (version, newest));
            }
            other => panic!("{version:?} was not refused: {other:?}"),
        }
    }
    let loaded = store.load(writer.session).await.expect("it loads").expect("it is there");
    assert!(loaded.calls.is_empty());
    assert_eq!(loaded.version, newest);
}

/// `previous` must be the stream's last event and `seq` must grow over the session.
pub async fn an_event_that_does_not_follow_is_refused(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    writer.append(STREAM, &["101"]).await;
    writer.append(StreamId(0), &["102"]).await;
    let event = writer.note(STREAM, b"x");
    assert_eq!((event.seq, event.previous), (Seq(103), Seq(101)));
    let with = |seq, previous| Event { seq: Seq(seq), previous: Seq(previous), ..event.clone() };
    for previous in [0, 100, 102, 103] {
        let refused = writer.commit(events([with(103, previous)])).await;
        let Err(CommitError::Gap { stream, expected_previous, previous: named }) = refused else {
            panic!("{previous} was not refused: {refused:?}");
        };
        assert_eq!((stream, expected_previous, named), (STREAM, Seq(101), Seq(previous)));
    }
    for seq in [0, 1, 101, 102] {
        let refused = writer.commit(events([with(seq, 101)])).await;
        let Err(CommitError::Backwards { last_seq, seq: named }) = refused else {
            panic!("{seq} was not refused: {refused:?}");
        };
        assert_eq!((last_seq, named), (Seq(102), Seq(seq)));
    }
    let new = Event { stream: StreamId(9), ..with(103, 101) };
    let refused = writer.commit(events([new])).await;
    assert!(matches!(refused, Err(CommitError::Gap { expected_previous: Seq::ORIGIN, .. })));
    for (second, previous) in [(104, 101), (103, 103), (104, 104)] {
        let refused = writer.commit(events([with(103, 101), with(second, previous)])).await;
        assert!(refused.is_err(), "{second} after {previous} was not refused");
    }
    let chained = events([with(103, 101), with(107, 103)]);
    writer.commit(chained).await.expect("numbers may be skipped, events may not");
    writer.evict(STREAM, 107, true).await;
    let refused = writer.commit(events([with(108, 0)])).await;
    assert!(matches!(refused, Err(CommitError::Gap { expected_previous: Seq(107), .. })));
    writer.commit(events([with(108, 107)])).await.expect("evictions do not shorten the chain");
}

/// One part that does not hold keeps all others out, and nobody is woken.
pub async fn a_refused_batch_leaves_no_trace(store: Arc<dyn Store>) {
    let mut other = Writer::create(&store, "other").await;
    other.commit(dedup([other.claim("taken", 1)])).await.expect("it is claimed");
    let mut writer = Writer::create(&store, "s").await;
    writer.append(STREAM, &["1"]).await;
    let (version, watch) = (writer.version, store.watch(writer.session, STREAM).await);
    let before = store.usage().await.expect("it is counted");
    let event = writer.note(STREAM, b"2");
    let whole = Batch {
        events: vec![event.clone()],
        dedup: vec![writer.claim("free", 1)],
        calls: vec![call(1, Phase::Claimed)],
        streams: vec![stream(STREAM, StreamState::Live)],
        ..Batch::default()
    };
    let mut taken = whole.clone();
    taken.dedup.push(writer.claim("taken", 1));
    let mut torn = whole.clone();
    torn.events.push(Event { seq: Seq(200), previous: Seq(150), ..event });
    for refused in [taken, torn] {
        assert!(writer.commit(refused).await.is_err());
        assert_eq!(writer.contents(STREAM, Seq::ORIGIN).await, [(101, "1".into())]);
        assert!(store.token(key("free")).await.expect("it is looked up").is_none());
        assert_eq!(store.usage().await.expect("it is counted"), before);
    }
    assert_eq!(watch.expect("it is watched").last(), Seq(101));
    assert_eq!(writer.version, version);
    writer.commit(whole).await.expect("the same batch without the fault is committed");
    let loaded = store.load(writer.session).await.expect("it loads").expect("it is there");
    assert_eq!((loaded.calls.len(), loaded.streams.len()), (1, 1));
    assert_eq!((loaded.version, loaded.last_seq), (version.next(), Seq(102)));
}

/// An empty batch only checks fence and version.
pub async fn an_empty_batch_changes_nothing(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let version = writer.version;
    writer.commit(Batch::default()).await.expect("it is checked");
    assert_eq!(writer.version, version);
    let nobody = store.commit([9; 32], writer.fence, version, Batch::default()).await;
    assert!(matches!(nobody, Err(CommitError::UnknownSession)), "{nobody:?}");
    writer.append(STREAM, &["1"]).await;
}

/// The last row of a number is what is loaded; others stay.
pub async fn a_ledger_row_is_replaced(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    for phase in [Phase::Claimed, Phase::Sent, Phase::Unknown] {
        let calls = vec![call(2, phase)];
        writer.commit(Batch { calls, ..Batch::default() }).await.expect("it is committed");
    }
    let calls = vec![call(1, Phase::Sent)];
    writer.commit(Batch { calls, ..Batch::default() }).await.expect("it is committed");
    let loaded = store.load(writer.session).await.expect("it loads").expect("it is there");
    let calls: Vec<_> = loaded.calls.iter().map(|call| (call.id, call.phase)).collect();
    assert_eq!(calls, [(CallId(1), Phase::Sent), (CallId(2), Phase::Unknown)]);
    let page = store.read(writer.session, STREAM, Seq::ORIGIN, ALL).await.expect("it is read");
    assert!(page.events.is_empty() && page.gap.is_none() && !page.more);
}

/// Forgotten rows are not loaded, and a forgotten stream's events are gone with it.
pub async fn forgotten_rows_are_gone(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let calls = vec![call(1, Phase::Sent), call(2, Phase::Sent)];
    let streams = [STREAM, StreamId(9)].map(|id| stream(id, StreamState::Live)).to_vec();
    let batch = Batch { calls, streams, ..Batch::default() };
    writer.commit(batch).await.expect("it is committed");
    writer.append(STREAM, &["1", "2"]).await;
    let batch = Batch {
        forgotten_calls: vec![CallId(1), CallId(77)],
        forgotten_streams: vec![STREAM, StreamId(77)],
        ..Batch::default()
    };
    writer.commit(batch).await.expect("forgetting the unknown is no fault");
    let loaded = store.load(writer.session).await.expect("it loads").expect("it is there");
    assert_eq!(loaded.calls.iter().map(|call| call.id).collect::<Vec<_>>(), [CallId(2)]);
    let streams: Vec<_> = loaded.streams.iter().map(|stream| stream.id).collect();
    assert_eq!(streams, [StreamId(9)]);
    let page = store.read(writer.session, STREAM, Seq::ORIGIN, ALL).await.expect("it is read");
    assert!(page.events.is_empty(), "its events are gone");
}
