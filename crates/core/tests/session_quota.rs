//! What the caps of a session must never cost: an answer, or a second execution (design section 9).

mod support;

use rejoin_core::id::{CallId, EventId, Seq, StreamId};
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
    let mut rig = bounded(|settings| support::cap_log(settings, 20_000));
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
    let mut rig = bounded(|settings| support::cap_log(settings, 20_000));
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

fn quotas(settings: &mut Settings) {
    settings.limits.session_log_bytes_max = 20_000;
    settings.limits.session_log_hard_bytes_max = 80_000;
}

/// Calls, answers and delivers `calls` answers of 6,000 bytes at one moment.
fn burst(rig: &mut Rig, calls: std::ops::RangeInclusive<u64>) -> Vec<Option<Reason>> {
    calls
        .map(|id| {
            let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
            let Some(stream) = rig.opened(post).map(|attach| attach.stream) else {
                return refused(rig, post);
            };
            answer_with(rig, 6_000);
            let (_, answer) = rig.events_after(stream, Seq::ORIGIN)[0].clone();
            assert!(answer.contains("xxxx"), "answer {id}: {}", &answer[..80]);
            rig.deliver(post);
            rig.wire(post, WireEvent::Fin);
            None
        })
        .collect()
}

#[test]
fn answers_that_a_reset_may_still_void_are_kept_beyond_the_quota_until_it_cannot() {
    let mut rig = bounded(quotas);
    assert_eq!(burst(&mut rig, 1..=9), [None; 9], "three times the quota, and all answered");
    assert!(rig.session.log_bytes() > 50_000);
    rig.pass(6_000);
    assert!(rig.session.log_bytes() <= 20_000, "{}", rig.session.log_bytes());
    assert_eq!(burst(&mut rig, 10..=18), [None; 9]);
    rig.session.check().expect("consistent");
}

#[test]
fn a_call_that_might_not_find_room_below_the_hard_limit_is_refused_before_it_runs() {
    let mut rig = bounded(quotas);
    let refusals = burst(&mut rig, 1..=12);
    let first = refusals.iter().position(Option::is_some).expect("the log is full");
    assert!(first >= 8, "{refusals:?}");
    assert!(refusals[first..].iter().all(|r| *r == Some(Reason::UpstreamUnavailable)));
    assert_eq!(rig.executed().len(), first);
    rig.pass(6_000);
    assert_eq!(burst(&mut rig, 20..=20), [None], "it may come again");
}

#[test]
fn progress_of_presumed_answers_goes_before_a_call_is_refused_and_their_responses_stay() {
    let mut rig = bounded(quotas);
    for id in 1..=30 {
        let post = rig.post(&call(&id.to_string(), "charge", &format!(r#"{{"n":{id}}}"#)));
        let stream = rig.opened(post).expect("it is admitted").stream;
        for progress in 0..60 {
            rig.progress(CallId(last_call(&rig)), progress);
        }
        answer_with(&mut rig, 100);
        rig.deliver(post);
        assert_eq!(rig.state(stream), "presumed");
    }
    let kept = rig.session.view().streams.iter().filter(|stream| stream.bytes > 0).count();
    assert_eq!(kept, 30, "every response is kept");
    assert!(rig.session.log_bytes() <= 80_000, "{}", rig.session.log_bytes());
    // A reset after all: the client resumes, is told the gap, and has the answer.
    let stream = StreamId(1);
    let get = rig.get(Some(rig.event_id(stream, 1)));
    let attach = rig.opened(get).expect("it resumes").clone();
    assert!(attach.gap.is_some() && attach.last_word.is_none(), "{attach:?}");
    rig.session.check().expect("consistent");
}

#[test]
fn an_upstream_is_asked_to_wait_beyond_the_quota_and_not_for_ever() {
    let mut rig = bounded(quotas);
    burst(&mut rig, 1..=3);
    assert!(!rig.session.asks_upstream_to_wait(rig.now_ms));
    burst(&mut rig, 4..=4);
    assert!(rig.session.asks_upstream_to_wait(rig.now_ms));
    rig.pass(6_000);
    assert!(!rig.session.asks_upstream_to_wait(rig.now_ms), "what had arrived made room");
    let post = rig.post(&call("9", "slow", "{}"));
    for progress in 0..400 {
        rig.progress(CallId(last_call(&rig)), progress);
    }
    assert!(rig.session.asks_upstream_to_wait(rig.now_ms), "{}", rig.session.log_bytes());
    rig.pass(10_000);
    assert!(!rig.session.asks_upstream_to_wait(rig.now_ms), "nothing can make room: it goes on");
    answer_with(&mut rig, 100);
    let stream = rig.opened(post).expect("it streams").stream;
    assert!(rig.events_after(stream, Seq::ORIGIN).last().expect("an answer").1.contains("xxxx"));
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
