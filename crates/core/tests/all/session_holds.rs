//! Waiting POSTs (design section 5, "Holding"): order, heads, limits, withdrawal, joins.

use crate::support::{Rig, call};
use rejoin_core::effect::Effect;
use rejoin_core::id::{ConnectionId, Seq, StreamId};
use rejoin_core::input::{Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::{OnRepeat, Settings};

fn stream(rig: &Rig, connection: ConnectionId) -> StreamId {
    rig.opened(connection).expect("it streams").stream
}

fn answer(rig: &Rig, post: ConnectionId) -> Option<String> {
    let stream = rig.opened(post)?.stream;
    rig.events_after(stream, Seq::ORIGIN).last().map(|(_, text)| text.clone())
}

/// A session in which a call that still runs is owed, so that others are held.
fn owing(settings: Settings) -> (Rig, StreamId) {
    let mut rig = Rig::new(settings);
    let owed = rig.post(&call("90", "slow", "{}"));
    let stream = stream(&rig, owed);
    rig.lose(owed, Seq::ORIGIN);
    (rig, stream)
}

/// The owed stream is resumed: nothing holds any more.
fn resume(rig: &mut Rig, stream: StreamId) -> ConnectionId {
    let id = rig.event_id(stream, 0);
    rig.get(Some(id))
}

#[test]
fn held_posts_get_headers_after_250_ms_and_an_error_at_hold_max() {
    let mut settings = Settings::default();
    settings.limits.owed_grace_ms = None;
    let (mut rig, _) = owing(settings);
    let held = rig.post(&call("1", "a", "{}"));
    rig.pass(249);
    assert!(rig.opened(held).is_none());
    rig.pass(1);
    let attach = rig.opened(held).expect("headers").clone();
    assert!(attach.held && attach.prime.is_some());
    assert_eq!(rig.state(attach.stream), "held");
    rig.pass(9_749);
    assert!(answer(&rig, held).is_none());
    rig.pass(1);
    assert!(answer(&rig, held).is_some_and(|text| text.contains("40901")));
    assert_eq!(rig.state(attach.stream), "released");
    assert_eq!(rig.log[&attach.stream].last().map(|event| event.last), Some(true));
}

#[test]
fn held_posts_are_claimed_first_come_first_served() {
    let (mut rig, owed) = owing(Settings::default());
    let held: Vec<_> =
        (1..6).map(|id| rig.post(&call(&id.to_string(), &format!("t{id}"), "{}"))).collect();
    rig.pass(300);
    resume(&mut rig, owed);
    assert_eq!(rig.executed().len(), 1, "their own connections must prove that they live");
    for post in held.iter().rev() {
        rig.feed(Input::Wire(*post, WireEvent::HeadersAcknowledged));
    }
    assert_eq!(rig.executed().len(), 6);

    let (mut rig, owed) = owing(Settings::default());
    let held: Vec<_> =
        (1..6).map(|id| rig.post(&call(&id.to_string(), &format!("t{id}"), "{}"))).collect();
    rig.pass(300);
    for post in held.iter().rev() {
        rig.wire(*post, WireEvent::HeadersAcknowledged);
    }
    resume(&mut rig, owed);
    let calls: Vec<_> = rig.session.view().calls.into_iter().filter_map(|call| call.tool).collect();
    assert_eq!(calls, ["slow", "t1", "t2", "t3", "t4", "t5"]);
}

#[test]
fn a_post_that_came_from_another_wait_takes_its_own_place_in_the_queue() {
    let mut settings = Settings::default();
    settings.limits.owed_grace_ms = None;
    let mut rig = Rig::new(settings);
    let first = rig.post(&call("1", "dice", "{}"));
    rig.pass(6_000);
    let second = rig.post(&call("2", "dice", "{}"));
    let slow = rig.post(&call("3", "slow", "{}"));
    rig.lose(slow, Seq::ORIGIN);
    rig.pass(3_000);
    let third = rig.post(&call("4", "other", "{}"));
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    rig.wire(first, WireEvent::Fin);
    rig.pass(7_000);
    assert!(answer(&rig, second).is_some_and(|text| text.contains("40901")), "at its hold_max");
    assert!(answer(&rig, third).is_none());
    rig.pass(3_000);
    assert!(answer(&rig, third).is_some());
}

#[test]
fn one_beyond_the_limit_is_refused_at_once_and_told_why() {
    let mut settings = Settings::default();
    settings.limits.held_posts_max = 2;
    let (mut rig, _) = owing(settings);
    for id in 1..3 {
        rig.post(&call(&id.to_string(), &format!("t{id}"), "{}"));
    }
    let beyond = rig.post(&call("3", "t3", "{}"));
    let refused = rig.refused(beyond).expect("at once");
    assert_eq!(refused.reason, Reason::StreamNotDrained);
    assert!(refused.send_again && refused.message().contains("safe to send"));
}

#[test]
fn a_held_post_is_withdrawn_when_its_id_is_cancelled() {
    let (mut rig, owed) = owing(Settings::default());
    let quick = rig.post(&call("1", "a", "{}"));
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    rig.notify(cancel);
    assert_eq!(rig.refused(quick).map(|refused| refused.reason), Some(Reason::Withdrawn));
    let late = rig.post(&call("1", "a", "{}"));
    rig.pass(300);
    rig.notify(cancel);
    assert!(answer(&rig, late).is_some_and(|text| text.contains("40908")));
    resume(&mut rig, owed);
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn a_post_whose_own_connection_never_proves_itself_is_withdrawn() {
    let (mut rig, owed) = owing(Settings::default());
    let held = rig.post(&call("1", "a", "{}"));
    rig.pass(7_000);
    resume(&mut rig, owed);
    rig.pass(3_000);
    assert!(answer(&rig, held).is_some_and(|text| text.contains("40908")));

    let (mut rig, owed) = owing(Settings::default());
    let held = rig.post(&call("1", "a", "{}"));
    rig.pass(7_999);
    resume(&mut rig, owed);
    rig.pass(1_000);
    rig.wire(held, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.executed().len(), 2, "any time before is early enough");
}

#[test]
fn a_post_that_never_waited_needs_no_proof() {
    let mut rig = Rig::plain();
    rig.post(&call("1", "a", "{}"));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn everyone_is_answered_in_a_claims_output_of_its_own() {
    let mut settings = Settings::default();
    settings.limits.owed_grace_ms = Some(9_999);
    let (mut rig, _) = owing(settings);
    let refused = rig.post(&call("1", "a", "{}"));
    let token = rejoin_core::token::Token {
        key: rejoin_core::token::DedupKey([5; 32]),
        attempt: 1,
        epoch: None,
    };
    rig.pass(2_000);
    let claimed = rig.post_with(&[&call("2", "b", "{}")], Some(token));
    rig.pass(300);
    rig.wire(claimed, WireEvent::HeadersAcknowledged);
    // Another session takes the token while the POST is held.
    let params = crate::support::parse(&call("2", "b", "{}")).canonical_params_hash();
    let record = rejoin_core::token::DedupRecord {
        owner: rejoin_core::token::Owner { session: [9; 32], call: rejoin_core::id::CallId(4) },
        params,
        outcome: rejoin_core::token::Outcome::Running,
        result_expires_ms: u64::MAX,
        expires_ms: u64::MAX,
    };
    rig.tokens.insert(token.key, record);
    rig.feed(Input::Gone(refused));
    rig.pass(20_000);
    assert!(answer(&rig, refused).is_some(), "its answer was not dropped with the refused claim");
    assert!(answer(&rig, claimed).is_some_and(|text| text.contains("40902")));
    assert_eq!(rig.executed().len(), 1);
}

fn joining() -> Settings {
    Settings { on_repeat: OnRepeat::Join, ..Settings::default() }
}

#[test]
fn a_join_streams_at_once_and_ends_with_the_record_however_long_the_call_takes() {
    let (mut rig, owed) = owing(joining());
    let slow = rig.executed()[0];
    let join = rig.post(&call("91", "slow", "{}"));
    assert!(rig.opened(join).is_some_and(|attach| attach.held));
    rig.pass(600_000);
    assert!(answer(&rig, join).is_none());
    rig.answer(slow);
    let text = answer(&rig, join).expect("the record");
    assert!(text.contains("dev.rejoin/recorded") && text.contains(r#""id":91"#), "{text}");
    assert_eq!((rig.state(owed), rig.executed().len()), ("released", 1));
    assert_eq!(rig.state(stream(&rig, join)), "live");
}

#[test]
fn a_join_by_token_waits_for_an_attached_original_too() {
    let mut rig = Rig::new(joining());
    let first = rig.post_token(&call("1", "a", "{}"), "t");
    let join = rig.post_token(&call("2", "a", "{}"), "t");
    rig.answer(rig.executed()[0]);
    assert!(answer(&rig, join).is_none());
    rig.deliver(first);
    assert!(answer(&rig, join).is_some_and(|text| text.contains("dev.rejoin/recorded")));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn a_join_whose_original_was_freed_runs_once_its_own_connection_lives() {
    let mut rig = Rig::new(joining());
    let first = rig.post_token(&call("1", "a", "{}"), "t");
    let join = rig.post_token(&call("2", "a", "{}"), "t");
    rig.pass(60_000);
    let id = rig.executed()[0];
    rig.feed(Input::Upstream(rejoin_core::input::FromUpstream::NotSent(id)));
    assert!(answer(&rig, first).is_some_and(|text| text.contains("40909")));
    assert_eq!(rig.executed().len(), 1, "it was never asked for a sign of life");
    rig.wire(join, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.executed().len(), 2);
    let late = rig.post_token(&call("3", "a", "{}"), "t");
    assert!(rig.opened(late).is_some_and(|attach| attach.held), "the token is owned again");
}

#[test]
fn a_join_whose_original_is_cancelled_is_told_that_nobody_knows() {
    let (mut rig, _) = owing(joining());
    let join = rig.post(&call("91", "slow", "{}"));
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":90}}"#);
    assert!(answer(&rig, join).is_some_and(|text| text.contains("40906")));
}

#[test]
fn a_record_waits_for_a_running_replay() {
    let mut rig = Rig::plain();
    let first = rig.post_token(&call("1", "a", "{}"), "t");
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    rig.upstream(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    let id = rig.event_id(StreamId::STANDALONE, 0);
    let replay = rig.get(Some(id));
    let again = rig.post_token(&call("2", "a", "{}"), "t");
    assert!(rig.opened(again).is_none());
    rig.lose(replay, Seq(2));
    assert!(answer(&rig, again).is_some_and(|text| text.contains("dev.rejoin/recorded")));
}

#[test]
fn waits_that_ended_are_noted_once() {
    let (mut rig, owed) = owing(Settings::default());
    let held = rig.post(&call("1", "a", "{}"));
    rig.pass(1_000);
    resume(&mut rig, owed);
    rig.wire(held, WireEvent::HeadersAcknowledged);
    let ended = |e: &&Effect| {
        let Effect::Note(rejoin_core::effect::Note::WaitEnded { connection, waited_ms }) = e else {
            return false;
        };
        *connection == held && *waited_ms == 1_000
    };
    assert_eq!(rig.effects.iter().filter(ended).count(), 1);
}

#[test]
fn a_post_that_was_held_when_the_process_ended_is_told_to_whoever_has_its_stream() {
    let (mut rig, _) = owing(Settings::default());
    let held = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    rig.pass(300);
    let stream = stream(&rig, held);
    rig.restart();
    assert_eq!(rig.state(stream), "released");
    let events = rig.events_after(stream, Seq::ORIGIN);
    assert_eq!(events.len(), 2, "{events:?}");
    for ((_, text), id) in events.iter().zip(["1", "2"]) {
        assert!(text.contains(&format!(r#""id":{id},"#)) && text.contains("40908"), "{text}");
    }
    assert_eq!(rig.log[&stream].last().map(|event| event.last), Some(true));
    assert_eq!(rig.executed().len(), 1, "what was held did not run");
}

#[test]
fn a_session_that_is_over_says_so_in_its_row_before_anybody_is_told() {
    let mut rig = Rig::plain();
    rig.feed(Input::Delete);
    assert!(rig.rows.stored().row.ended);
}

#[test]
fn a_hold_that_ends_before_its_head_is_due_is_refused_as_a_body() {
    let mut settings = Settings::default();
    settings.limits.hold_max_ms = 100;
    let (mut rig, _) = owing(settings);
    let held = rig.post(&call("1", "a", "{}"));
    rig.pass(100);
    let refused = rig.refused(held).map(|refused| refused.reason);
    assert_eq!(refused, Some(Reason::StreamNotDrained));
    assert!(rig.opened(held).is_none(), "no head was sent");
}

#[test]
fn who_is_asked_to_prove_its_connection_has_the_whole_time_for_it() {
    let (mut rig, owed) = owing(Settings::default());
    let held = rig.post(&call("1", "a", "{}"));
    rig.pass(100);
    resume(&mut rig, owed);
    assert!(rig.opened(held).is_some(), "it is asked by its head");
    rig.pass(1_000);
    assert_eq!(rig.session.view().waiting, 1, "no other deadline of it ends this wait");
    rig.wire(held, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn a_read_whose_head_is_out_is_answered_on_that_stream() {
    let (mut rig, owed) = owing(Settings::default());
    let held = rig.post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#);
    rig.pass(300);
    let opened = stream(&rig, held);
    resume(&mut rig, owed);
    rig.wire(held, WireEvent::HeadersAcknowledged);
    rig.answer(rig.executed()[1]);
    assert!(rig.replied(held).is_none());
    assert!(rig.events_after(opened, Seq::ORIGIN)[0].1.contains(r#""id":7"#));
}

#[test]
fn a_call_with_a_token_does_not_wait_behind_an_equal_one_without() {
    let mut rig = Rig::plain();
    rig.post(&call("1", "a", "{}"));
    rig.pass(6_000);
    let twin = rig.post(&call("2", "a", "{}"));
    rig.pass(300);
    rig.wire(twin, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.session.view().waiting, 1);
    rig.post_token(&call("3", "a", "{}"), "t");
    assert_eq!(rig.executed().len(), 2, "its token says that it is another");
}

/// A POST that was held for 9.5 s, and may run now if its own connection lives.
fn asked_late() -> (Rig, ConnectionId) {
    let mut settings = Settings::default();
    settings.limits.owed_grace_ms = None;
    let (mut rig, owed) = owing(settings);
    let held = rig.post(&call("1", "a", "{}"));
    rig.pass(9_500);
    resume(&mut rig, owed);
    assert_eq!(rig.session.view().waiting, 1);
    (rig, held)
}

#[test]
fn who_is_asked_late_to_prove_its_connection_has_two_seconds_beyond_its_hold() {
    let (mut rig, held) = asked_late();
    rig.pass(1_999);
    rig.wire(held, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn nothing_that_is_decided_meanwhile_gives_a_silent_connection_more_time() {
    let (mut rig, held) = asked_late();
    rig.pass(1_000);
    let other = rig.post(&call("2", "slow", "{}"));
    rig.feed(Input::Gone(other));
    rig.pass(999);
    assert!(answer(&rig, held).is_none());
    rig.pass(1);
    assert!(answer(&rig, held).is_some_and(|text| text.contains("40908")));
    rig.wire(held, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.executed().len(), 1);
}
