//! What a server does: answers, requests, its end and its return (design section 5).

use crate::support::{Rig, call, parse};
use rejoin_core::effect::{Effect, ToUpstream};
use rejoin_core::id::{ConnectionId, Seq, StreamId};
use rejoin_core::input::{Channel, FromUpstream, Input};
use rejoin_core::message::{Incoming, parse as parse_bytes};
use rejoin_core::rejection::Reason;
use rejoin_core::settings::Settings;

fn stream(rig: &Rig, connection: ConnectionId) -> StreamId {
    rig.opened(connection).expect("it streams").stream
}

fn reason(rig: &Rig, post: ConnectionId) -> Option<Reason> {
    rig.refused(post).map(|rejection| rejection.reason)
}

fn closed(rig: &mut Rig) {
    rig.feed(Input::Upstream(FromUpstream::Closed));
}

fn sent(rig: &Rig) -> Vec<String> {
    let sent = rig.effects.iter().filter_map(|effect| match effect {
        Effect::Upstream(ToUpstream::Send(bytes)) => Some(bytes.clone()),
        _ => None,
    });
    sent.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

fn list(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#)
}

#[test]
fn state_loss_is_told_once_to_a_call_that_must_not_run_unaware() {
    let mut rig = Rig::plain();
    closed(&mut rig);
    rig.post(&list(1));
    assert_eq!(rig.executed().len(), 1, "a read runs");
    let told = rig.post(&call("2", "a", "{}"));
    assert_eq!(reason(&rig, told), Some(Reason::StateLost));
    assert!(rig.refused(told).is_some_and(|refused| refused.send_again));
    rig.post(&call("3", "a", "{}"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn a_stateless_upstream_loses_nothing() {
    let mut rig = Rig::new(Settings { upstream_is_stateless: true, ..Settings::default() });
    closed(&mut rig);
    rig.post(&call("1", "a", "{}"));
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn a_server_that_returns_is_told_what_it_must_know_under_ids_of_no_call() {
    let mut rig = Rig::plain();
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let params = r#"{"level":"debug","_meta":{"progressToken":1}}"#;
    let method = "logging/setLevel";
    rig.post(&format!(r#"{{"jsonrpc":"2.0","id":3,"method":"{method}","params":{params}}}"#));
    let uri = |id: u32, method: &str, uri: &str| {
        let (method, params) = (format!("resources/{method}"), format!(r#"{{"uri":"{uri}"}}"#));
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    rig.post(&uri(4, "subscribe", "file:a"));
    rig.post(&uri(5, "subscribe", "file:b"));
    rig.post(&uri(6, "unsubscribe", "file:a"));
    for call in rig.executed() {
        rig.answer(call);
    }
    closed(&mut rig);
    rig.post(&list(7));
    let restore = rig.effects.iter().find_map(|effect| match effect {
        Effect::Upstream(ToUpstream::Reopen { restore }) => Some(restore.clone()),
        _ => None,
    });
    let restore = restore.expect("it is started again");
    let messages: Vec<_> = restore
        .iter()
        .map(|bytes| match parse_bytes(bytes.clone(), 64) {
            Ok(Incoming::One(message)) => message,
            other => panic!("{other:?}"),
        })
        .collect();
    let methods: Vec<_> = messages.iter().filter_map(|message| message.method()).collect();
    assert_eq!(methods, ["notifications/initialized", "logging/setLevel", "resources/subscribe"]);
    assert_eq!(messages[2].param("uri"), Some(&br#""file:b""#[..]));
    for message in &messages[1..] {
        let id = message.id_key().expect("a request");
        assert_eq!(id.as_u64(), None, "its answer must reach no call");
        assert_eq!(message.progress_token_raw(), None);
    }
    rig.feed(Input::Upstream(FromUpstream::Reopened { continuation: None }));
    let changed = rig.events_after(StreamId::STANDALONE, Seq::ORIGIN);
    assert_eq!(changed.iter().filter(|(_, text)| text.contains("list_changed")).count(), 3);
}

#[test]
fn a_claim_that_provably_never_left_is_released_and_owes_nothing() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    rig.feed(Input::Upstream(FromUpstream::NotSent(rig.executed()[0])));
    assert!(rig.events_after(stream(&rig, post), Seq::ORIGIN)[0].1.contains("40909"));
    rig.lose(post, Seq::ORIGIN);
    assert_eq!(rig.state(stream(&rig, post)), "abandoned", "never owed");
    rig.post(&call("2", "a", "{}"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn a_call_that_the_server_says_it_never_took_is_released_although_bytes_had_left() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    let id = rig.executed()[0];
    rig.feed(Input::Upstream(FromUpstream::Sent(id)));
    rig.feed(Input::Upstream(FromUpstream::NotSent(id)));
    assert!(rig.events_after(stream(&rig, post), Seq::ORIGIN)[0].1.contains("40909"));
    rig.post(&call("2", "a", "{}"));
    assert_eq!(rig.executed().len(), 2);
}

#[test]
fn a_call_that_was_lost_upstream_is_unknown_and_the_others_go_on() {
    let mut rig = Rig::plain();
    let lost = rig.post(&call("1", "a", "{}"));
    let other = rig.post(&call("2", "b", "{}"));
    for id in rig.executed() {
        rig.feed(Input::Upstream(FromUpstream::Sent(id)));
    }
    rig.feed(Input::Upstream(FromUpstream::Lost(rig.executed()[0])));
    assert!(rig.events_after(stream(&rig, lost), Seq::ORIGIN)[0].1.contains("40906"));
    rig.answer(rig.executed()[1]);
    assert!(rig.events_after(stream(&rig, other), Seq::ORIGIN)[0].1.contains("result"));
    let repeat = rig.post(&call("3", "a", "{}"));
    assert_eq!(reason(&rig, repeat), Some(Reason::OutcomeUnknown));
}

#[test]
fn what_was_cancelled_before_it_left_is_taken_back() {
    let mut rig = Rig::plain();
    rig.post(&call("1", "a", "{}"));
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    rig.feed(Input::Upstream(FromUpstream::NotSent(rig.executed()[0])));
    rig.post(&call("2", "a", "{}"));
    assert_eq!(rig.executed().len(), 2, "nobody need wonder about its outcome");
}

#[test]
fn json_answers_are_given_as_they_come_and_leave_nothing_behind() {
    let mut rig = Rig::plain();
    let gone = rig.post(&list(1));
    rig.feed(Input::Gone(gone));
    rig.answer(rig.executed()[0]);
    assert!(rig.replied(gone).is_none());
    let failing = rig.post(&list(2));
    rig.upstream(r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}"#);
    assert!(rig.replied(failing).is_some_and(|text| text.contains("-32602")));
    let unsent = rig.post(&list(3));
    rig.feed(Input::Upstream(FromUpstream::NotSent(rig.executed()[2])));
    assert_eq!(reason(&rig, unsent), Some(Reason::UpstreamUnavailable));
    let cancelled = rig.post(&list(4));
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#);
    assert!(rig.replied(cancelled).is_some_and(|text| text.contains("ancelled")));
    let lost = rig.post(&list(5));
    rig.feed(Input::Upstream(FromUpstream::Sent(rig.executed()[4])));
    closed(&mut rig);
    assert!(rig.replied(lost).is_some_and(|text| text.contains("40906")));
    let footprint = rig.session.footprint();
    assert_eq!((footprint.calls, footprint.replies), (0, 0));
}

#[test]
fn a_server_request_goes_to_the_only_running_call_else_to_the_standalone_stream() {
    let mut rig = Rig::plain();
    let ask = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;
    let post = rig.post(&call("1", "a", "{}"));
    rig.upstream(ask);
    rig.post(&call("2", "b", "{}"));
    rig.upstream(ask);
    let hint = FromUpstream::Message {
        channel: Channel::Call(rig.executed()[0]),
        message: parse(ask),
        cursor: None,
    };
    rig.feed(Input::Upstream(hint));
    let ids = |stream| {
        let events = rig.events_after(stream, Seq::ORIGIN);
        events.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };
    let of_call = ids(stream(&rig, post));
    assert!(of_call[0].contains(r#""id":1"#) && of_call[1].contains(r#""id":3"#), "{of_call:?}");
    assert!(ids(StreamId::STANDALONE)[0].contains(r#""id":2"#));
}

#[test]
fn what_came_beside_the_calls_goes_to_the_standalone_stream_while_its_client_listens() {
    let mut rig = Rig::plain();
    let first = rig.post(&call("1", "a", "{}"));
    let ended = rig.executed()[0];
    let ask = |rig: &mut Rig, channel| {
        let message = parse(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        rig.feed(Input::Upstream(FromUpstream::Message { channel, message, cursor: None }));
    };
    let count = |rig: &Rig, stream| rig.events_after(stream, Seq::ORIGIN).len();
    ask(&mut rig, Channel::Standalone);
    assert_eq!(count(&rig, stream(&rig, first)), 1, "nobody listens: the only running call");
    let listening = rig.get(None);
    ask(&mut rig, Channel::Standalone);
    assert_eq!(count(&rig, StreamId::STANDALONE), 1);
    ask(&mut rig, Channel::Unknown);
    ask(&mut rig, Channel::Call(ended));
    assert_eq!(count(&rig, stream(&rig, first)), 3);
    let note = parse(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    for channel in [Channel::Standalone, Channel::Call(ended)] {
        let message = note.clone();
        rig.feed(Input::Upstream(FromUpstream::Message { channel, message, cursor: None }));
    }
    assert_eq!((count(&rig, StreamId::STANDALONE), count(&rig, stream(&rig, first))), (2, 4));
    rig.answer(ended);
    let second = rig.post(&call("2", "b", "{}"));
    ask(&mut rig, Channel::Call(ended));
    assert_eq!(count(&rig, StreamId::STANDALONE), 3, "of an ended call, not of another");
    rig.lose(listening, Seq::ORIGIN);
    ask(&mut rig, Channel::Standalone);
    assert_eq!(count(&rig, stream(&rig, second)), 1);
    rig.post(&call("3", "c", "{}"));
    ask(&mut rig, Channel::Standalone);
    assert_eq!(count(&rig, StreamId::STANDALONE), 4, "it waits there");
}

#[test]
fn a_server_that_takes_its_request_back_is_passed_on_under_the_clients_id() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    rig.upstream(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    let back = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}"#;
    rig.upstream(back);
    let events = rig.events_after(stream(&rig, post), Seq::ORIGIN);
    assert!(events[1].1.contains(r#""requestId":1"#), "{events:?}");
    rig.upstream(r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#);
    rig.answer(rig.executed()[0]);
    rig.upstream(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"r"}}"#,
    );
    let last = rig.log[&stream(&rig, post)].last().expect("its answer");
    assert!(last.last, "nothing follows the end of a stream");
}

#[test]
fn requests_of_a_server_that_is_gone_are_neither_answered_nor_asked_again() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    rig.upstream(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    closed(&mut rig);
    let before = sent(&rig).len();
    rig.feed(Input::Respond(parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)));
    assert_eq!(sent(&rig).len(), before);
    let get = rig.get(Some(rig.event_id(stream(&rig, post), 0)));
    assert_eq!(rig.opened(get).map(|attach| attach.skip.clone()), Some(vec![Seq(1)]));
}

#[test]
fn server_requests_are_bounded_and_the_oldest_is_refused_first() {
    let mut settings = Settings::default();
    settings.limits.session_streams_max = 8;
    let mut rig = Rig::new(settings);
    rig.get(None);
    for id in 0..20 {
        rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":"q{id}","method":"roots/list"}}"#));
    }
    assert_eq!(rig.session.footprint().server_requests, 8);
    let refused = sent(&rig);
    assert_eq!(refused.len(), 12);
    assert!(refused[0].contains(r#""q0""#) && refused[0].contains("error"));
}

#[test]
fn progress_reaches_only_the_call_whose_token_it_carries_under_the_clients_own_token() {
    let mut rig = Rig::plain();
    let params = r#"{"name":"a","_meta":{"progressToken":"mine"}}"#;
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let post = rig.post(&body);
    let other = rig.post(&call("2", "b", "{}"));
    rig.progress(rig.executed()[0], 5);
    rig.progress(rejoin_core::id::CallId(99), 1);
    let events = rig.events_after(stream(&rig, post), Seq::ORIGIN);
    assert!(events.len() == 1 && events[0].1.contains(r#""progressToken":"mine""#), "{events:?}");
    assert!(rig.events_after(stream(&rig, other), Seq::ORIGIN).is_empty());
    assert!(rig.events_after(StreamId::STANDALONE, Seq::ORIGIN).is_empty());
}

#[test]
fn a_call_of_which_anything_is_heard_is_not_given_up() {
    let mut rig = Rig::plain();
    rig.post(&call("1", "a", "{}"));
    let call = rig.executed()[0];
    let note = parse(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    for _ in 0..4 {
        rig.pass(3_000_000);
        let event = FromUpstream::Message {
            channel: Channel::Call(call),
            message: note.clone(),
            cursor: None,
        };
        rig.feed(Input::Upstream(event));
    }
    assert_eq!(rig.session.view().calls[0].phase, "claimed");
}

#[test]
fn a_response_that_comes_twice_or_for_no_call_is_ignored() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    let id = rig.executed()[0];
    rig.answer(id);
    rig.answer(id);
    rig.upstream(r#"{"jsonrpc":"2.0","id":"restore-1","result":{}}"#);
    rig.upstream(r#"{"jsonrpc":"2.0","id":77,"result":{}}"#);
    assert_eq!(rig.log[&stream(&rig, post)].len(), 1);
}

#[test]
fn a_session_gone_upstream_is_told_once_by_the_call_that_met_it() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    rig.feed(Input::Upstream(FromUpstream::SessionGone(vec![rig.executed()[0]])));
    assert!(rig.events_after(stream(&rig, post), Seq::ORIGIN)[0].1.contains("40907"));
    let again = rig.post(&call("2", "a", "{}"));
    assert_eq!((reason(&rig, again), rig.executed().len()), (None, 2), "told once");
    let read = rig.post(&list(3));
    rig.feed(Input::Upstream(FromUpstream::SessionGone(vec![rig.executed()[2]])));
    assert_eq!(reason(&rig, read), Some(Reason::UpstreamUnavailable));
}

#[test]
fn a_session_gone_upstream_under_a_call_that_was_given_up_is_still_to_be_told() {
    let mut rig = Rig::plain();
    rig.post(&call("1", "a", "{}"));
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    rig.feed(Input::Upstream(FromUpstream::SessionGone(vec![rig.executed()[0]])));
    let next = rig.post(&call("2", "a", "{}"));
    assert_eq!(reason(&rig, next), Some(Reason::StateLost));
}

#[test]
fn a_session_gone_upstream_loses_what_it_took_before_and_frees_what_it_did_not() {
    let mut rig = Rig::plain();
    let taken = rig.post(&call("1", "a", "{}"));
    rig.feed(Input::Upstream(FromUpstream::Sent(rig.executed()[0])));
    let not_taken = rig.post(&call("2", "b", "{}"));
    rig.feed(Input::Upstream(FromUpstream::SessionGone(vec![rig.executed()[1]])));
    let first = |rig: &Rig, post| rig.events_after(stream(rig, post), Seq::ORIGIN)[0].1.clone();
    assert!(first(&rig, taken).contains("40906") && first(&rig, not_taken).contains("40907"));
    rig.post(&call("3", "b", "{}"));
    assert_eq!(rig.executed().len(), 3);
}

#[test]
fn a_server_takes_back_only_the_request_that_it_names_and_only_once() {
    let mut rig = Rig::plain();
    let post = rig.post(&call("1", "a", "{}"));
    let stream = stream(&rig, post);
    for id in ["q", "r"] {
        rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"roots/list"}}"#));
    }
    let cancel =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"r"}}"#;
    rig.upstream(cancel);
    rig.upstream(cancel);
    let events = rig.events_after(stream, Seq(2));
    assert!(events.len() == 1 && events[0].1.contains(r#""requestId":2"#), "{events:?}");
}

#[test]
fn a_request_of_the_server_without_room_leaves_nothing_in_the_log() {
    let mut settings = Settings::default();
    crate::support::cap_log(&mut settings, 1_000);
    let mut rig = Rig::new(settings);
    let post = rig.post(&call("1", "a", "{}"));
    let stream = stream(&rig, post);
    let text = "x".repeat(2_000);
    rig.upstream(&format!(
        r#"{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{{"m":"{text}"}}}}"#
    ));
    rig.upstream(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{text}"}}}}"#
    ));
    assert!(!rig.log.contains_key(&stream) && rig.log.is_empty(), "{:?}", rig.log);
}

#[test]
fn a_cancel_says_in_the_log_whether_it_named_none_or_several() {
    let mut rig = Rig::plain();
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    rig.notify(cancel);
    rig.post(&call("1", "a", "{}"));
    rig.post(&call("1", "b", "{}"));
    rig.notify(cancel);
    let noted = rig.notes().filter_map(|note| match note {
        rejoin_core::effect::Note::Ignored(what) => Some(*what),
        _ => None,
    });
    assert_eq!(noted.collect::<Vec<_>>(), ["cancel of no call", "cancel of several calls"]);
}

#[test]
fn the_four_errors_that_say_that_a_call_never_ran_free_it_and_no_other_does() {
    for (code, runs) in [
        (-32_700, true),
        (-32_600, true),
        (-32_601, true),
        (-32_602, true),
        (-32_603, false),
        (32_602, false),
    ] {
        let mut rig = Rig::plain();
        rig.post(&call("1", "a", "{}"));
        let error = format!(r#"{{"code":{code},"message":"no"}}"#);
        rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
        rig.post(&call("2", "a", "{}"));
        assert_eq!(rig.executed().len() == 2, runs, "{code}");
    }
}

#[test]
fn a_read_that_its_client_cancels_is_answered_as_cancelled() {
    let mut rig = Rig::plain();
    let post = rig.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert!(rig.replied(post).is_some_and(|text| text.contains(r#""code":-32800"#)));
}

fn cancel(rig: &mut Rig, id: &str) {
    let params = format!(r#"{{"requestId":{id},"reason":"slow"}}"#);
    rig.notify(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#
    ));
}

/// What the server is told of cancelled calls, and under which of them.
fn cancels(rig: &Rig) -> Vec<(u64, String)> {
    let told = rig.effects.iter().filter_map(|effect| match effect {
        Effect::Upstream(ToUpstream::Cancel { call, message }) => Some((call.0, message)),
        _ => None,
    });
    told.map(|(call, message)| (call, String::from_utf8_lossy(message).into_owned())).collect()
}

#[test]
fn a_cancel_is_forwarded_to_the_server_under_the_id_that_it_knows_the_call_by() {
    let mut rig = Rig::plain();
    rig.post(&call("\"one\"", "a", "{}"));
    rig.post(&call("\"two\"", "b", "{}"));
    let second = rig.executed()[1];
    cancel(&mut rig, "\"two\"");
    let message = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{second},"reason":"slow"}}}}"#
    );
    assert_eq!(cancels(&rig), [(second.0, message)]);
    cancel(&mut rig, "\"two\"");
    assert_eq!(cancels(&rig).len(), 1, "it is cancelled already");
}

#[test]
fn a_cancel_of_a_call_that_never_went_to_the_server_or_has_ended_is_not_forwarded() {
    let mut rig = Rig::plain();
    let first = rig.post(&call("1", "a", "{}"));
    rig.lose(first, Seq::ORIGIN);
    rig.post(&call("2", "b", "{}"));
    assert_eq!(rig.executed().len(), 1, "it waits for what is owed");
    cancel(&mut rig, "2");
    rig.pass(20_000);
    assert_eq!((rig.executed().len(), cancels(&rig)), (1, Vec::new()), "nor does it run later");
    let refused = rig.post(&call("3", "a", "{}"));
    assert_eq!(reason(&rig, refused), Some(Reason::RequestInFlight));
    for id in ["3", "4", "\"1\""] {
        cancel(&mut rig, id);
    }
    rig.answer(rig.executed()[0]);
    cancel(&mut rig, "1");
    assert_eq!(cancels(&rig), Vec::new());
}
