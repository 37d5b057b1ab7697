//! Reads: ordered, whole, bounded, and honest about what was evicted.

use std::sync::Arc;

use rejoin_core::effect::{Event, EventKind};
use rejoin_core::id::{Seq, StreamId};

use super::writer::{ALL, STREAM, Writer, events};
use crate::contract::Store;
use crate::page::{Gap, Page};
use crate::watch::WatchEnded;

async fn read(writer: &Writer, after: u64, bytes_max: usize) -> Page {
    let store = &writer.store;
    store.read(writer.session, STREAM, Seq(after), bytes_max).await.expect("it is read")
}

fn seqs(page: &Page) -> Vec<u64> {
    page.events.iter().map(|event| event.seq.0).collect()
}

/// Streams of a session share an order, and each is read alone, exactly as it was written.
pub async fn events_come_in_order_and_whole(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let mut written: Vec<Event> = Vec::new();
    for number in 0..20_u32 {
        let stream = if number % 3 == 0 { StreamId(0) } else { STREAM };
        let kind = match number % 4 {
            0 => EventKind::ServerRequest,
            1 => EventKind::Response,
            _ => EventKind::Notification,
        };
        let payload: Vec<u8> = (0..number * 700).map(|byte| (byte % 251) as u8).collect();
        let event = Event { last: number == 19, ..writer.event(stream, kind, &payload) };
        writer.commit(events([event.clone()])).await.expect("it is appended");
        written.push(event);
    }
    for stream in [StreamId(0), STREAM] {
        let mine: Vec<_> = written.iter().filter(|event| event.stream == stream).collect();
        let page = store.read(writer.session, stream, Seq::ORIGIN, ALL).await.expect("it is read");
        assert!(page.events.iter().eq(mine.iter().copied()), "{stream}");
        assert!(page.gap.is_none() && !page.more);
        for event in &mine {
            let one = store.read_one(writer.session, stream, event.seq).await.expect("it is read");
            assert_eq!(one.as_ref(), Some(*event));
        }
        let middle = mine[2].seq;
        let after = store.seqs(writer.session, stream, middle).await.expect("they are read");
        assert!(after.iter().eq(mine[3..].iter().map(|event| &event.seq)), "{stream}: {after:?}");
        let page = store.read(writer.session, stream, middle, ALL).await.expect("it is read");
        assert!(page.events.iter().eq(mine[3..].iter().copied()), "{stream} after {middle}");
    }
}

/// Pages of any size give the same events; a cursor between two events is one, too.
pub async fn a_page_is_bounded_and_never_empty_handed(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let payloads = ["aaaa", "b", "cccccccc", "dd", "", "eeee"];
    let all = writer.append(STREAM, &payloads).await;
    writer.append(StreamId(0), &["not this one"]).await;
    let later = writer.append(STREAM, &["ffff"]).await;
    for bytes_max in [0, 1, 4, 5, 9, 15, 100] {
        let (mut cursor, mut seen) = (Seq::ORIGIN, Vec::new());
        loop {
            let page = read(&writer, cursor.0, bytes_max).await;
            let bytes: usize = page.events.iter().map(|event| event.payload.len()).sum();
            assert!(bytes <= bytes_max, "{bytes} > {bytes_max}");
            assert!(page.rest_bytes == 0 || page.events.len() == 1, "{page:?}");
            assert!(!page.events.is_empty() && page.gap.is_none());
            seen.extend(seqs(&page));
            assert!(seen.len() <= 7, "events come again: {seen:?}");
            cursor = page.next(cursor);
            if !page.more {
                break;
            }
        }
        assert_eq!(seen, [all.clone(), later.clone()].concat(), "{bytes_max}");
        let page = read(&writer, cursor.0, bytes_max).await;
        assert!(page.events.is_empty() && !page.more && page.gap.is_none());
        assert_eq!(page.next(cursor), cursor);
    }
    let page = read(&writer, all[5] + 1, ALL).await;
    assert_eq!((seqs(&page), page.gap), (later, None));
}

/// What a page cuts is read by offset, byte for byte, until the event is evicted.
pub async fn a_large_event_is_read_in_parts(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let payload: Vec<u8> = (0..10_000_u32).map(|byte| (byte % 251) as u8).collect();
    let small = writer.append(STREAM, &["small"]).await[0];
    let event = writer.event(STREAM, EventKind::Notification, &payload);
    let large = event.seq;
    writer.commit(events([event])).await.expect("it is appended");
    let after = writer.append(STREAM, &["after"]).await[0];
    let part = async |seq, offset, bytes_max| {
        let read = store.read_part(writer.session, STREAM, seq, offset, bytes_max).await;
        read.expect("it is read")
    };
    let page = read(&writer, 0, 100).await;
    assert_eq!((seqs(&page), page.rest_bytes, page.more), (vec![small], 0, true));
    for bytes_max in [0, 1, 999, 1_000, 9_999] {
        let page = read(&writer, small, bytes_max).await;
        assert_eq!((seqs(&page), page.more), (vec![large.0], true));
        assert_eq!(page.rest_bytes, payload.len() - bytes_max);
        assert_eq!(page.events[0].payload, payload[..bytes_max]);
        assert_eq!(page.next(Seq(small)), large);
    }
    let page = read(&writer, small, payload.len() + 5).await;
    assert_eq!((seqs(&page), page.rest_bytes), (vec![large.0, after], 0));
    for step in [1_000, 3_333] {
        let mut whole = Vec::new();
        while let Some(next) = part(large, whole.len(), step).await.filter(|next| !next.is_empty())
        {
            assert!(next.len() <= step);
            whole.extend_from_slice(&next);
        }
        assert_eq!(whole, payload);
    }
    let rest = |offset: usize| Some(payload[offset..].to_vec().into());
    assert_eq!(part(large, 9_990, usize::MAX).await, rest(9_990));
    for offset in [payload.len(), payload.len() + 1, usize::MAX] {
        assert_eq!(part(large, offset, usize::MAX).await, rest(payload.len()), "{offset}");
    }
    assert_eq!(part(Seq(after + 1), 0, 10).await, None);
    writer.evict(STREAM, large.0, true).await;
    let read = store.read_part(writer.session, STREAM, large, 1_000, 10).await;
    assert_eq!(read.expect("it is read"), None);
}

