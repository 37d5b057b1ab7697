//! Batches (revision 2025-03-26): a verdict per request, one claim commit, one stream.

use crate::support::{Rig, call, parse};
use rejoin_core::effect::{Command, Effect};
use rejoin_core::id::{ConnectionId, Seq, StreamId, digest};
use rejoin_core::input::{FromUpstream, Input, Post, Request, WireEvent};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::Settings;

fn stream(rig: &Rig, connection: ConnectionId) -> StreamId {
    rig.opened(connection).expect("it streams").stream
}

fn texts(rig: &Rig, stream: StreamId) -> Vec<String> {
    rig.events_after(stream, Seq::ORIGIN).into_iter().map(|(_, text)| text).collect()
}

fn cancel(rig: &mut Rig, id: &str) {
    let params = format!(r#"{{"requestId":{id}}}"#);
    rig.notify(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#
    ));
}

fn ends(rig: &Rig, stream: StreamId) -> usize {
    rig.log.get(&stream).map_or(0, |events| events.iter().filter(|event| event.last).count())
}

#[test]
fn a_batch_runs_on_one_stream_that_ends_with_its_last_answer() {
    let mut rig = Rig::plain();
    let post = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    let stream = stream(&rig, post);
    let (a, b) = (rig.executed()[0], rig.executed()[1]);
    rig.answer(b);
    assert_eq!(ends(&rig, stream), 0);
    rig.wire(post, WireEvent::FinalHanded);
    assert_eq!(rig.state(stream), "live", "nothing final was handed over");
    rig.answer(a);
    assert_eq!(ends(&rig, stream), 1);
    assert!(texts(&rig, stream)[1].contains(r#""id":1"#));
}

#[test]
fn any_hold_holds_all_and_only_a_refusal_of_all_is_a_refusal() {
    let mut rig = Rig::plain();
    let owed = rig.post(&call("9", "slow", "{}"));
    rig.lose(owed, Seq::ORIGIN);
    let slow = rig.executed()[0];
    let mixed = rig.post_with(&[&call("1", "slow", "{}"), &call("2", "b", "{}")], None);
    let refused = rig.post_with(&[&call("3", "slow", "{}"), &call("4", "slow", "{}")], None);
    let found = |e: &Effect| {
        matches!(e, Effect::Refuse { connection, rejections, batch: true }
            if *connection == refused && rejections.len() == 2)
    };
    assert!(rig.effects.iter().any(found));
    assert!(rig.opened(mixed).is_none() && rig.executed().len() == 1);
    rig.pass(8_000);
    rig.wire(mixed, WireEvent::HeadersAcknowledged);
    assert_eq!(rig.executed().len(), 2);
    let stream = stream(&rig, mixed);
    assert!(texts(&rig, stream)[0].contains("40902"));
    rig.answer(rig.executed()[1]);
    assert_eq!(ends(&rig, stream), 1);
    rig.answer(slow);
}

#[test]
fn the_other_answers_of_a_batch_survive_a_cancel() {
    let mut rig = Rig::plain();
    let post = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    let stream = stream(&rig, post);
    let (a, b) = (rig.executed()[0], rig.executed()[1]);
    rig.answer(a);
    cancel(&mut rig, "2");
    assert_eq!(rig.state(stream), "live");
    assert!(rig.commands(post).is_empty());
    assert_eq!(ends(&rig, stream), 1, "it ends, with both answered");
    rig.lose(post, Seq::ORIGIN);
    let get = rig.get(Some(rig.event_id(stream, 0)));
    assert!(rig.opened(get).is_some());
    rig.answer(b);
    assert_eq!(ends(&rig, stream), 1, "a late result never ends it twice");
    rig.deliver(get);
    rig.wire(get, WireEvent::Fin);
    let again = rig.post(&call("3", "b", "{}"));
    assert!(texts(&rig, self::stream(&rig, again))[0].contains("dev.rejoin/recorded"));
}

#[test]
fn a_batch_whose_calls_are_all_cancelled_is_closed() {
    let mut rig = Rig::plain();
    let post = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    cancel(&mut rig, "1");
    assert!(rig.commands(post).is_empty());
    cancel(&mut rig, "2");
    assert_eq!(rig.commands(post), [Command::Finish { retry_ms: None }]);
    let get = rig.get(Some(rig.event_id(stream(&rig, post), 0)));
    assert!(rig.not_resumable(get));
}

#[test]
fn superseding_the_read_of_a_batch_keeps_what_is_owed_for_its_call() {
    let mut settings = Settings::default();
    settings.idempotent_tools.insert("read".to_owned());
    let mut rig = Rig::new(settings);
    let post = rig.post_with(&[&call("1", "charge", "{}"), &call("2", "read", "{}")], None);
    let (charge, read) = (rig.executed()[0], rig.executed()[1]);
    rig.answer(charge);
    rig.answer(read);
    let owed = stream(&rig, post);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(8_000);
    for id in ["3", "4"] {
        rig.post(&call(id, "read", "{}"));
    }
    assert_eq!(rig.executed().len(), 4);
    assert_eq!(rig.state(owed), "abandoned");
    assert_eq!(texts(&rig, owed).len(), 2, "what is answered is not answered again");
    let repeat = rig.post(&call("5", "charge", "{}"));
    assert!(texts(&rig, stream(&rig, repeat))[0].contains("dev.rejoin/recorded"));
    assert_eq!(rig.executed().len(), 4, "the charge ran once");
    rig.session.check().expect("consistent");
}

#[test]
fn two_requests_of_one_batch_collect_the_same_call() {
    let mut rig = Rig::plain();
    let first = rig.post(&call("1", "a", "{}"));
    rig.answer(rig.executed()[0]);
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    let batch = rig.post_with(&[&call("2", "a", "{}"), &call("3", "a", "{}")], None);
    let stream = stream(&rig, batch);
    let texts = texts(&rig, stream);
    assert!(texts[0].contains(r#""id":2"#) && texts[1].contains(r#""id":3"#), "{texts:?}");
    assert_eq!(rig.state(stream), "live");
    rig.lose(batch, Seq::ORIGIN);
    assert_eq!(rig.state(stream), "owed");
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn a_call_that_was_collected_from_a_batch_outlives_the_batchs_stream() {
    let mut settings = Settings::default();
    settings.limits.session_streams_max = 4;
    let mut rig = Rig::new(settings);
    let first = rig.post(&call("1", "a", "{}"));
    rig.answer(rig.executed()[0]);
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    let collect = rig.post(&call("2", "a", "{}"));
    rig.lose(collect, Seq::ORIGIN);
    rig.pass(8_000);
    for id in 3..9 {
        let post = rig.post(&call(&id.to_string(), "b", &format!(r#"{{"n":{id}}}"#)));
        let call = *rig.executed().last().expect("it runs");
        rig.answer(call);
        rig.deliver(post);
        rig.wire(post, WireEvent::NextRequest);
    }
    assert_eq!(rig.state(stream(&rig, first)), "gone", "the old stream was forgotten");
    let again = rig.post(&call("10", "a", "{}"));
    assert!(texts(&rig, stream(&rig, again))[0].contains("dev.rejoin/recorded"));
    rig.session.check().expect("consistent");
}

#[test]
fn an_unsent_call_of_a_batch_owes_nothing_and_the_others_still_do() {
    let mut rig = Rig::plain();
    let post = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    let (a, b) = (rig.executed()[0], rig.executed()[1]);
    rig.feed(Input::Upstream(FromUpstream::NotSent(a)));
    rig.lose(post, Seq(1));
    let stream = stream(&rig, post);
    assert_eq!(rig.state(stream), "owed");
    rig.feed(Input::Upstream(FromUpstream::NotSent(b)));
    assert_eq!(rig.state(stream), "released");
    rig.post(&call("3", "a", "{}"));
    assert_eq!(rig.executed().len(), 3);
}

#[test]
fn a_batch_of_reads_is_one_stream() {
    let mut rig = Rig::plain();
    let list = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
    let post = rig.post_with(&[&list(1), &list(2)], None);
    assert!(rig.opened(post).is_some());
    rig.answer(rig.executed()[0]);
    rig.answer(rig.executed()[1]);
    assert_eq!(ends(&rig, stream(&rig, post)), 1);
}

#[test]
fn a_refusal_inside_a_batch_is_never_owed() {
    let mut rig = Rig::plain();
    let first = rig.post(&call("1", "a", "{}"));
    cancel(&mut rig, "1");
    let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
    let batch = rig.post_with(&[&call("2", "a", "{}"), ping], None);
    let id = *rig.executed().last().expect("the ping");
    rig.answer(id);
    rig.lose(batch, Seq::ORIGIN);
    assert_eq!(rig.state(stream(&rig, batch)), "abandoned");
    let other = rig.post(&call("4", "b", "{}"));
    assert!(rig.refused(other).is_none() && rig.opened(other).is_some());
    assert!(rig.refused(first).is_none_or(|refused| refused.reason != Reason::Withdrawn));
}

#[test]
fn a_release_of_one_call_keeps_what_is_owed_for_the_others() {
    let mut rig = Rig::plain();
    let post = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    let (a, b) = (rig.executed()[0], rig.executed()[1]);
    rig.lose(post, Seq::ORIGIN);
    let stream = stream(&rig, post);
    rig.feed(Input::Release(a));
    assert_eq!(rig.state(stream), "owed");
    rig.feed(Input::Release(b));
    assert_eq!(rig.state(stream), "released");
}

#[test]
fn a_batch_of_one_read_is_answered_as_a_stream() {
    let mut rig = Rig::plain();
    let message = parse(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let requests = vec![Request { message, token: None, record: None, scope: None }];
    let (connection, body) = (rig.connection(), digest(b"[..]"));
    rig.feed(Input::Post(Post { connection, observed: true, requests, batch: true, body }));
    rig.answer(rig.executed()[0]);
    assert_eq!(ends(&rig, stream(&rig, connection)), 1);
    assert!(rig.replied(connection).is_none());
}

#[test]
fn collecting_one_answer_of_a_batch_leaves_the_other_to_be_collected() {
    let mut rig = Rig::plain();
    let post = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    rig.executed().into_iter().for_each(|call| rig.answer(call));
    let first = stream(&rig, post);
    rig.lose(post, Seq::ORIGIN);
    rig.pass(8_000);
    let one = rig.post(&call("3", "a", "{}"));
    assert_eq!(rig.state(first), "abandoned");
    rig.deliver(one);
    let two = rig.post(&call("4", "b", "{}"));
    assert!(texts(&rig, stream(&rig, two))[0].contains("dev.rejoin/recorded"));
    assert_eq!((rig.executed().len(), rig.state(first)), (2, "released"));
}

#[test]
fn a_late_result_that_is_collected_leaves_the_cancelled_stream_without_anything_to_resume() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    let first = stream(&rig, post);
    cancel(&mut rig, "1");
    rig.answer(rig.executed()[0]);
    let again = rig.post(&call("2", "a", "{}"));
    assert!(texts(&rig, stream(&rig, again))[0].contains("dev.rejoin/recorded"));
    let get = rig.get(Some(rig.event_id(first, 0)));
    assert!(rig.not_resumable(get));
}

#[test]
fn a_call_that_was_released_by_hand_stays_so_when_its_stream_is_resumed() {
    let mut rig = Rig::plain();
    let post = rig.post_with(&[&call("1", "a", "{}"), &call("2", "b", "{}")], None);
    let first = stream(&rig, post);
    rig.lose(post, Seq::ORIGIN);
    rig.feed(Input::Release(rig.executed()[0]));
    rig.get(Some(rig.event_id(first, 0)));
    rig.post(&call("3", "a", "{}"));
    assert_eq!(rig.executed().len(), 3);
}
