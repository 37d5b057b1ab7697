//! The session driver, with bodies read by hand: no socket can be seen.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "driver/support.rs"]
#[allow(dead_code, reason = "shared with the tests on sockets")]
mod support;

use rejoin_core::effect::Note;
use rejoin_core::id::{CallId, Seq, StreamId, digest};
use rejoin_core::input::GetCursor;
use rejoin_core::stream::StreamState;
use rejoin_gateway::handle::{Answer, Delivered};
use rejoin_gateway::upstream::{Channel, CloseReason, Command, Event, NotSentReason};
use rejoin_store::{ReadError, Store};
use support::*;

fn moved_to(state: StreamState) -> impl Fn(&Note) -> bool {
    move |note| matches!(note, Note::StreamMoved { to, .. } if *to == state)
}

#[tokio::test]
async fn a_calls_answer_arrives_on_its_stream_with_growing_ids_and_ends_it() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, call) = session.call(7, "x").await;
    session.server.progress(call, "half").await;
    session.server.answer(call, "done").await;
    let read = stream.rest().await;
    assert!(read.starts_with("id: 000000a1-1-0\nretry: 2000\ndata:\n\n"), "{read}");
    assert_eq!(ids(&read), ["000000a1-1-0", "000000a1-1-1", "000000a1-1-2"]);
    assert!(
        read.contains(r#""progressToken":7"#) && read.contains(r#""message":"half""#),
        "{read}"
    );
    assert!(
        read.ends_with("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"done\"}}\n\n")
    );
    session.notes.until(moved_to(StreamState::Ending)).await;
}

#[tokio::test]
async fn the_frame_with_the_last_event_is_the_last_frame() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, call) = session.call(7, "x").await;
    stream.frame().await.unwrap();
    session.server.answer(call, "done").await;
    assert!(!stream.is_ended());
    assert!(stream.frame().await.unwrap().contains("done"));
    assert!(stream.is_ended());
    assert_eq!(stream.frame().await, None);
}

#[tokio::test]
async fn nothing_goes_upstream_before_its_claim_is_durable() {
    let world = World::new();
    let mut session = world.session("a").await;
    let gate = world.store.hold();
    let handle = session.handle.clone();
    let posted = tokio::spawn(async move { handle.post(post_of(tool_call(1, "x"), None)).await });
    assert_pending(session.server.commands.recv()).await;
    assert!(!posted.is_finished());
    gate.add_permits(1);
    session.server.take_call().await;
    stream_of(soon(posted).await.unwrap());
    world.store.free();
}

#[tokio::test]
async fn nothing_is_handed_out_before_it_is_in_the_log() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, call) = session.call(1, "x").await;
    stream.frame().await.unwrap();
    world.store.hold();
    session.server.answer(call, "done").await;
    assert_pending(stream.frame()).await;
    world.store.free();
    assert!(stream.frame().await.unwrap().contains("done"));
}

#[tokio::test]
async fn a_body_that_is_dropped_is_a_lost_connection_and_the_rest_is_resumed_by_get() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, call) = session.call(1, "x").await;
    session.server.progress(call, "one").await;
    stream.through("one").await;
    drop(stream);
    session.notes.until(moved_to(StreamState::Owed)).await;
    session.server.progress(call, "two").await;
    session.server.answer(call, "done").await;
    session.notes.until(|note| matches!(note, Note::CallMoved { to: "finished", .. })).await;

    let answer = session.get("000000a1-1-1").await;
    let Answer::Stream { body, replay_until } = answer else { panic!("{answer:?}") };
    assert_eq!(replay_until.unwrap().to_string(), "000000a1-1-3");
    let read = Stream(body).rest().await;
    assert!(
        read.starts_with("id: 000000a1-1-1\nretry: 2000\ndata:\n\n: replay-begin\n\n"),
        "{read}"
    );
    assert_eq!(ids(&read), ["000000a1-1-1", "000000a1-1-2", "000000a1-1-3"]);
    assert!(read.ends_with("\n\n: replay-end 000000a1-1-3\n\n"), "{read}");
}