/// Evicting a stream leaves its responses, unless they are named.
pub async fn responses_outlive_the_rest(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    for kind in [EventKind::Notification, EventKind::Response, EventKind::ServerRequest] {
        let event = writer.event(STREAM, kind, b"101..103");
        writer.commit(events([event])).await.expect("it is appended");
    }
    writer.evict(STREAM, 103, false).await;
    assert_eq!(seqs(&read(&writer, 0, ALL).await), [102]);
    for (seq, is_kept) in [(101, false), (102, true), (103, false)] {
        let one = store.read_one(writer.session, STREAM, Seq(seq)).await.expect("it is read");
        assert_eq!(one.is_some(), is_kept, "{seq}");
    }
    writer.evict(STREAM, 102, true).await;
    assert!(seqs(&read(&writer, 0, ALL).await).is_empty());
    writer.append(STREAM, &["104"]).await;
    assert_eq!(seqs(&read(&writer, 0, ALL).await), [104]);
}

/// A hole stands at the start of a page, with its ends; reading goes on behind it.
pub async fn evicted_events_are_reported(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    writer.append(STREAM, &["101", "102"]).await;
    let response = writer.event(STREAM, EventKind::Response, b"103");
    writer.commit(events([response])).await.expect("it is appended");
    writer.append(STREAM, &["104", "105", "106"]).await;
    writer.evict(STREAM, 105, false).await;
    let gap = |after, through| Some(Gap { after: Seq(after), through: Seq(through) });
    let expected = [
        (0, vec![103], gap(0, 102), true),
        (101, vec![103], gap(101, 102), true),
        (102, vec![103], None, true),
        (103, vec![106], gap(103, 105), false),
        (104, vec![106], gap(104, 105), false),
        (105, vec![106], None, false),
        (106, vec![], None, false),
    ];
    for (after, events, gap, more) in expected {
        let page = read(&writer, after, ALL).await;
        assert_eq!((seqs(&page), page.gap, page.more), (events, gap, more), "after {after}");
    }
    for (after, left) in [(0, vec![103, 106]), (102, vec![103, 106]), (103, vec![106])] {
        let seqs = store.seqs(writer.session, STREAM, Seq(after)).await.expect("they are read");
        assert!(seqs.iter().map(|seq| seq.0).eq(left), "after {after}: {seqs:?}");
    }
    writer.evict(STREAM, 106, false).await;
    let page = read(&writer, 102, ALL).await;
    assert_eq!((seqs(&page), page.gap, page.more), (vec![103], None, true));
    let page = read(&writer, 103, ALL).await;
    assert_eq!((seqs(&page), page.gap, page.more), (vec![], gap(103, 106), false));
    assert_eq!(page.next(Seq(103)), Seq(106));
    writer.evict(STREAM, 1, true).await;
    assert_eq!(seqs(&read(&writer, 0, ALL).await), [103], "an older eviction changes nothing");
}

/// Streams, numbers and cursors that are not in the log.
pub async fn what_was_never_there_reads_as_nothing(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    writer.append(STREAM, &["101"]).await;
    let page = read(&writer, u64::MAX, ALL).await;
    assert!(page.events.is_empty() && page.gap.is_none() && !page.more);
    let other = StreamId(77);
    writer.evict(other, 5, true).await;
    let page = store.read(writer.session, other, Seq::ORIGIN, ALL).await.expect("it is read");
    assert!(page.events.is_empty() && page.gap.is_none() && !page.more);
    for (stream, seq) in [(STREAM, 0), (STREAM, 102), (other, 101)] {
        let one = store.read_one(writer.session, stream, Seq(seq)).await.expect("it is read");
        assert!(one.is_none(), "{stream} {seq}");
    }
    let mut second = Writer::create(&store, "second").await;
    assert!(second.contents(STREAM, Seq::ORIGIN).await.is_empty());
    second.append(STREAM, &["mine"]).await;
    assert_eq!(writer.contents(STREAM, Seq::ORIGIN).await, [(101, "101".into())]);
}

/// Whoever follows a stream of a removed session is told.
pub async fn a_watch_ends_with_its_session(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, "s").await;
    let mut watch = store.watch(writer.session, STREAM).await.expect("it is watched");
    assert_eq!(watch.last(), Seq::ORIGIN);
    writer.append(STREAM, &["101"]).await;
    assert_eq!(watch.passed(Seq::ORIGIN).await, Ok(Seq(101)));
    let waiting = tokio::spawn(async move { watch.passed(Seq(101)).await });
    store.remove(writer.session, writer.fence).await.expect("it is removed");
    assert_eq!(waiting.await.expect("it ends"), Err(WatchEnded));
}
