//! Twins under `repeat_scope = "principal"`: two calls of one session share one row (design
//! section 2, "repeat"), and who has it when.

use crate::support::{Rig, call, parse, scope_key};
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::input::WireEvent;
use rejoin_core::settings::{RepeatScope, Settings};
use rejoin_core::token::{DedupRecord, Outcome};

const MINUTE_MS: u64 = 60_000;

fn scoped() -> Rig {
    Rig::new(Settings { repeat_scope: RepeatScope::Principal, ..Settings::default() })
}

fn charge(id: &str) -> String {
    call(id, "charge", r#"{"amount":5}"#)
}

fn row(rig: &Rig) -> &DedupRecord {
    &rig.tokens[&scope_key(&parse(&charge("1")))]
}

fn cancel(rig: &mut Rig, id: u32) {
    rig.notify(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    ));
}

/// Two equal calls that run at once, asked on purpose; the newer has the row.
fn twins() -> (Rig, [ConnectionId; 2]) {
    let mut rig = scoped();
    let first = rig.post(&charge("1"));
    let second = rig.post(&charge("2"));
    rig.wire(first, WireEvent::LivenessAcknowledged);
    rig.wire(second, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.executed(), [CallId(1), CallId(2)]);
    (rig, [first, second])
}

#[test]
fn the_older_twins_answer_does_not_take_the_row_while_the_newer_needs_it() {
    let (mut rig, _) = twins();
    rig.answer(CallId(1));
    assert_eq!((row(&rig).owner.call, &row(&rig).outcome), (CallId(2), &Outcome::Running));
}

#[test]
fn a_late_answer_gets_the_row_once_the_newer_twin_needs_it_no_longer() {
    for (after_ms, owner) in [(10 * MINUTE_MS - 1, 2), (10 * MINUTE_MS, 1)] {
        let (mut rig, _) = twins();
        cancel(&mut rig, 1);
        cancel(&mut rig, 2);
        assert_eq!((row(&rig).owner.call, &row(&rig).outcome), (CallId(2), &Outcome::Cancelled));
        rig.now_ms += after_ms;
        rig.answer(CallId(1));
        assert_eq!(row(&rig).owner.call, CallId(owner), "after {after_ms} ms");
    }
}

#[test]
fn a_lost_twin_keeps_the_row_until_its_window_ends_and_leaves_it_to_who_needs_it_longer() {
    let (mut rig, _) = twins();
    cancel(&mut rig, 2);
    rig.pass(MINUTE_MS);
    assert_eq!((row(&rig).owner.call, &row(&rig).outcome), (CallId(2), &Outcome::Cancelled));
    rig.pass(9 * MINUTE_MS);
    assert_eq!((row(&rig).owner.call, &row(&rig).outcome), (CallId(1), &Outcome::Running));
}

#[test]
fn the_row_of_a_running_call_outlives_its_session_by_a_window_and_that_of_an_owed_one_ends_sooner()
{
    let mut settings = Settings { repeat_scope: RepeatScope::Principal, ..Settings::default() };
    settings.limits.owed_grace_ms = None;
    let mut rig = Rig::new(settings);
    let post = rig.post(&charge("1"));
    for _ in 0..5 {
        rig.pass(7 * MINUTE_MS);
        let left_ms = row(&rig).expires_ms - rig.now_ms;
        assert!((10 * MINUTE_MS..=20 * MINUTE_MS).contains(&left_ms), "running: {left_ms} ms");
    }
    rig.answer(CallId(1));
    rig.lose(post, Seq::ORIGIN);
    for _ in 0..5 {
        rig.pass(7 * MINUTE_MS);
        let left_ms = row(&rig).expires_ms - rig.now_ms;
        assert!((1..=10 * MINUTE_MS).contains(&left_ms), "owed: {left_ms} ms");
    }
}

#[test]
fn an_answer_that_the_log_no_longer_has_is_given_from_its_own_row() {
    let mut settings = Settings { repeat_scope: RepeatScope::Principal, ..Settings::default() };
    crate::support::cap_log(&mut settings, 20_000);
    let mut rig = Rig::new(settings);
    let answer = |call: CallId, bytes: usize| {
        let pad = "x".repeat(bytes);
        format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"text":"{pad}"}}}}"#)
    };
    let post = rig.post(&charge("1"));
    rig.upstream(&answer(CallId(1), 7_000));
    rig.lose(post, Seq::ORIGIN);
    rig.pass(8_000);
    rig.post(&call("2", "other", "{}"));
    rig.upstream(&answer(CallId(2), 15_000));
    let gone = rig.evictions.iter().any(|gone| gone.stream == StreamId(1) && gone.responses_too);
    assert!(gone, "the first answer made way");
    let again = rig.post(&charge("3"));
    let stream = rig.opened(again).expect("it streams").stream;
    let events = rig.events_after(stream, Seq::ORIGIN);
    assert!(events[0].1.contains("xxxx"), "{}", events[0].1);
    assert_eq!(rig.executed().len(), 2);
}
