//! A log that fills: what is kept free, what goes, and who is asked to wait (design section 9).

use crate::support::{Rig, call, parse};
use rejoin_core::effect::{Effect, Note, ToUpstream};
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::input::{Channel, FromUpstream, Input, WireEvent};
use rejoin_core::session::BackPressure;
use rejoin_core::settings::Settings;

const QUOTA_BYTES: u64 = 20_000;

fn limited(hard_bytes_max: u64) -> Rig {
    let mut settings = Settings::default();
    settings.limits.session_log_bytes_max = QUOTA_BYTES;
    settings.limits.session_log_hard_bytes_max = hard_bytes_max;
    Rig::new(settings)
}

fn started(rig: &mut Rig, tool: &str) -> (ConnectionId, StreamId, CallId) {
    let post = rig.post(&call("1", tool, "{}"));
    let call = *rig.executed().last().expect("it runs");
    (post, rig.opened(post).expect("it streams").stream, call)
}

/// Progress of a call that takes exactly so many bytes in the log.
fn progress_bytes(rig: &mut Rig, call: CallId, bytes: usize) {
    let text = |pad: usize| {
        let pad = "x".repeat(pad);
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{call},"progress":1,"message":"{pad}"}}}}"#
        )
    };
    // Its client's token is 1: as long as the call's number here.
    let empty = text(0).len();
    assert!(call.0 < 10 && bytes >= empty, "{bytes} bytes hold no progress");
    rig.upstream(&text(bytes - empty));
}

fn answer_bytes(rig: &mut Rig, call: CallId, bytes: usize) {
    let pad = "x".repeat(bytes);
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"text":"{pad}"}}}}"#));
}

fn bytes(rig: &Rig, stream: StreamId) -> u64 {
    let view = rig.session.view();
    view.streams.iter().find(|view| view.id == stream).map_or(0, |view| view.bytes)
}

fn owed_evictions(rig: &Rig) -> Vec<bool> {
    let owed = rig.notes().filter_map(|note| match note {
        Note::Evicted { owed, .. } => Some(*owed),
        _ => None,
    });
    owed.collect()
}

#[test]
fn a_log_is_filling_once_it_is_beyond_half_of_its_quota() {
    let mut rig = limited(80_000);
    let (_, _, call) = started(&mut rig, "a");
    assert!(!rig.session.is_filling());
    progress_bytes(&mut rig, call, 10_000);
    assert!(!rig.session.is_filling(), "{}", rig.session.log_bytes());
    progress_bytes(&mut rig, call, 200);
    assert!(rig.session.is_filling(), "{}", rig.session.log_bytes());
}

#[test]
fn room_is_looked_for_a_tenth_of_a_second_after_the_quota_was_passed() {
    let mut rig = limited(80_000);
    let (_, _, call) = started(&mut rig, "a");
    progress_bytes(&mut rig, call, 20_000);
    let quiet = rig.session.poll_timeout();
    progress_bytes(&mut rig, call, 200);
    assert_ne!(quiet, Some(rig.now_ms + 100));
    assert_eq!(rig.session.poll_timeout(), Some(rig.now_ms + 100));
}

#[test]
fn what_is_kept_free_for_answers_is_no_room_for_progress() {
    // Half of the quota for each of two running calls: nothing is left.
    let mut rig = limited(QUOTA_BYTES);
    let (_, one, call) = started(&mut rig, "a");
    started(&mut rig, "b");
    progress_bytes(&mut rig, call, 200);
    assert_eq!(bytes(&rig, one), 0, "only that it was there is kept");
    answer_bytes(&mut rig, call, 9_000);
    assert!(bytes(&rig, one) > 9_000);
}

#[test]
fn confirmed_answers_go_before_any_progress_is_lost() {
    let mut rig = limited(80_000);
    let mut ends = Vec::new();
    for number in 0..8 {
        let (post, stream, call) = started(&mut rig, &format!("t{number}"));
        answer_bytes(&mut rig, call, 6_800);
        rig.deliver(post);
        ends.push(rig.event_id(stream, rig.events_after(stream, Seq::ORIGIN)[0].0));
    }
    rig.feed(Input::Acknowledge(ends));
    assert!(rig.session.log_bytes() > 54_000, "{}", rig.session.log_bytes());
    let (_, stream, call) = started(&mut rig, "last");
    progress_bytes(&mut rig, call, 19_000);
    assert_eq!(bytes(&rig, stream), 19_000, "it is kept");
    assert!(rig.session.log_bytes() <= 80_000);
}

