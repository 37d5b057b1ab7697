//! Quotas: kept, and never in the way of saying that they are used up.

use std::sync::Arc;

use bytes::Bytes;
use rejoin_core::effect::{Batch, DedupWrite, Event};
use rejoin_core::id::{Seq, digest};
use rejoin_core::ledger::Phase;
use rejoin_core::token::Outcome;

use super::writer::{STREAM, Writer, call, dedup, events, finished, key, principal, record};
use crate::contract::{END_BYTES_MAX, Quota, Store};
use crate::error::{CommitError, CreateError, OverQuota, QuotaScope};

/// Room for 10 events of 100,000 bytes of one principal, and for 15 in all.
pub const NARROW: Quota = Quota { principal_bytes_max: 1_090_000, total_bytes_max: 1_590_000 };

/// Overheads of an event are far below 5 % of it.
const EVENT_BYTES: usize = 100_000;

/// Appends until a quota refuses; returns how many events fitted and which quota it was.
async fn fill(writer: &mut Writer) -> (usize, OverQuota) {
    for count in 0..100 {
        let event = writer.note(STREAM, &[b'x'; EVENT_BYTES]);
        let (seq, previous) = (event.seq, event.previous);
        match writer.commit(events([event])).await {
            Ok(()) => {}
            Err(CommitError::OverQuota(full)) => {
                writer.forget(STREAM, seq, previous);
                return (count, full);
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the quota was not kept");
}

/// A principal's quota covers all its sessions and nobody else's.
pub async fn a_full_principal_refuses_itself_only(store: Arc<dyn Store>) {
    let mut alice = Writer::create_for(&store, "a1", "alice").await;
    let mut second = Writer::create_for(&store, "a2", "alice").await;
    let (count, full) = fill(&mut alice).await;
    assert_eq!((count, full.scope, full.bytes_max), (10, QuotaScope::Principal, 1_090_000));
    assert!(full.used_bytes >= 1_000_000 && full.added_bytes >= 100_000, "{full:?}");
    assert_eq!(fill(&mut second).await.0, 0);
    let usage = store.principal_usage(principal("alice")).await.expect("it is counted");
    assert_eq!(usage.bytes, full.used_bytes);
    let mut bob = Writer::create_for(&store, "b", "bob").await;
    bob.append(STREAM, &["bob has room"]).await;
    alice.evict(STREAM, 105, true).await;
    assert_eq!(fill(&mut second).await.0, 5, "what is evicted is room again");
}

/// The total quota binds everybody, and new sessions.
pub async fn a_full_store_refuses_all(store: Arc<dyn Store>) {
    let mut alice = Writer::create_for(&store, "a", "alice").await;
    let mut bob = Writer::create_for(&store, "b", "bob").await;
    assert_eq!(fill(&mut alice).await.0, 10);
    let (count, full) = fill(&mut bob).await;
    assert_eq!((count, full.scope), (5, QuotaScope::Total));
    let left = (full.bytes_max - full.used_bytes) as usize;
    let rest = bob.note(STREAM, &vec![b'x'; left - 2_000]);
    bob.commit(events([rest])).await.expect("what fits is appended");
    for size in [END_BYTES_MAX; 2] {
        let end = Event { last: true, ..bob.note(STREAM, &vec![b'x'; size]) };
        bob.commit(events([end])).await.expect("an end is always admitted");
    }
    let refused = store.create(digest(b"c"), principal("carol")).await;
    let Err(CreateError::OverQuota(full)) = refused else { panic!("{refused:?}") };
    assert_eq!(full.scope, QuotaScope::Total);
    assert!(store.load(digest(b"c")).await.expect("it is looked up").is_none());
    store.remove(alice.session, alice.fence).await.expect("it is removed");
    store.create(digest(b"c"), principal("carol")).await.expect("there is room again");
}

/// Ledger rows, evictions, short ends and short outcomes get through.
pub async fn what_is_full_can_still_say_so(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    writer.commit(dedup([writer.claim("t", 1)])).await.expect("it is claimed");
    fill(&mut writer).await;
    let left = writer.note(STREAM, &[b'x'; 80_000]);
    writer.commit(events([left])).await.expect("what fits is appended");
    for count in 0.. {
        assert!(count < 1_000, "the quota was not kept");
        let event = writer.note(STREAM, &[b'x'; 100]);
        let (seq, previous) = (event.seq, event.previous);
        if writer.commit(events([event])).await.is_err() {
            writer.forget(STREAM, seq, previous);
            break;
        }
    }
    let rows = Batch { calls: vec![call(1, Phase::Unknown)], ..Batch::default() };
    writer.commit(rows).await.expect("ledger rows are admitted");
    let refused = writer.commit(dedup([writer.claim("new", 2)])).await;
    assert!(matches!(refused, Err(CommitError::OverQuota(_))), "{refused:?}");
    let outcome = |size: usize| DedupWrite {
        key: key("t"),
        expected: Some(writer.owner(1)),
        record: record(writer.owner(1), finished(&vec![b'r'; size])),
    };
    let (long, short) = (outcome(END_BYTES_MAX + 1), outcome(END_BYTES_MAX));
    let refused = writer.commit(dedup([long])).await;
    assert!(matches!(refused, Err(CommitError::OverQuota(_))), "{refused:?}");
    let end = Event { last: true, ..writer.note(STREAM, &[b'x'; END_BYTES_MAX]) };
    for refused in [
        Event { last: false, ..end.clone() },
        Event { payload: Bytes::from(vec![b'x'; END_BYTES_MAX + 1]), ..end.clone() },
    ] {
        let refused = writer.commit(events([refused])).await;
        assert!(matches!(refused, Err(CommitError::OverQuota(_))), "{refused:?}");
    }
    let mut batch = events([end]);
    batch.dedup.push(short);
    writer.commit(batch).await.expect("a short end and outcome are admitted");
    let row = store.token(key("t")).await.expect("it is looked up").expect("it is there");
    assert!(matches!(row.outcome, Outcome::Finished { .. }));
    writer.evict(STREAM, u64::MAX, true).await;
    assert!(writer.contents(STREAM, Seq::ORIGIN).await.is_empty());
}

/// However often a batch is refused, nothing of it counts.
pub async fn refused_bytes_are_not_kept(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    fill(&mut writer).await;
    let before = store.usage().await.expect("it is counted");
    for _ in 0..50 {
        assert_eq!(fill(&mut writer).await.0, 0);
    }
    assert_eq!(store.usage().await.expect("it is counted"), before);
}
