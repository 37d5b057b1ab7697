//! What the caps of a session must never cost: an answer, or a second execution (design section 9).

mod support;

use rejoin_core::id::{EventId, Seq, StreamId};
use rejoin_core::input::{Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::{Delivery, Settings};
use support::{Rig, call};

fn refused(rig: &Rig, post: rejoin_core::id::ConnectionId) -> Option<Reason> {
    rig.refused(post).map(|rejection| rejection.reason)
}

fn bounded(change: impl FnOnce(&mut Settings)) -> Rig {
    let mut settings = Settings::default();
    change(&mut settings);
    Rig::new(settings)
}

fn last_call(rig: &Rig) -> u64 {
    rig.executed().last().expect("it runs").0
}

fn answer_with(rig: &mut Rig, bytes: usize) {
    let (call, text) = (last_call(rig), "x".repeat(bytes));
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"text":"{text}"}}}}"#));
}

#[test]
fn unread_notifications_make_way_for_an_answer() {
    let mut rig = bounded(|settings| settings.limits.session_log_bytes_max = 20_000);
    let text = "y".repeat(900);
    for _ in 0..40 {
        rig.upstream(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{text}"}}}}"#
        ));
    }
    let post = rig.post(&call("1", "charge", "{}"));
    answer_with(&mut rig, 15_000);
    let stream = rig.opened(post).expect("it streams").stream;
    let (_, answer) = rig.events_after(stream, Seq::ORIGIN)[0].clone();
    assert!(answer.contains("xxxx"), "the answer is kept: {}", &answer[..80]);
}

#[test]
fn a_burst_of_confirmed_answers_makes_way_for_the_next() {
    let mut rig = bounded(|settings| settings.limits.session_log_bytes_max = 20_000);
    for id in 1..=10 {
        let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
        let stream = rig.opened(post).expect("it streams").stream;
        answer_with(&mut rig, 6_000);
        let (seq, answer) = rig.events_after(stream, Seq::ORIGIN)[0].clone();
        assert!(answer.contains("xxxx"), "answer {id}: {}", &answer[..80]);
        rig.deliver(post);
        let id: EventId = rig.event_id(stream, seq);
        rig.feed(Input::Acknowledge(vec![id]));
    }
}

#[test]
fn a_call_whose_stream_had_to_be_forgotten_is_not_run_again_inside_the_window() {
    let mut rig = bounded(|settings| {
        settings.limits.session_streams_max = 4;
        settings.delivery = Delivery::Proved;
    });
    for id in 1..=8 {
        let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
        answer_with(&mut rig, 10);
        rig.deliver(post);
        rig.wire(post, WireEvent::Fin);
    }
    assert_eq!(rig.state(StreamId(1)), "gone");
    let repeat = rig.post(&call("9", "charge", r#"{"n":1}"#));
    assert_eq!(refused(&rig, repeat), Some(Reason::OutcomeUnknown));
    assert_eq!(rig.executed().len(), 8);
    rig.pass(Settings::default().limits.repeat_window_ms + 1_000);
    let later = rig.post(&call("10", "charge", r#"{"n":1}"#));
    assert_eq!((refused(&rig, later), rig.executed().len()), (None, 9));
}

#[test]
fn what_cannot_even_be_remembered_refuses_the_next_call_before_it_runs() {
    let mut rig = bounded(|settings| {
        settings.limits.session_streams_max = 4;
        settings.limits.forgotten_calls_max = 2;
        settings.delivery = Delivery::Proved;
    });
    let mut last = None;
    for id in 1..=8 {
        let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
        last = refused(&rig, post);
        if last.is_some() {
            break;
        }
        answer_with(&mut rig, 10);
        rig.deliver(post);
        rig.wire(post, WireEvent::Fin);
    }
    assert_eq!(last, Some(Reason::UpstreamUnavailable));
    assert_eq!(rig.executed().len(), 5, "three kept, two remembered");
}

#[test]
fn what_clients_have_goes_when_the_shared_quotas_are_nearly_used_up() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "charge", "{}"));
    answer_with(&mut rig, 5_000);
    rig.deliver(post);
    rig.wire(post, WireEvent::Fin);
    rig.pass(6_000);
    assert!(rig.session.log_bytes() > 5_000);
    rig.feed(Input::Room { bytes: 10 });
    assert_eq!(rig.session.log_bytes(), 0);
}
