//! Events larger than a page: they leave in parts, and are taken whole or not at all.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "driver/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the driver")]
mod support;

use std::fmt::Display;

use bytes::BytesMut;
use rejoin_core::effect::{Batch, Eviction};
use rejoin_core::id::{Seq, StreamId, digest};
use rejoin_core::sse::{Decoder, write_event};
use rejoin_gateway::upstream::Channel;
use rejoin_store::Store;
use support::*;

/// What a frame may have: a page of 64 KiB, and the fields around it.
const FRAME_BYTES_MAX: usize = 66 * 1024;
const EVENT_BYTES: usize = 3_000_000;

/// A message whose lines end in each of the three ways, at every distance from a page's end.
fn message(head: &str, tail: &str) -> String {
    let mut text = format!("{head}[");
    for number in 0.. {
        let line = "x".repeat(997 + number % 5);
        text.push_str(&format!("\"{line}\",{}", ["\r\n", "\n", "\r"][number % 3]));
        if text.len() > EVENT_BYTES {
            break;
        }
    }
    text + "0]" + tail
}

fn large_answer(call: impl Display) -> String {
    message(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"a":"#), "}}")
}

fn large_progress(call: impl Display) -> String {
    let head = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"#;
    message(&format!(r#"{head}"progressToken":{call},"message":"#), "}}")
}

/// The same message as its client is sent it, as an event.
fn event(id: &str, message: &str) -> Vec<u8> {
    let mut out = BytesMut::new();
    write_event(&mut out, Some(id), message.as_bytes());
    out.to_vec()
}

/// The events that a client takes from what it read.
fn taken(read: &str) -> Vec<rejoin_core::sse::Event> {
    let mut decoder = Decoder::new(2 * EVENT_BYTES);
    decoder.push(read.as_bytes());
    std::iter::from_fn(|| decoder.next_event().unwrap()).collect()
}

async fn sent(session: &Session) -> String {
    session.handle.view().await.unwrap().streams[1].sent.clone()
}

#[tokio::test]
async fn a_large_answer_leaves_in_frames_of_a_page_and_ends_with_the_last_one() {
    const IN_MEMORY: u64 = 64 * 1024 * 1024;
    const IN_FILE: u64 = 0;
    for memory_log_bytes_max in [IN_MEMORY, IN_FILE] {
        let world = World::with(|limits| limits.memory_log_bytes_max = memory_log_bytes_max);
        let mut session = world.session("a").await;
        let (mut stream, call) = session.call(1, "x").await;
        stream.through("retry: 2000").await;
        session.server.say(Channel::Call(call), large_answer(call)).await;
        let mut read = String::new();
        let mut frames = 0;
        while let Some(frame) = stream.frame().await {
            assert!(frame.len() <= FRAME_BYTES_MAX, "a frame of {} bytes", frame.len());
            read.push_str(&frame);
            frames += 1;
            let is_whole = read.ends_with("\n\n");
            assert_eq!(stream.is_ended(), is_whole, "the end comes with the last part");
        }
        assert!(frames >= EVENT_BYTES / FRAME_BYTES_MAX, "{frames} frames");
        let expected = event("000000a1-1-1", &large_answer(1));
        assert!(read.as_bytes() == expected, "what was read is not what was answered");
    }
}

#[tokio::test]
async fn an_event_counts_as_sent_with_its_last_part() {
    let mut session = World::new().session("a").await;
    let (mut stream, call) = session.call(1, "x").await;
    session.server.say(Channel::Unknown, large_progress(call)).await;
    stream.through("id: 000000a1-1-1").await;
    // A request of the client is when the driver looks.
    drop(session.get("000000a1-1-7").await);
    assert_eq!(sent(&session).await, "000000a1-1-0");
    stream.through("0]").await;
    drop(session.get("000000a1-1-7").await);
    assert_eq!(sent(&session).await, "000000a1-1-1");
}

#[tokio::test]
async fn a_replay_of_large_events_is_whole_and_says_where_it_ends() {
    let mut session = World::new().session("a").await;
    let (stream, call) = session.call(1, "x").await;
    for _ in 0..2 {
        session.server.say(Channel::Unknown, large_progress(call)).await;
    }
    session.server.progress(call, "small").await;
    session.server.say(Channel::Unknown, large_progress(call)).await;
    let produced = async {
        while session.handle.view().await.unwrap().streams[1].produced != "000000a1-1-4" {
            tokio::task::yield_now().await;
        }
    };
    soon(produced).await;
    drop(stream);
    let mut resumed = stream_of(session.get("000000a1-1-0").await);
    let read = resumed.through("replay-end").await;
    let ids_of = |read: &str| -> Vec<String> {
        let ids = taken(read).into_iter().filter(|event| !event.data.is_empty());
        ids.map(|event| String::from_utf8(event.id.unwrap().to_vec()).unwrap()).collect()
    };
    let all = ["000000a1-1-1", "000000a1-1-2", "000000a1-1-3", "000000a1-1-4"];
    assert_eq!(ids_of(&read), all);
    assert!(read.ends_with("\n\n: replay-end 000000a1-1-4\n\n"), "{:?}", &read[read.len() - 80..]);
    session.server.say(Channel::Call(call), large_answer(call)).await;
    let rest = resumed.rest().await;
    assert!(rest.as_bytes() == event("000000a1-1-5", &large_answer(1)));
}

#[tokio::test]
async fn a_take_over_in_the_middle_of_an_event_leaves_it_to_the_newer_connection() {
    let mut session = World::new().session("a").await;
    let (mut older, call) = session.call(1, "x").await;
    session.server.say(Channel::Call(call), large_answer(call)).await;
    let mut read = older.through("id: 000000a1-1-1").await;
    let mut newer = stream_of(session.get("000000a1-1-0").await);
    let rest = older.rest().await;
    assert!(rest.len() <= 2 * FRAME_BYTES_MAX, "{} bytes after the order to end", rest.len());
    assert!(rest.ends_with("\nretry: 30000\n"), "{:?}", &rest[rest.len().saturating_sub(80)..]);
    read.push_str(&rest);
    assert!(taken(&read).iter().all(|event| event.data.is_empty()), "a cut event was taken");
    let replay = newer.rest().await;
    let answers = taken(&replay).into_iter().filter(|event| !event.data.is_empty()).count();
    assert_eq!(answers, 1);
}

#[tokio::test]
async fn an_event_that_is_evicted_between_two_parts_is_not_taken() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, call) = session.call(1, "x").await;
    session.server.say(Channel::Unknown, large_progress(call)).await;
    let mut read = stream.through("id: 000000a1-1-1").await;
    let key = digest(b"a");
    let owner = world.store.load(key).await.unwrap().unwrap();
    let eviction = Eviction { stream: StreamId(1), through: Seq(1), responses_too: true };
    let batch = Batch { evictions: vec![eviction], ..Batch::default() };
    world.store.commit(key, owner.fence, owner.version, batch).await.unwrap();
    let rest = stream.rest().await;
    assert_eq!(rest, "\nretry: 2000\n");
    read.push_str(&rest);
    assert!(taken(&read).iter().all(|event| event.data.is_empty()), "a cut event was taken");
}

#[tokio::test]
async fn a_drain_in_the_middle_of_an_event_lets_it_come_whole_first() {
    let mut session = World::new().session("a").await;
    let (mut stream, call) = session.call(1, "x").await;
    session.server.say(Channel::Unknown, large_progress(call)).await;
    let mut read = stream.through("id: 000000a1-1-1").await;
    session.handle.drain(7_000).await;
    let rest = stream.rest().await;
    assert!(
        rest.ends_with("\n\nretry: 7000\ndata:\n\n"),
        "{:?}",
        &rest[rest.len().saturating_sub(80)..]
    );
    read.push_str(&rest);
    let whole = taken(&read).into_iter().filter(|event| event.data.len() > EVENT_BYTES / 2).count();
    assert_eq!(whole, 1);
}
