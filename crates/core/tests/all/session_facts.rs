//! What the decision is told of a call (design sections 3 and 5): each window at its ends.

use crate::support::{Rig, call};
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::input::{FromUpstream, Input, WireEvent};
use rejoin_core::settings::{Delivery, Settings};

const MINUTE_MS: u64 = 60_000;

fn started(rig: &mut Rig) -> (ConnectionId, StreamId, CallId) {
    let post = rig.post(&call("1", "a", "{}"));
    let call = *rig.executed().last().expect("it runs");
    (post, rig.opened(post).expect("it streams").stream, call)
}

/// The row that decides an equal POST, and what it says.
fn repeat(rig: &mut Rig) -> (u8, &'static str) {
    let post = rig.post(&call("2", "a", "{}"));
    let (_, row, verdict) =
        *rig.decided().iter().find(|(id, ..)| *id == post).expect("it is decided");
    (row, verdict)
}

#[test]
fn a_twin_is_one_that_comes_within_the_window_and_not_at_its_end() {
    for (after_ms, verdict) in [(4_999, "probe"), (5_000, "wait")] {
        let mut rig = Rig::plain();
        started(&mut rig);
        rig.pass(after_ms);
        assert_eq!(repeat(&mut rig), (14, verdict), "after {after_ms} ms");
    }
}

#[test]
fn a_twin_of_a_connection_that_cannot_be_watched_needs_no_sign_of_life() {
    for (after_ms, decided) in [(4_999, (18, "claim")), (5_000, (14, "wait"))] {
        let mut rig = Rig::plain();
        rig.observed = false;
        started(&mut rig);
        rig.observed = true;
        rig.pass(after_ms);
        assert_eq!(repeat(&mut rig), decided, "after {after_ms} ms");
    }
}

#[test]
fn an_answer_that_its_client_confirmed_waits_for_no_reset() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig);
    rig.answer(call);
    rig.deliver(post);
    rig.feed(Input::Acknowledge(vec![rig.event_id(stream, 1)]));
    assert_eq!(rig.state(stream), "proved");
    assert_eq!(repeat(&mut rig), (18, "claim"));
}

#[test]
fn a_presumed_answer_waits_for_a_reset_until_none_counts() {
    for (after_ms, decided) in [(5_000, (15, "wait")), (5_001, (18, "claim"))] {
        let mut rig = Rig::plain();
        let (post, _, call) = started(&mut rig);
        rig.answer(call);
        rig.deliver(post);
        rig.pass(after_ms);
        assert_eq!(repeat(&mut rig), decided, "after {after_ms} ms");
    }
}

#[test]
fn a_resumed_answer_refuses_a_late_retry_until_its_grace_is_over() {
    for (after_ms, decided) in [(7_999, (13, "reject")), (8_000, (18, "claim"))] {
        let mut rig = Rig::plain();
        let (post, stream, call) = started(&mut rig);
        rig.lose(post, Seq::ORIGIN);
        rig.answer(call);
        let get = rig.get(Some(rig.event_id(stream, 0)));
        rig.deliver(get);
        rig.wire(get, WireEvent::Fin);
        rig.pass(after_ms);
        assert_eq!(repeat(&mut rig), decided, "after {after_ms} ms");
    }
}

#[test]
fn under_proved_a_presumed_answer_is_collected_until_its_own_window_is_over() {
    for (after_ms, decided) in [(1, (11, "collect")), (0, (18, "claim"))] {
        let settings = Settings { delivery: Delivery::Proved, ..Settings::default() };
        let mut rig = Rig::new(settings);
        let (post, _, call) = started(&mut rig);
        rig.answer(call);
        rig.pass(5 * MINUTE_MS);
        rig.deliver(post);
        rig.pass(10 * MINUTE_MS - after_ms);
        assert_eq!(repeat(&mut rig), decided);
    }
}

#[test]
fn the_window_of_a_lost_call_starts_with_its_loss_whenever_that_was_read() {
    for (after_ms, decided) in [(1, (7, "reject")), (0, (18, "claim"))] {
        let mut rig = Rig::plain();
        let (post, _, call) = started(&mut rig);
        rig.feed(Input::Upstream(FromUpstream::Lost(call)));
        rig.pass(5 * MINUTE_MS);
        rig.deliver(post);
        rig.wire(post, WireEvent::Fin);
        rig.pass(5 * MINUTE_MS - after_ms);
        assert_eq!(repeat(&mut rig), decided);
    }
}

#[test]
fn a_refusal_names_the_calls_of_the_owed_stream_that_may_still_produce() {
    let mut rig = Rig::plain();
    let bodies = [&*call("1", "a", "{}"), &*call("2", "b", "{}")];
    let post = rig.post_with(&bodies, None);
    rig.answer(rig.executed()[0]);
    rig.lose(post, Seq::ORIGIN);
    let again = rig.post(&call("3", "b", "{}"));
    let hint = rig.refused(again).expect("it runs").hint.clone().expect("resumable");
    assert_eq!(hint.in_flight, ["2"]);
}

#[test]
fn a_reset_that_is_too_late_is_not_waited_for_although_no_deadline_has_fired() {
    let mut rig = Rig::plain();
    let (post, _, call) = started(&mut rig);
    rig.answer(call);
    rig.deliver(post);
    rig.now_ms += 5_001;
    assert_eq!(repeat(&mut rig), (18, "claim"));
}

#[test]
fn a_repeat_that_replaces_one_call_of_an_owed_batch_waits_for_the_other() {
    let mut settings = Settings::default();
    settings.idempotent_tools.insert("a".to_owned());
    let mut rig = Rig::new(settings);
    let post = rig.post_with(&[&call("1", "a", "{}"), &call("3", "slow", "{}")], None);
    rig.lose(post, Seq::ORIGIN);
    assert_eq!(repeat(&mut rig), (16, "hold"));
}

/// How many calls the next equal request was compared with, itself among them.
fn compared(rig: &mut Rig) -> usize {
    rig.post(&call("9", "a", "{}"));
    rig.session.footprint().compared
}

#[test]
fn a_tool_that_is_polled_is_compared_with_its_last_calls_only() {
    let mut rig = Rig::plain();
    for _ in 0..100 {
        let post = rig.post(&call("1", "a", "{}"));
        rig.answer(*rig.executed().last().expect("it runs"));
        rig.deliver(post);
        rig.wire(post, WireEvent::NextRequest);
    }
    assert_eq!(compared(&mut rig), 1);
}

#[test]
fn a_resumed_call_is_compared_until_its_grace_is_over() {
    for (after_ms, count) in [(8_000, 2), (8_001, 1)] {
        let mut rig = Rig::plain();
        let (post, stream, call) = started(&mut rig);
        rig.lose(post, Seq::ORIGIN);
        rig.answer(call);
        let get = rig.get(Some(rig.event_id(stream, 0)));
        rig.deliver(get);
        rig.wire(get, WireEvent::Fin);
        rig.pass(after_ms);
        assert_eq!(compared(&mut rig), count, "after {after_ms} ms");
    }
}

#[test]
fn a_call_whose_stream_has_expired_is_compared_no_more() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig);
    rig.answer(call);
    rig.deliver(post);
    rig.wire(post, WireEvent::Reset);
    rig.pass(10 * MINUTE_MS);
    assert_eq!(rig.state(stream), "released");
    rig.pass(8_001);
    assert_eq!(compared(&mut rig), 1);
}
