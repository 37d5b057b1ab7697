//! What the quotas of the principal and of the whole store still leave (design sections 3 and 9).

use crate::support::{Rig, call};
use rejoin_core::effect::{Effect, ToUpstream};
use rejoin_core::id::{ConnectionId, Seq, StreamId};
use rejoin_core::input::{FromUpstream, Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::Settings;

const KIB: u64 = 1024;

fn room(rig: &mut Rig, bytes: u64) {
    rig.feed(Input::Room { bytes });
}

fn stream(rig: &Rig, connection: ConnectionId) -> StreamId {
    rig.opened(connection).expect("it streams").stream
}

fn reason(rig: &Rig, post: ConnectionId) -> Option<Reason> {
    rig.refused(post).map(|rejection| rejection.reason)
}

fn answer_of(rig: &mut Rig, call: u64, bytes: usize) {
    let text = "x".repeat(bytes);
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"text":"{text}"}}}}"#));
}

/// A call whose answer of that many bytes was delivered, long ago.
fn settled(rig: &mut Rig, tool: &str, bytes: usize) -> StreamId {
    let post = rig.post(&call("1", tool, "{}"));
    let id = rig.executed().last().expect("it runs").0;
    answer_of(rig, id, bytes);
    rig.deliver(post);
    rig.wire(post, WireEvent::Fin);
    rig.pass(6_000);
    stream(rig, post)
}

fn evicted(rig: &Rig, stream: StreamId) -> bool {
    let found = |e: &Effect| {
        matches!(e, Effect::Note(rejoin_core::effect::Note::Evicted { stream: id, .. })
            if *id == stream)
    };
    rig.effects.iter().any(found)
}

fn ends(rig: &Rig, stream: StreamId) -> Vec<String> {
    let events = rig.log.get(&stream).into_iter().flatten().filter(|event| event.last);
    events.map(|event| String::from_utf8_lossy(&event.payload).into_owned()).collect()
}

#[test]
fn a_call_is_refused_before_it_runs_when_the_quotas_leave_too_little() {
    let mut rig = Rig::plain();
    room(&mut rig, 64 * KIB - 1);
    let post = rig.post(&call("1", "a", "{}"));
    assert_eq!(reason(&rig, post), Some(Reason::UpstreamUnavailable));
    let refusal = rig.refused(post).expect("refused");
    assert!(refusal.send_again && refusal.hint.is_none());
    assert!(rig.executed().is_empty() && rig.session.view().streams.len() == 1);
    let list = rig.post(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    assert_eq!(rig.executed().len(), 1, "a JSON answer takes no room");
    assert!(rig.refused(list).is_none());
    room(&mut rig, 64 * KIB);
    rig.post(&call("3", "a", "{}"));
    assert_eq!(rig.executed().len(), 2);
    rig.session.check().expect("consistent");
}

#[test]
fn settled_streams_make_room_for_a_call() {
    let mut rig = Rig::plain();
    let old = settled(&mut rig, "a", 100_000);
    room(&mut rig, 1_000);
    rig.post(&call("2", "b", "{}"));
    assert_eq!(rig.executed().len(), 2);
    assert!(evicted(&rig, old));
    rig.session.check().expect("consistent");
}

#[test]
fn the_sessions_own_quota_keeps_a_reserve_too() {
    let mut settings = Settings::default();
    crate::support::cap_log(&mut settings, 100_000);
    let mut rig = Rig::new(settings);
    let post = rig.post(&call("1", "a", "{}"));
    answer_of(&mut rig, 1, 60_000);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(8_000);
    let next = rig.post(&call("2", "b", "{}"));
    assert_eq!(reason(&rig, next), Some(Reason::UpstreamUnavailable), "its answer is kept");
}

#[test]
fn with_nothing_left_progress_is_a_gap_and_its_call_goes_on() {
    let mut rig = Rig::plain();
    let old = settled(&mut rig, "a", 500);
    let post = rig.post(&call("2", "b", "{}"));
    let id = rig.executed()[1];
    room(&mut rig, 10);
    for number in 1..=3 {
        rig.progress(id, number);
    }
    assert!(evicted(&rig, old), "settled ones go first");
    assert!(ends(&rig, stream(&rig, post)).is_empty(), "its call goes on");
    assert!(evicted(&rig, stream(&rig, post)) && rig.session.log_bytes() == 0);
    let cancelled = |e: &Effect| matches!(e, Effect::Upstream(ToUpstream::Cancel { .. }));
    assert!(!rig.effects.iter().any(cancelled));
    room(&mut rig, 1_000);
    answer_of(&mut rig, 2, 500);
    assert!(ends(&rig, stream(&rig, post))[0].contains("xxxx"));
    rig.session.check().expect("consistent");
}

#[test]
fn a_response_that_the_quotas_have_no_room_for_is_told_as_such() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    room(&mut rig, 5_000);
    answer_of(&mut rig, 1, 6_000);
    let told = ends(&rig, stream(&rig, post));
    assert!(told.len() == 1 && told[0].contains("more than the log"), "{told:?}");
    // The row of a token holds a copy.
    for (bytes, fits) in [(3_000, false), (2_000, true)] {
        let mut rig = Rig::plain();
        let post = rig.post_token(&call("1", "a", "{}"), "t");
        room(&mut rig, 5_000);
        answer_of(&mut rig, 1, bytes);
        let told = ends(&rig, stream(&rig, post));
        assert_eq!(told[0].contains("more than the log"), !fits, "{bytes}");
    }
}

#[test]
fn a_record_without_room_stays_on_its_stream_and_is_pointed_to() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    answer_of(&mut rig, 1, 5_000);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(8_000);
    room(&mut rig, 1_000);
    let repeat = rig.post(&call("2", "a", "{}"));
    let refusal = rig.refused(repeat).expect("no room");
    assert_eq!(refusal.reason, Reason::StreamNotDrained);
    assert!(refusal.hint.is_some() && !refusal.send_again);
    let origin = rig.event_id(stream(&rig, post), 0);
    let get = rig.get(Some(origin));
    assert_eq!(rig.opened(get).map(|attach| attach.gap.is_none()), Some(true), "still there");
    assert_eq!(rig.executed().len(), 1);
    room(&mut rig, 10_000);
    rig.lose(get, Seq::ORIGIN);
    rig.pass(8_000);
    let repeat = rig.post(&call("3", "a", "{}"));
    assert!(rig.opened(repeat).is_some());
    rig.session.check().expect("consistent");
}

#[test]
fn the_standalone_stream_gives_way_and_never_goes_beyond_the_quotas() {
    let mut rig = Rig::plain();
    let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"n":1}}"#;
    room(&mut rig, 200);
    for _ in 0..10 {
        rig.upstream(note);
        assert!(rig.session.log_bytes() <= 200);
    }
    assert_eq!(rig.log[&StreamId::STANDALONE].len(), 10, "older ones went");
    room(&mut rig, 0);
    rig.feed(Input::Upstream(FromUpstream::Closed));
    rig.feed(Input::Upstream(FromUpstream::Reopened { continuation: None }));
    assert!(rig.session.log_bytes() <= 200);
    rig.session.check().expect("consistent");
}
