//! What a claim says: to its server, to the store, to the log (design sections 4 and 5).

use crate::support::{Rig, call};
use rejoin_core::effect::{Effect, Note, ToUpstream};
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::input::{FromUpstream, Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::Settings;
use rejoin_core::token::Outcome;

fn stream(rig: &Rig, connection: ConnectionId) -> StreamId {
    rig.opened(connection).expect("it streams").stream
}

fn reading() -> Settings {
    let mut settings = Settings::default();
    settings.idempotent_tools.insert("read".to_owned());
    settings
}

/// The POST that each call that went upstream was asked by.
fn asked_by(rig: &Rig) -> Vec<Option<ConnectionId>> {
    let calls = rig.effects.iter().filter_map(|effect| match effect {
        Effect::Upstream(ToUpstream::Call { asked_by, .. }) => Some(*asked_by),
        _ => None,
    });
    calls.collect()
}

fn executed(rig: &Rig) -> Vec<CallId> {
    rig.notes()
        .filter_map(|n| if let Note::Executed(call) = n { Some(*call) } else { None })
        .collect()
}

fn texts(rig: &Rig, stream: StreamId) -> Vec<String> {
    rig.events_after(stream, Seq::ORIGIN).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_single_call_says_which_post_asks_for_it_and_those_of_a_batch_do_not() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    rig.post_with(&[&call("2", "b", "{}"), &call("3", "c", "{}")], None);
    assert_eq!(asked_by(&rig), [Some(post), None, None]);
}

#[test]
fn what_is_gated_is_counted_as_executed_and_a_ping_is_not() {
    let mut rig = Rig::plain();
    rig.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    rig.post(&call("2", "a", "{}"));
    rig.post(r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#);
    assert_eq!(executed(&rig), [CallId(2), CallId(3)]);
}

#[test]
fn a_superseded_call_of_a_token_leaves_a_row_that_says_how_it_ended() {
    for (event, left) in [
        (FromUpstream::Lost(CallId(1)), Outcome::Unknown),
        (FromUpstream::Sent(CallId(1)), Outcome::Cancelled),
    ] {
        let mut rig = Rig::new(reading());
        let post = rig.post_token(&call("1", "read", "{}"), "t");
        rig.feed(Input::Upstream(event));
        rig.lose(post, Seq::ORIGIN);
        rig.post(&call("2", "read", "{}"));
        assert_eq!(rig.executed().len(), 2, "it took the place of the first");
        let rows: Vec<_> = rig.tokens.values().map(|row| row.outcome.clone()).collect();
        assert_eq!(rows, [left]);
    }
}

#[test]
fn a_superseded_call_ends_its_stream_once_and_with_an_error_only_if_it_had_no_answer() {
    let mut rig = Rig::new(reading());
    let bodies = [&*call("1", "read", "{}"), &*call("2", "slow", "{}")];
    let post = rig.post_with(&bodies, None);
    let (read, slow) = (rig.executed()[0], rig.executed()[1]);
    let owed = stream(&rig, post);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(8_000);
    rig.post(&call("3", "read", "{}"));
    let told = texts(&rig, owed);
    assert!(told.len() == 1 && told[0].contains(r#""id":1"#), "{told:?}");
    assert!(rig.log[&owed].iter().all(|event| !event.last), "the other call still runs");
    rig.answer(slow);
    assert_eq!(rig.log[&owed].iter().filter(|event| event.last).count(), 1);
    rig.answer(read);
    assert_eq!(texts(&rig, owed).len(), 2, "a late answer of it says nothing");
}

#[test]
fn a_superseded_call_of_a_batch_that_had_its_answer_is_not_answered_again() {
    let mut rig = Rig::new(reading());
    let bodies = [&*call("1", "read", "{}"), &*call("2", "slow", "{}")];
    let post = rig.post_with(&bodies, None);
    let owed = stream(&rig, post);
    rig.answer(rig.executed()[0]);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(8_000);
    rig.post(&call("3", "read", "{}"));
    assert_eq!(rig.executed().len(), 3);
    assert_eq!(texts(&rig, owed).len(), 1);
    assert_eq!(rig.state(owed), "abandoned", "the slow call is still to come");
}

#[test]
fn a_superseded_call_that_was_lost_is_told_once() {
    let mut rig = Rig::new(reading());
    let post = rig.post(&call("1", "read", "{}"));
    let owed = stream(&rig, post);
    rig.lose(post, Seq::ORIGIN);
    rig.feed(Input::Upstream(FromUpstream::Lost(CallId(1))));
    rig.post(&call("2", "read", "{}"));
    assert_eq!(rig.executed().len(), 2);
    let told = texts(&rig, owed);
    assert!(told.len() == 1 && told[0].contains("40906"), "{told:?}");
    assert_eq!(rig.state(owed), "released");
}

/// A session that lets nobody wait, and what it says to the second of two POSTs.
fn without_room(prepare: impl FnOnce(&mut Rig)) -> (Reason, Option<StreamId>) {
    let mut settings = Settings::default();
    settings.limits.held_posts_max = 0;
    let mut rig = Rig::new(settings);
    prepare(&mut rig);
    let post = rig.post(&call("2", "b", "{}"));
    let refused = rig.refused(post).expect("it may not wait");
    (refused.reason, refused.hint.as_ref().map(|hint| hint.cursor.stream))
}

#[test]
fn who_may_not_wait_is_told_at_once_what_for_and_which_stream_to_resume() {
    let owed = |rig: &mut Rig| {
        let first = rig.post(&call("1", "a", "{}"));
        rig.lose(first, Seq::ORIGIN);
    };
    let replay = |rig: &mut Rig| {
        let first = rig.post(&call("1", "a", "{}"));
        rig.answer(CallId(1));
        rig.lose(first, Seq::ORIGIN);
        let cursor = rig.event_id(StreamId(1), 0);
        rig.get(Some(cursor));
    };
    let twin = |rig: &mut Rig| {
        rig.post(&call("1", "b", "{}"));
    };
    assert_eq!(without_room(owed), (Reason::StreamNotDrained, Some(StreamId(1))));
    assert_eq!(without_room(replay), (Reason::ReplayInProgress, Some(StreamId(1))));
    assert_eq!(without_room(twin), (Reason::RequestInFlight, None));
}

#[test]
fn a_token_that_is_another_calls_is_refused_for_good_although_that_call_has_just_arrived() {
    let mut rig = Rig::plain();
    let first = rig.post_token(&call("1", "a", r#"{"n":1}"#), "t");
    rig.answer(CallId(1));
    rig.deliver(first);
    let other = rig.post_token(&call("2", "a", r#"{"n":2}"#), "t");
    let refused = rig.refused(other).expect("the token is another's");
    assert_eq!(refused.reason, Reason::DedupTokenReused);
    assert!(!refused.send_again && refused.hint.is_none(), "{refused:?}");
}

#[test]
fn a_call_without_room_names_the_limit_that_leaves_it_none() {
    const OWN: &[&str] = &["session_log_hard_bytes_max"];
    const SHARED: &[&str] = &["principal_log_bytes_max", "total_log_bytes_max"];
    for (bytes, limits) in [(99, SHARED), (100, OWN), (101, OWN)] {
        let mut settings = Settings::default();
        crate::support::cap_log(&mut settings, 100);
        let mut rig = Rig::new(settings);
        rig.feed(Input::Room { bytes });
        // Half of the quota is kept free for each answer.
        let posts = ["1", "2", "3"].map(|id| rig.post(&call(id, &format!("t{id}"), "{}")));
        let refused = rig.refused(posts[2]).map(|refused| refused.reason);
        assert_eq!(refused, Some(Reason::UpstreamUnavailable));
        let noted = rig.notes().filter_map(|n| match n {
            Note::NoRoom { limits } => Some(*limits),
            _ => None,
        });
        assert_eq!(noted.last(), Some(limits), "{bytes} bytes are left by others");
    }
}

#[test]
fn a_held_post_that_is_answered_with_a_record_ends_its_wait_once() {
    let mut rig = Rig::plain();
    let first = rig.post(&call("1", "a", "{}"));
    rig.answer(CallId(1));
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    let other = rig.post(&call("2", "b", "{}"));
    rig.progress(CallId(2), 1);
    rig.lose(other, Seq::ORIGIN);
    let replay = rig.get(Some(rig.event_id(StreamId(2), 0)));
    let held = rig.post(&call("3", "a", "{}"));
    rig.pass(300);
    rig.wire(held, WireEvent::HeadersAcknowledged);
    rig.wire(replay, WireEvent::ReplayAcknowledged);
    rig.pass(500);
    assert!(texts(&rig, stream(&rig, held))[0].contains("dev.rejoin/recorded"));
    let ended = |n: &&Note| matches!(n, Note::WaitEnded { connection, .. } if *connection == held);
    assert_eq!(rig.notes().filter(ended).count(), 1);
}

#[test]
fn a_refusal_is_noted_with_its_row_its_reason_and_the_tool() {
    let mut rig = Rig::plain();
    let first = rig.post(&call("1", "charge", "{}"));
    rig.lose(first, Seq::ORIGIN);
    let repeat = rig.post(&call("2", "charge", "{}"));
    let noted: Vec<_> = rig
        .notes()
        .filter(|n| matches!(n, Note::Decided { connection, .. } if *connection == repeat))
        .collect();
    let expected = Note::Decided {
        connection: repeat,
        row: 9,
        verdict: "reject",
        reason: Some(Reason::RequestInFlight),
        original: Some(CallId(1)),
        call: None,
        tool: Some("charge".into()),
    };
    assert_eq!(noted, [&expected]);
}

#[test]
fn a_read_is_one_json_body_unless_it_asks_for_progress() {
    for (meta, streams) in [
        (r#"{"progressToken":null}"#, false),
        (r#"{"progressToken":7}"#, true),
        (r#"{"other":7}"#, false),
    ] {
        let mut rig = Rig::plain();
        let post = rig.post(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{meta}}}}}"#
        ));
        rig.answer(CallId(1));
        assert_eq!(rig.opened(post).is_some(), streams, "{meta}");
        assert_eq!(rig.replied(post).is_some(), !streams, "{meta}");
    }
}

#[test]
fn the_stream_of_a_batch_ends_with_its_last_answer_be_it_a_record_or_not() {
    for (bodies, last) in
        [(["a", "b"], [false, true]), (["a", "new"], [false, true]), (["new", "a"], [false, true])]
    {
        let mut rig = Rig::plain();
        let first = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
        rig.executed().into_iter().for_each(|call| rig.answer(call));
        rig.lose(first, Seq::ORIGIN);
        rig.pass(8_000);
        let [one, two] = bodies.map(|tool| call("3", tool, "{}"));
        let batch = rig.post_with(&[&one, &two.replace(r#""id":3"#, r#""id":4"#)], None);
        rig.executed().into_iter().skip(2).for_each(|call| rig.answer(call));
        let events = &rig.log[&stream(&rig, batch)];
        assert_eq!(events.iter().map(|event| event.last).collect::<Vec<_>>(), last, "{bodies:?}");
    }
}