#[tokio::test]
async fn a_second_connection_fences_the_first_which_ends_cleanly_with_a_long_retry() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut first, call) = session.call(1, "x").await;
    session.server.progress(call, "one").await;
    first.through("one").await;
    let mut second = stream_of(session.get("000000a1-1-1").await);
    assert_eq!(first.frame().await.unwrap(), "retry: 30000\ndata:\n\n");
    assert!(first.is_ended());
    assert_eq!(first.frame().await, None);
    session.server.answer(call, "done").await;
    assert!(second.rest().await.contains("done"));
}

#[tokio::test]
async fn what_left_on_the_standalone_stream_is_not_sent_again_without_a_cursor() {
    let world = World::new();
    let session = world.session("a").await;
    let note =
        |n| format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"n":{n}}}}}"#);
    session.server.say(Channel::Unknown, note(1)).await;
    let mut first = stream_of(soon(session.handle.get(GetCursor::None, None)).await);
    first.through(r#""n":1"#).await;
    let mut second = stream_of(soon(session.handle.get(GetCursor::None, None)).await);
    session.server.say(Channel::Unknown, note(2)).await;
    let read = second.through(r#""n":2"#).await;
    assert!(!read.contains(r#""n":1"#), "{read}");
    assert!(first.rest().await.contains("retry: 30000"));
}

#[tokio::test]
async fn a_body_that_is_not_read_holds_one_page_while_the_server_is_read_to_its_end() {
    const EVENTS: usize = 2_000;
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, call) = session.call(1, "x").await;
    let text = "p".repeat(1_000);
    for _ in 0..EVENTS {
        session.server.progress(call, &text).await;
    }
    session.server.answer(call, "done").await;
    session.notes.until(|note| matches!(note, Note::CallMoved { to: "finished", .. })).await;
    let (mut frames, mut events, mut longest) = (0, 0, 0);
    while let Some(frame) = stream.frame().await {
        frames += 1;
        events += ids(&frame).len();
        longest = longest.max(frame.len());
    }
    assert_eq!(events, EVENTS + 2);
    assert!(longest < 80 * 1024, "{longest}");
    assert!(frames < EVENTS / 20, "several events share a frame: {frames}");
}

#[tokio::test]
async fn a_held_post_whose_handler_is_dropped_is_withdrawn() {
    let mut world = World::new();
    // No head goes out that could fail, and no patience ends: only the drop is left to tell.
    world.settings.limits.held_headers_ms = 600_000;
    world.settings.limits.hold_max_ms = 300_000;
    world.settings.limits.owed_grace_ms = None;
    let mut session = world.session("a").await;
    let (stream, _call) = session.call(1, "x").await;
    drop(stream);
    session.notes.until(moved_to(StreamState::Owed)).await;
    let handle = session.handle.clone();
    let held = tokio::spawn(async move { handle.post(post_of(tool_call(2, "y"), None)).await });
    let held_noted = |note: &Note| matches!(note, Note::Decided { verdict: "hold", .. });
    session.notes.until(held_noted).await;
    held.abort();
    session.notes.until(|note| matches!(note, Note::WaitEnded { .. })).await;
    assert_eq!(session.handle.view().await.unwrap().waiting, 0);
    assert!(session.server.commands.try_recv().is_err());
    assert_eq!(session.notes.executions(), 1);
}

#[tokio::test]
async fn a_held_post_is_told_that_it_is_held_and_runs_once_the_owed_stream_was_resumed() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (stream, first) = session.call(1, "x").await;
    drop(stream);
    session.notes.until(moved_to(StreamState::Owed)).await;
    let mut held = stream_of(soon(session.handle.post(post_of(tool_call(2, "y"), None))).await);
    let opening = held.frame().await.unwrap();
    assert!(opening.ends_with("data:\n\n: held\n\n"), "{opening}");
    session.server.answer(first, "first").await;
    session.notes.until(|note| matches!(note, Note::CallMoved { to: "finished", .. })).await;
    let mut resumed = stream_of(session.get("000000a1-1-0").await);
    assert!(resumed.rest().await.contains("first"));
    let second = session.server.take_call().await;
    session.server.answer(second, "second").await;
    assert!(held.rest().await.contains("second"));
}

#[tokio::test]
async fn calls_of_a_server_that_cannot_be_started_again_are_refused_as_not_sent() {
    let world = World::new();
    let session = world.session("a").await;
    let refusal = r#"{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"no"}}"#;
    session.upstream.answers.lock().unwrap().push_back(refusal);
    session.server.close().await;
    session.notes.until(|note| *note == Note::UpstreamMoved("closed")).await;
    let mut stream = stream_of(soon(session.handle.post(post_of(tool_call(1, "x"), None))).await);
    let read = stream.rest().await;
    assert!(read.contains("40909") && read.contains(r#""id":1"#), "{read}");
}

#[tokio::test]
async fn a_server_that_died_is_started_again_and_restored_before_the_next_call() {
    let world = World::new();
    let mut session = world.session("a").await;
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(session.handle.notify(parsed(initialized)).await, Delivered::Taken);
    session.server.command().await;
    let (mut lost, _call) = session.call(1, "x").await;
    session.server.close().await;
    assert!(lost.rest().await.contains("40906"));

    let handle = session.handle.clone();
    let posted = tokio::spawn(async move { handle.post(post_of(tool_call(2, "y"), None)).await });
    session.server = soon(session.servers.recv()).await.unwrap();
    let restored = session.server.command().await;
    assert!(
        matches!(&restored, Command::Send { message } if message == initialized),
        "{restored:?}"
    );
    let call = session.server.take_call().await;
    session.server.answer(call, "again").await;
    assert!(stream_of(soon(posted).await.unwrap()).rest().await.contains("again"));
}

#[tokio::test]
async fn who_is_told_of_a_lost_session_and_calls_again_meets_a_new_one() {
    let mut world = World::new();
    world.settings.upstream_is_stateless = false;
    let mut session = world.session("a").await;
    let (mut told, call) = session.call(1, "x").await;
    told.frame().await.unwrap();
    session.server.send(Event::NotSent { call, reason: NotSentReason::SessionGone }).await;
    // Told now, it would call again into the session that is about to end.
    assert_pending(told.frame()).await;
    session.server.send(Event::Closed { reason: CloseReason::SessionGone }).await;
    assert!(told.rest().await.contains("40907"));
    let handle = session.handle.clone();
    let posted = tokio::spawn(async move { handle.post(post_of(tool_call(2, "x"), None)).await });
    session.server = soon(session.servers.recv()).await.unwrap();
    let call = session.server.take_call().await;
    session.server.answer(call, "again").await;
    assert!(stream_of(soon(posted).await.unwrap()).rest().await.contains("again"));
}

#[tokio::test]
async fn a_call_beyond_the_queue_of_a_server_that_reads_nothing_is_refused_as_not_sent() {
    let mut world = World::new();
    world.queue_max = 1;
    world.settings.limits.upstream_queue_max = 1;
    let session = world.session("a").await;
    let mut streams = Vec::new();
    for id in 1..=3 {
        let request = post_of(tool_call(id, &format!("call {id}")), None);
        streams.push(stream_of(soon(session.handle.post(request)).await));
    }
    assert!(streams[2].rest().await.contains("40909"));
}

#[tokio::test]
async fn small_messages_to_a_server_that_reads_nothing_are_bounded_in_bytes() {
    let mut world = World::new();
    let limits = &mut world.settings.limits;
    (limits.upstream_queue_bytes_max, limits.body_bytes_max) = (4_000, 1);
    limits.connection_buffer_bytes_max = 100;
    let mut session = world.session("a").await;
    let mut streams = Vec::new();
    for id in 1..=60 {
        let request = post_of(tool_call(id, &format!("call {id}")), None);
        streams.push(stream_of(soon(session.handle.post(request)).await));
    }
    assert!(streams[59].rest().await.contains("40909"));
    let first = session.server.take_call().await;
    for _ in 0..10 {
        session.server.take_call().await;
    }
    let request = post_of(tool_call(61, "what was read has made room"), None);
    streams.push(stream_of(soon(session.handle.post(request)).await));
    let last = CallId(first.get() + 60);
    let mut taken = 11;
    while session.server.take_call().await != last {
        taken += 1;
    }
    assert!(taken < 40, "{taken} were on their way");
}

#[tokio::test]
async fn one_token_in_two_sessions_runs_once() {
    let world = World::new();
    let (mut first, mut second) = (world.session("a").await, world.session("b").await);
    let handle = first.handle.clone();
    let claimed = soon(handle.post(post_of(tool_call(1, "x"), Some("token")))).await;
    let call = first.server.take_call().await;
    let refused = soon(second.handle.post(post_of(tool_call(5, "x"), Some("token")))).await;
    let refused = match refused {
        Answer::Refused { rejections, .. } => rejections[0].request_id.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused, "5");
    assert!(second.server.commands.try_recv().is_err());
    assert_eq!(second.notes.executions(), 0);
    first.server.answer(call, "done").await;
    assert!(stream_of(claimed).rest().await.contains("done"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_stored_is_not_admitted_and_ends_the_session() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, _call) = session.call(1, "x").await;
    world.store.fail();
    let answer = soon(session.handle.post(post_of(tool_call(2, "y"), None))).await;
    assert!(matches!(answer, Answer::Overloaded), "{answer:?}");
    assert!(session.handle.is_over());
    assert!(matches!(session.server.command().await, Command::End));
    stream.rest().await;
    assert!(stream.is_ended());
    let late = soon(session.handle.post(post_of(tool_call(3, "z"), None))).await;
    assert!(matches!(late, Answer::SessionOver), "{late:?}");
}

#[tokio::test]
async fn delete_ends_streams_server_and_log() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, _call) = session.call(1, "x").await;
    stream.frame().await.unwrap();
    assert_eq!(soon(session.handle.delete()).await, Delivered::Taken);
    assert!(session.handle.is_over());
    assert_eq!(stream.frame().await, None);
    assert!(matches!(session.server.command().await, Command::Cancel { .. }));
    assert!(matches!(session.server.command().await, Command::End));
    drop(session.server);
    soon(session.handle.gone()).await;
    let read = world.store.read(digest(b"a"), StreamId(1), Seq::ORIGIN, 1).await;
    assert!(matches!(read, Err(ReadError::UnknownSession)));
    let late = soon(session.handle.get(GetCursor::None, None)).await;
    assert!(matches!(late, Answer::SessionOver), "{late:?}");
}

#[tokio::test]
async fn a_session_that_panics_ends_alone() {
    let world = World::new();
    let notes = Notes { panics: true, ..Notes::default() };
    let broken = world.session_noting("broken", notes).await;
    let mut sound = world.session("sound").await;
    let answer = soon(broken.handle.post(post_of(tool_call(1, "x"), None))).await;
    drop(answer);
    drop(broken.server);
    soon(broken.handle.gone()).await;
    assert!(broken.handle.is_over());
    let (mut stream, call) = sound.call(1, "x").await;
    sound.server.answer(call, "done").await;
    assert!(stream.rest().await.contains("done"));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_gets_a_comment_every_keep_alive() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, _call) = session.call(1, "x").await;
    stream.frame().await.unwrap();
    let before = tokio::time::Instant::now();
    let frame = http_body_util::BodyExt::frame(&mut stream.0).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), ": keep-alive\n\n");
    assert_eq!(before.elapsed().as_secs(), 15);
}