#[test]
fn what_a_lost_connection_took_stays_for_who_resumes() {
    let mut rig = limited(80_000);
    let (post, owed, call) = started(&mut rig, "a");
    let (_, _, other) = started(&mut rig, "b");
    progress_bytes(&mut rig, call, 15_000);
    rig.lose(post, Seq(1));
    progress_bytes(&mut rig, other, 10_000);
    rig.pass(1_000);
    assert_eq!(bytes(&rig, owed), 15_000);
    let get = rig.get(Some(rig.event_id(owed, 0)));
    assert!(rig.opened(get).is_some_and(|attach| attach.gap.is_none()));
}

#[test]
fn all_are_asked_to_wait_but_where_some_are_far_behind_only_those() {
    let far_behind = BackPressure::Calls(vec![CallId(3)]);
    for (bytes, expected) in [(5_000, BackPressure::All), (5_001, far_behind)] {
        let mut rig = limited(80_000);
        assert_eq!(rig.session.back_pressure(rig.now_ms), BackPressure::None);
        for number in 1..=5 {
            let (_, _, call) = started(&mut rig, &format!("t{number}"));
            progress_bytes(&mut rig, call, if number == 3 { bytes } else { 5_000 });
        }
        assert_eq!(rig.session.back_pressure(rig.now_ms), expected, "{bytes} bytes behind");
    }
}

#[test]
fn what_its_client_has_goes_for_others_once_they_leave_less_than_a_call_needs() {
    for (left, gone) in [(65_536, false), (65_535, true)] {
        let mut rig = Rig::plain();
        let (post, stream, call) = started(&mut rig, "a");
        rig.answer(call);
        rig.deliver(post);
        rig.wire(post, WireEvent::Fin);
        rig.pass(10_000);
        rig.feed(Input::Room { bytes: left });
        assert_eq!(bytes(&rig, stream) == 0, gone, "{left} bytes are left");
    }
}

#[test]
fn a_question_at_the_cursor_of_who_resumes_was_read() {
    let mut rig = limited(80_000);
    let (post, stream, call) = started(&mut rig, "a");
    let message = parse(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    let channel = Channel::Call(call);
    rig.feed(Input::Upstream(FromUpstream::Message { channel, message, cursor: None }));
    for seq in 2..30 {
        progress_bytes(&mut rig, call, 1_000);
        rig.wire(post, WireEvent::Progress { sent: Seq(seq) });
    }
    assert!(!rig.evictions.is_empty(), "the oldest made way");
    assert!(owed_evictions(&rig).iter().all(|owed| !owed), "its client took them");
    rig.lose(post, Seq(29));
    rig.get(Some(rig.event_id(stream, 1)));
    let told = |e: &Effect| matches!(e, Effect::Upstream(ToUpstream::Send(_)));
    assert!(!rig.effects.iter().any(told), "its client may still answer it");
}

#[test]
fn unread_progress_that_is_dropped_is_told_as_owed_and_what_is_nobodys_is_not() {
    let mut rig = limited(QUOTA_BYTES);
    let (_, _, call) = started(&mut rig, "a");
    for _ in 0..12 {
        progress_bytes(&mut rig, call, 1_000);
    }
    let owed = owed_evictions(&rig);
    assert!(!owed.is_empty() && owed.iter().all(|owed| *owed), "{owed:?}");

    let mut rig = limited(QUOTA_BYTES);
    let text = "y".repeat(900);
    for _ in 0..40 {
        rig.upstream(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{text}"}}}}"#
        ));
    }
    started(&mut rig, "a");
    let owed = owed_evictions(&rig);
    assert!(!owed.is_empty() && owed.iter().all(|owed| !*owed), "{owed:?}");
}

#[test]
fn an_answer_can_go_after_its_progress_went() {
    let mut rig = limited(QUOTA_BYTES);
    let (post, stream, call) = started(&mut rig, "a");
    for _ in 0..3 {
        progress_bytes(&mut rig, call, 3_000);
    }
    answer_bytes(&mut rig, call, 1_000);
    rig.deliver(post);
    rig.wire(post, WireEvent::Fin);
    rig.pass(6_000);
    let (_, _, other) = started(&mut rig, "b");
    answer_bytes(&mut rig, other, 15_000);
    let left = bytes(&rig, stream);
    assert!((1_000..2_000).contains(&left), "its progress went first: {left}");
    rig.feed(Input::Room { bytes: 0 });
    assert_eq!(bytes(&rig, stream), 0);
}

#[test]
fn a_quarter_of_the_quota_may_be_in_transit_on_each_connection() {
    for (bytes, evicted) in [(5_000, false), (5_001, true)] {
        let mut rig = limited(80_000);
        for number in 1..=5 {
            let (post, _, call) = started(&mut rig, &format!("t{number}"));
            progress_bytes(&mut rig, call, bytes);
            rig.wire(post, WireEvent::Progress { sent: Seq(number) });
        }
        rig.pass(100);
        assert_eq!(!rig.evictions.is_empty(), evicted, "{bytes} bytes on each");
    }
}
