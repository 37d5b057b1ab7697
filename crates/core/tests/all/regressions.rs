//! The traces that broke earlier wordings of the rule, each played on a session (`V`: first model
//! check). Executions are counted; nothing may be held for ever.

use crate::support::{Rig, call};
use rejoin_core::effect::{Command, Effect, ToUpstream};
use rejoin_core::id::{ConnectionId, Seq};
use rejoin_core::input::{FromUpstream, Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::token::{DedupKey, DedupRecord, Outcome, Owner, Token};

fn charge(id: &str) -> String {
    call(id, "charge", "{}")
}

fn reason(rig: &Rig, post: ConnectionId) -> Option<Reason> {
    rig.refused(post).map(|rejection| rejection.reason)
}

/// The answer that a POST got on its stream, as text.
fn answer(rig: &Rig, post: ConnectionId) -> Option<String> {
    let stream = rig.opened(post)?.stream;
    rig.events_after(stream, Seq::ORIGIN).last().map(|(_, text)| text.clone())
}

fn is_record(rig: &Rig, post: ConnectionId, id: &str) -> bool {
    let mark = "dev.rejoin/recorded";
    answer(rig, post).is_some_and(|text| text.contains(mark) && text.contains(id))
}

/// Nobody waits once every limit has passed.
fn nothing_waits(rig: &mut Rig) {
    rig.pass(20_000);
    assert_eq!(rig.session.view().waiting, 0, "held for ever");
    rig.session.check().expect("the session is consistent");
}

#[test]
fn v1_a_repeat_of_a_call_that_finished_on_a_half_open_connection_does_not_run() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    let repeat = rig.post(&charge("2"));
    assert_eq!(rig.commands(first), [Command::Probe], "is the first alive?");
    rig.pass(1_999);
    assert!(answer(&rig, repeat).is_none());
    rig.pass(1);
    assert_eq!(rig.executed().len(), 1);
    let text = answer(&rig, repeat).expect("headers were out after 250 ms");
    assert!(text.contains("40901") && text.contains(r#""id":2"#), "{text}");
    nothing_waits(&mut rig);
}

#[test]
fn v1_a_repeat_of_a_call_whose_server_died_on_a_half_open_connection_does_not_run() {
    let mut rig = Rig::plain();
    rig.post(&charge("1"));
    let first = rig.executed()[0];
    rig.feed(Input::Upstream(FromUpstream::Sent(first)));
    rig.feed(Input::Upstream(FromUpstream::Closed));
    let repeat = rig.post(&charge("2"));
    assert_eq!(reason(&rig, repeat), Some(Reason::OutcomeUnknown));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn v2_an_answer_written_into_a_dead_path_is_not_presumed_and_its_repeat_gets_the_record() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    let stream = rig.opened(first).expect("it streams").stream;
    rig.answer(rig.executed()[0]);
    rig.wire(first, WireEvent::FinalHanded);
    assert_eq!(rig.state(stream), "ending");
    let repeat = rig.post(&charge("2"));
    rig.pass(2_000);
    assert_eq!(rig.state(stream), "released");
    assert!(is_record(&rig, repeat, r#""id":2"#));
    assert_eq!(rig.executed().len(), 1);
    nothing_waits(&mut rig);
}

#[test]
fn v3_a_reset_that_comes_while_the_repeat_waits_makes_it_a_repeat() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    let repeat = rig.post(&charge("2"));
    rig.pass(40);
    rig.wire(first, WireEvent::Reset);
    assert!(is_record(&rig, repeat, r#""id":2"#));
    assert_eq!(rig.executed().len(), 1);
    nothing_waits(&mut rig);
}

#[test]
fn v4_a_retry_beside_a_resume_never_runs() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    let stream = rig.opened(first).expect("it streams").stream;
    let running = rig.executed()[0];
    rig.lose(first, Seq::ORIGIN);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    let retry = rig.post(&charge("2"));
    assert_eq!(reason(&rig, retry), Some(Reason::RequestInFlight));
    rig.answer(running);
    rig.deliver(get);
    assert_eq!(rig.state(stream), "presumed");
    let late = rig.post(&charge("3"));
    assert_eq!(reason(&rig, late), Some(Reason::RequestInFlight), "scarred, less than the grace");
    rig.pass(8_000);
    rig.post(&charge("4"));
    assert_eq!(rig.executed().len(), 2, "a deliberate new call runs again");
}

/// A session in which a call's answer is owed, so that others are held.
fn owing() -> (Rig, rejoin_core::id::StreamId) {
    let mut rig = Rig::plain();
    let owed = rig.post(&call("90", "slow", "{}"));
    let stream = rig.opened(owed).expect("it streams").stream;
    rig.lose(owed, Seq::ORIGIN);
    (rig, stream)
}

#[test]
fn v5_a_post_whose_connection_is_closed_while_it_is_held_is_never_claimed() {
    let (mut rig, _) = owing();
    let held = rig.post(&charge("1"));
    rig.pass(100);
    rig.feed(Input::Gone(held));
    assert_eq!(reason(&rig, held), Some(Reason::Withdrawn));
    let held = rig.post(&charge("2"));
    rig.pass(1_000);
    rig.lose(held, Seq::ORIGIN);
    let text = answer(&rig, held).expect("an id was out");
    assert!(text.contains("40908"), "{text}");
    rig.pass(60_000);
    assert_eq!(rig.executed().len(), 1);
    nothing_waits(&mut rig);
}

#[test]
fn v6_of_two_held_repeats_only_the_one_with_a_living_connection_runs() {
    let (mut rig, stream) = owing();
    let zombie = rig.post(&charge("1"));
    rig.pass(500);
    let retry = rig.post(&charge("2"));
    rig.pass(500);
    rig.wire(retry, WireEvent::HeadersAcknowledged);
    let slow = rig.executed()[0];
    rig.answer(slow);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    rig.deliver(get);
    rig.wire(get, WireEvent::Fin);
    assert_eq!(rig.executed().len(), 2, "the retry runs");
    rig.answer(rig.executed()[1]);
    rig.deliver(retry);
    rig.wire(retry, WireEvent::Fin);
    rig.pass(30_000);
    assert_eq!(rig.executed().len(), 2, "the zombie does not");
    assert!(answer(&rig, zombie).is_some_and(|text| text.contains("40908")));
    nothing_waits(&mut rig);
}

#[test]
fn v7_a_cancelled_call_with_a_late_result_is_answered_from_the_record() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(rig.commands(first), [Command::Finish { retry_ms: None }]);
    let retry = rig.post(&charge("2"));
    assert_eq!(reason(&rig, retry), Some(Reason::OutcomeUnknown));
    rig.answer(rig.executed()[0]);
    let retry = rig.post(&charge("3"));
    assert!(is_record(&rig, retry, r#""id":3"#));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn v8_a_second_attempt_whose_token_is_unknown_in_a_new_epoch_does_not_run() {
    let mut rig = Rig::plain();
    let key = DedupKey([7; 32]);
    let attempt = |attempt, epoch| Some(Token { key, attempt, epoch });
    for (number, epoch) in [(2, Some(0)), (2, None), (9, Some(7))] {
        let post = rig.post_with(&[&charge("1")], attempt(number, epoch));
        assert_eq!(reason(&rig, post), Some(Reason::OutcomeUnknown));
    }
    rig.post_with(&[&charge("1")], attempt(2, Some(1)));
    assert_eq!(rig.executed().len(), 1, "in the same epoch the ledger knows that it never ran");
}

#[test]
fn v8_a_tombstone_is_an_unknown_outcome() {
    let mut rig = Rig::plain();
    let key = DedupKey([7; 32]);
    let token = Some(Token { key, attempt: 1, epoch: Some(1) });
    let params = crate::support::parse(&charge("1")).canonical_params_hash();
    let row = |params| DedupRecord {
        owner: Owner { session: [9; 32], call: rejoin_core::id::CallId(1) },
        params,
        outcome: Outcome::Tombstone,
        result_expires_ms: 0,
        expires_ms: u64::MAX,
    };
    rig.tokens.insert(key, row(params));
    let post = rig.post_with(&[&charge("1")], token);
    assert_eq!(reason(&rig, post), Some(Reason::OutcomeUnknown));
    rig.tokens.insert(key, row([0; 32]));
    let post = rig.post_with(&[&charge("1")], token);
    assert_eq!(reason(&rig, post), Some(Reason::DedupTokenReused));
    assert!(rig.executed().is_empty());
}

#[test]
fn v11_a_token_of_another_session_gives_the_record_and_no_cursor() {
    let mut rig = Rig::plain();
    let key = DedupKey([7; 32]);
    let params = crate::support::parse(&charge("1")).canonical_params_hash();
    let mut row = DedupRecord {
        owner: Owner { session: [9; 32], call: rejoin_core::id::CallId(1) },
        params,
        outcome: Outcome::Running,
        result_expires_ms: u64::MAX,
        expires_ms: u64::MAX,
    };
    let token = Some(Token { key, attempt: 2, epoch: None });
    rig.tokens.insert(key, row.clone());
    let post = rig.post_with(&[&charge("1")], token);
    assert_eq!(reason(&rig, post), Some(Reason::RequestInFlight));
    assert!(rig.refused(post).is_some_and(|rejection| rejection.hint.is_none()));
    let response = r#"{"jsonrpc":"2.0","id":55,"result":{"n":1}}"#.into();
    row.outcome = Outcome::Finished { response, ended_ms: 5 };
    rig.tokens.insert(key, row);
    let post = rig.post_with(&[&charge(r#""mine""#)], token);
    let text = rig.replied(post).expect("a record");
    assert!(text.contains(r#""id":"mine""#) && text.contains(r#""dev.rejoin/recorded":5"#));
    assert!(rig.opened(post).is_none() && rig.executed().is_empty());
}

#[test]
fn v12_a_replay_that_is_written_but_not_acknowledged_keeps_the_gate_closed() {
    let (mut rig, stream) = owing();
    rig.answer(rig.executed()[0]);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    let other = rig.post(&charge("1"));
    rig.wire(get, WireEvent::FinalHanded);
    rig.pass(5_000);
    assert_eq!(rig.executed().len(), 1, "a write proves nothing");
    rig.wire(other, WireEvent::HeadersAcknowledged);
    rig.wire(get, WireEvent::FinalAcknowledged);
    rig.pass(499);
    assert_eq!(rig.executed().len(), 1, "nor does the kernel, at once");
    rig.pass(1);
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn v13_a_replay_that_makes_no_progress_does_not_stop_the_session() {
    let (mut rig, stream) = owing();
    rig.answer(rig.executed()[0]);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    let refused = rig.post(&charge("1"));
    rig.pass(10_000);
    assert!(answer(&rig, refused).is_some_and(|text| text.contains("40905")));
    rig.lose(get, Seq::ORIGIN);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    rig.pass(59_999);
    assert_eq!(rig.session.view().replays, 1);
    rig.pass(1);
    assert_eq!(rig.session.view().replays, 0, "at replay_max the gate opens");
    assert_ne!(rig.state(stream), "owed");
    let _ = get;
    rig.post(&charge("2"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn v14_a_call_whose_server_says_nothing_is_given_up_and_its_params_are_free_again() {
    let (mut rig, stream) = owing();
    let slow = rig.executed()[0];
    let repeat = rig.post(&call("91", "slow", "{}"));
    assert_eq!(reason(&rig, repeat), Some(Reason::RequestInFlight));
    rig.pass(3_600_000 + 30_000);
    let cancelled = rig
        .effects
        .iter()
        .any(|e| matches!(e, Effect::Upstream(ToUpstream::Cancel { call, .. }) if *call == slow));
    assert!(cancelled);
    let repeat = rig.post(&call("92", "slow", "{}"));
    assert_eq!(reason(&rig, repeat), Some(Reason::OutcomeUnknown));
    rig.pass(610_000);
    rig.post(&call("93", "slow", "{}"));
    assert_eq!(rig.executed().len(), 2, "the window is over");
    assert_eq!(rig.state(stream), "abandoned");
}

#[test]
fn v14_v15_a_server_request_that_cannot_be_delivered_is_answered_with_an_error() {
    let (mut rig, _) = owing();
    let ask = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
    rig.upstream(ask);
    let sent = |rig: &Rig| {
        let sent = rig.effects.iter().filter_map(|effect| match effect {
            Effect::Upstream(ToUpstream::Send(bytes)) => Some(bytes.clone()),
            _ => None,
        });
        sent.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect::<Vec<_>>()
    };
    rig.pass(59_999);
    assert!(sent(&rig).is_empty());
    rig.pass(1);
    assert_eq!(sent(&rig).len(), 1);
    assert!(sent(&rig)[0].contains(r#""id":"q""#) && sent(&rig)[0].contains("error"));
}

#[test]
fn v16_a_reset_after_a_delivered_answer_neither_holds_others_nor_locks_its_params_for_long() {
    let mut rig = Rig::plain();
    let first = rig.post(&charge("1"));
    let stream = rig.opened(first).expect("it streams").stream;
    rig.answer(rig.executed()[0]);
    rig.deliver(first);
    rig.wire(first, WireEvent::Reset);
    assert_eq!(rig.state(stream), "doubtful");
    rig.post(&call("2", "other", "{}"));
    assert_eq!(rig.executed().len(), 2, "it gates nothing");
    rig.pass(600_000);
    assert_eq!(rig.state(stream), "released");
    rig.post(&charge("3"));
    assert_eq!(rig.executed().len(), 3);
}

#[test]
fn v17_the_standalone_stream_is_never_owed() {
    let mut rig = Rig::plain();
    rig.upstream(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    rig.post(&charge("1"));
    assert_eq!(rig.executed().len(), 1);
    let get = rig.get(None);
    let attach = rig.opened(get).expect("it streams").clone();
    assert_eq!(attach.after, Seq::ORIGIN, "what nobody got is sent first");
    rig.lose(get, Seq(1));
    rig.post(&call("2", "other", "{}"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn v18_two_parallel_identical_calls_with_different_tokens_both_run_at_once() {
    let mut rig = Rig::plain();
    rig.post_token(&charge("1"), "a");
    rig.post_token(&charge("2"), "b");
    assert_eq!(rig.executed().len(), 2);
    let again = rig.post_token(&charge("3"), "b");
    assert_eq!(reason(&rig, again), Some(Reason::RequestInFlight));
}

#[test]
fn v19_a_cancel_whose_id_names_two_running_calls_cancels_none() {
    let mut rig = Rig::plain();
    rig.post(&call("1", "a", "{}"));
    rig.post(&call("1", "b", "{}"));
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    rig.notify(cancel);
    let cancelled = |rig: &Rig| {
        let cancels = |e: &&Effect| matches!(e, Effect::Upstream(ToUpstream::Cancel { .. }));
        rig.effects.iter().filter(cancels).count()
    };
    assert_eq!(cancelled(&rig), 0);
    rig.answer(rig.executed()[0]);
    rig.notify(cancel);
    assert_eq!(cancelled(&rig), 1, "now it names one");
}