#[tokio::test]
async fn a_post_whose_handler_is_dropped_before_it_was_looked_at_does_not_run() {
    let world = World::new();
    let mut session = world.session("a").await;
    let gate = world.store.hold();
    let first = session.handle.clone();
    let first = tokio::spawn(async move { first.post(post_of(tool_call(1, "x"), None)).await });
    soon(world.store.until_held()).await;
    let handle = session.handle.clone();
    let second = tokio::spawn(async move { handle.post(post_of(tool_call(2, "y"), None)).await });
    tokio::task::yield_now().await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    drop(gate);
    world.store.free();
    session.server.take_call().await;
    stream_of(soon(first).await.unwrap());
    // What is handled after it shows that it was passed over.
    assert!(session.handle.view().await.is_some());
    assert!(session.server.commands.try_recv().is_err());
    assert_eq!(session.notes.executions(), 1);
}

#[tokio::test]
async fn a_drain_ends_streams_cleanly_and_says_when_to_come_back() {
    let world = World::new();
    let mut session = world.session("a").await;
    let (mut stream, _call) = session.call(1, "x").await;
    stream.frame().await.unwrap();
    assert_eq!(soon(session.handle.drain(1_234)).await, Delivered::Taken);
    assert_eq!(stream.frame().await.unwrap(), "retry: 1234\ndata:\n\n");
    assert!(stream.is_ended());
    session.notes.until(moved_to(StreamState::Owed)).await;
    assert!(!session.handle.is_over());
}
