//! What is written when, and what each move of a stream brings along (design sections 3 and 4).

use crate::support::{Rig, answer_to, call, parse, progress_of};
use rejoin_core::effect::Note;
use rejoin_core::id::{CallId, ConnectionId, Seq, StreamId};
use rejoin_core::input::{Input, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::session::Continuation;
use rejoin_core::settings::Settings;

fn started(rig: &mut Rig, tool: &str) -> (ConnectionId, StreamId, CallId) {
    let post = rig.post(&call("1", tool, "{}"));
    let call = *rig.executed().last().expect("it runs");
    (post, rig.opened(post).expect("it streams").stream, call)
}

fn presumed(rig: &mut Rig) -> (ConnectionId, StreamId) {
    let (post, stream, call) = started(rig, "a");
    rig.answer(call);
    rig.deliver(post);
    (post, stream)
}

#[test]
fn claims_and_answers_are_durable_before_they_leave_and_progress_is_not() {
    let mut rig = Rig::plain();
    let (_, _, call) = started(&mut rig, "a");
    assert!(rig.durable, "a claim");
    rig.progress(call, 1);
    assert!(!rig.durable, "progress");
    rig.answer(call);
    assert!(rig.durable, "an answer");
}

#[test]
fn a_refusal_on_a_stream_is_durable_too() {
    let mut settings = Settings::default();
    settings.limits.owed_grace_ms = None;
    let mut rig = Rig::new(settings);
    let (post, ..) = started(&mut rig, "a");
    rig.lose(post, Seq::ORIGIN);
    let held = rig.post(&call("2", "b", "{}"));
    rig.pass(9_999);
    let stream = rig.opened(held).expect("it waits with its head out").stream;
    rig.pass(1);
    assert!(rig.durable && !rig.events_after(stream, Seq::ORIGIN).is_empty());
}

#[test]
fn progress_that_was_taken_goes_in_small_pieces_once_the_log_is_full() {
    let mut settings = Settings::default();
    settings.limits.session_log_bytes_max = 64_000;
    let mut rig = Rig::new(settings);
    let (post, _, call) = started(&mut rig, "a");
    while rig.session.log_bytes() < 63_900 {
        rig.progress(call, 1);
    }
    let last = rig.log[&StreamId(1)].last().map(|event| event.seq);
    rig.wire(post, WireEvent::Progress { sent: last.expect("there is progress") });
    for _ in 0..5 {
        rig.progress(call, 2);
    }
    let bytes = rig.session.log_bytes();
    assert!((62_000..=64_000).contains(&bytes), "a 64th of the quota makes room: {bytes}");
}

#[test]
fn a_stream_that_is_where_it_should_be_does_not_move_there_again() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.lose(post, Seq::ORIGIN);
    rig.answer(call);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    rig.deliver(get);
    rig.wire(get, WireEvent::Fin);
    let end = rig.event_id(stream, 1);
    rig.feed(Input::Acknowledge(vec![end]));
    rig.pass(8_000);
    rig.feed(Input::Acknowledge(vec![end]));
    let moves = rig.notes().filter(|note| {
        let is_move = |from, to| from == to;
        matches!(note, Note::StreamMoved { from, to, .. } if is_move(from, to))
    });
    assert_eq!(moves.count(), 0);
    rig.post(&crate::support::call("2", "a", "{}"));
    assert_eq!(rig.executed().len(), 2, "proof that is told twice is not fresh again");
}

#[test]
fn a_resumed_answer_that_its_client_confirms_at_once_refuses_a_late_retry() {
    let mut rig = Rig::plain();
    let (post, stream, call) = started(&mut rig, "a");
    rig.lose(post, Seq::ORIGIN);
    rig.answer(call);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    rig.wire(get, WireEvent::FinalHanded);
    rig.feed(Input::Acknowledge(vec![rig.event_id(stream, 1)]));
    assert_eq!(rig.state(stream), "proved");
    rig.wire(get, WireEvent::FinalAcknowledged);
    let retry = rig.post(&crate::support::call("2", "a", "{}"));
    let reason = rig.refused(retry).map(|refused| refused.reason);
    assert_eq!(reason, Some(Reason::RequestInFlight));
}

#[test]
fn the_window_of_a_voided_answer_starts_with_the_reset() {
    let mut rig = Rig::plain();
    let (post, stream) = presumed(&mut rig);
    rig.pass(4_000);
    rig.wire(post, WireEvent::Reset);
    rig.pass(600_000 - 1);
    assert_eq!(rig.state(stream), "doubtful");
    rig.pass(1);
    assert_eq!(rig.state(stream), "released");
}

#[test]
fn a_tool_that_its_server_calls_idempotent_may_run_again_after_a_restart_too() {
    let settings = Settings { trust_annotations: true, ..Settings::default() };
    let mut rig = Rig::new(settings);
    rig.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let tools = r#"[{"name":"read","annotations":{"idempotentHint":true}}]"#;
    let list =
        |call: CallId| format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"tools":{tools}}}}}"#);
    rig.upstream(&list(CallId(1)));
    rig.restart();
    let post = rig.post(&call("2", "read", "{}"));
    rig.lose(post, Seq::ORIGIN);
    rig.post(&call("3", "read", "{}"));
    assert_eq!(rig.executed().len(), 3);
}

#[test]
fn only_a_list_of_tools_teaches_what_tools_mean() {
    let settings = Settings { trust_annotations: true, ..Settings::default() };
    let mut rig = Rig::new(settings);
    let (_, _, id) = started(&mut rig, "liar");
    let tools = r#"[{"name":"pay","annotations":{"idempotentHint":true}}]"#;
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":{tools}}}}}"#));
    let post = rig.post(&call("2", "pay", "{}"));
    rig.lose(post, Seq::ORIGIN);
    let repeat = rig.post(&call("3", "pay", "{}"));
    assert!(rig.refused(repeat).is_some());
}

#[test]
fn a_continuation_is_not_shown() {
    assert_eq!(format!("{:?}", Continuation::new("secret")), "Continuation(..)");
}

#[test]
fn a_repeat_under_the_same_id_in_other_bytes_is_no_resend() {
    let mut rig = Rig::plain();
    let (post, ..) = started(&mut rig, "a");
    rig.lose(post, Seq::ORIGIN);
    let meta =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{},"name":"a"}}"#;
    let again = rig.post(meta);
    let reason = rig.refused(again).map(|refused| refused.reason);
    assert_eq!(reason, Some(Reason::RequestInFlight));
}

#[test]
fn late_news_of_a_call_that_is_over_changes_nothing() {
    let mut rig = Rig::plain();
    let (_, stream, call) = started(&mut rig, "a");
    rig.answer(call);
    let events = rig.log[&stream].len();
    for text in [answer_to(call), progress_of(call, 9)] {
        rig.upstream(&text);
    }
    assert_eq!(rig.log[&stream].len(), events);
    rig.feed(Input::Respond(parse(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#)));
    rig.session.check().expect("consistent");
}
