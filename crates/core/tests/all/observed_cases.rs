//! The two cases that the project was founded on, with their own numbers (design section 1).

use crate::support::{Rig, call};
use rejoin_core::id::{Seq, SessionId};
use rejoin_core::input::WireEvent;
use rejoin_core::migration::{SessionStreamState, authorize_post_migration};
use rejoin_core::rejection::Reason;

/// A session whose log stands at event 99, with R running and events 100..=142 on its stream: 142
/// is the first chunk of R's answer. Its connection carried all of them, and is lost.
fn dropped_at_142() -> (Rig, rejoin_core::id::StreamId, rejoin_core::id::CallId) {
    let mut rig = Rig::plain();
    for _ in 0..99 {
        rig.upstream(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    }
    let post = rig.post(&call("7", "charge", r#"{"amount":5}"#));
    let stream = rig.opened(post).expect("R streams").stream;
    let r = rig.executed()[0];
    for progress in 100..=142 {
        rig.progress(r, progress);
    }
    rig.lose(post, Seq(142));
    assert_eq!(rig.events_after(stream, Seq::ORIGIN).last().map(|(seq, _)| *seq), Some(142));
    (rig, stream, r)
}

#[test]
fn a_repeat_of_r_is_rejected_and_the_tail_143_to_149_is_delivered_by_get() {
    let (mut rig, stream, r) = dropped_at_142();
    for progress in 143..=148 {
        rig.progress(r, progress);
    }
    let repeat = rig.post(&call("8", "charge", r#"{"amount":5}"#));
    let rejection = rig.refused(repeat).expect("R' is refused").clone();
    assert_eq!(rejection.reason, Reason::RequestInFlight);
    assert_eq!(&rejection.request_id[..], b"8");

    rig.answer(r);
    let again = rig.post(&call("9", "charge", r#"{"amount":5}"#));
    let rejection = rig.refused(again).expect("R' is refused").clone();
    assert_eq!(rejection.reason, Reason::StreamNotDrained);
    assert_eq!(rig.executed(), [r], "the tool ran once");
    assert_eq!(rig.log.values().flatten().map(|event| event.seq.0).max(), Some(149));

    let get = rig.get(Some(rig.event_id(stream, 142)));
    let attach = rig.opened(get).expect("the stream resumes").clone();
    assert_eq!((attach.stream, attach.after), (stream, Seq(142)));
    assert_eq!(attach.replay_until, Some(rig.event_id(stream, 149)));
    let tail: Vec<_> = rig.events_after(stream, Seq(142)).iter().map(|(seq, _)| *seq).collect();
    assert_eq!(tail, (143..=149).collect::<Vec<_>>());
}

#[test]
fn a_new_call_posted_beside_the_get_is_held_and_answered_after_rs_completion() {
    let (mut rig, stream, r) = dropped_at_142();
    for progress in 143..=148 {
        rig.progress(r, progress);
    }
    rig.answer(r);
    let get = rig.get(Some(rig.event_id(stream, 142)));
    let other = rig.post(&call("200", "charge", r#"{"amount":6}"#));
    assert_eq!(rig.executed(), [r], "R'' waits");
    assert!(rig.opened(other).is_none() && rig.refused(other).is_none());

    rig.deliver(get);
    assert_eq!(rig.executed(), [r], "acknowledged is not read: the gate settles first");
    rig.wire(get, WireEvent::Fin);
    let held = rig.opened(other).expect("its headers go first").clone();
    assert_eq!(rig.executed(), [r], "its own connection must prove that it lives");
    rig.wire(other, WireEvent::HeadersAcknowledged);
    let r2 = rig.executed()[1];
    rig.answer(r2);
    let (seq, _) = rig.events_after(held.stream, Seq::ORIGIN)[0].clone();
    assert!(seq > 149, "nothing of R'' stands before R's completion: {seq}");
    assert_eq!(rig.state(stream), "presumed");
}

#[test]
fn the_plain_rule_rejects_both_cases_as_the_session_does() {
    let (rig, stream, _) = dropped_at_142();
    let state = |delivered, produced, in_flight: &[&str]| SessionStreamState {
        session_id: SessionId::new("session"),
        last_delivered_event_id: Some(rig.event_id(stream, delivered)),
        last_produced_event_id: Some(rig.event_id(stream, produced)),
        in_flight_requests: in_flight.iter().map(|id| (*id).to_owned()).collect(),
    };
    let judge = |state: &SessionStreamState| {
        authorize_post_migration(state, "8", false, None, false).is_ok()
    };
    assert!(!judge(&state(142, 149, &["7"])));
    assert!(!judge(&state(142, 149, &[])));
    assert!(!judge(&state(149, 149, &["7"])));
    assert!(authorize_post_migration(&state(149, 149, &[]), "8", true, None, false).is_ok());
}
