//! A session whose server outlives the process: what goes on after a restart, and what does not.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use crate::support::{Rig, answer_to, call, parse, progress_of};
use rejoin_core::effect::{Effect, ToUpstream};
use rejoin_core::id::{CallId, Seq, StreamId};
use rejoin_core::input::{Channel, FromUpstream, Input, WireEvent};
use rejoin_core::ledger::{Call, Phase};
use rejoin_core::session::{Continuation, SessionRow, UpstreamCursor};
use rejoin_core::settings::Settings;

/// After it, an owed stream holds nothing.
const GRACE_MS: u64 = 8_001;

/// What the upstream was asked to continue with, last.
#[derive(Debug, PartialEq, Eq)]
struct Continued {
    continuation: String,
    is_initialized: bool,
    calls: Vec<(CallId, UpstreamCursor)>,
    standalone: Option<UpstreamCursor>,
}

fn continued(rig: &Rig) -> Option<Continued> {
    rig.effects.iter().rev().find_map(|effect| match effect {
        Effect::Upstream(ToUpstream::Continue {
            continuation,
            is_initialized,
            calls,
            standalone,
        }) => Some(Continued {
            continuation: continuation.expose().to_owned(),
            is_initialized: *is_initialized,
            calls: calls.clone(),
            standalone: standalone.clone(),
        }),
        _ => None,
    })
}

fn phase(rig: &Rig, call: CallId) -> &'static str {
    let view = rig.session.view();
    view.calls.iter().find(|view| view.id == call).map_or("gone", |view| view.phase)
}

/// A call that runs, as far as its server has said something with this cursor.
fn running(rig: &mut Rig, id: &str, cursor: Option<&str>) -> (CallId, StreamId) {
    let post = rig.post(&call(id, &format!("tool{id}"), "{}"));
    let stream = rig.opened(post).unwrap().stream;
    let call = *rig.executed().last().unwrap();
    rig.feed(Input::Upstream(FromUpstream::Sent(call)));
    if let Some(cursor) = cursor {
        rig.say(call, &progress_of(call, 1), cursor);
    }
    (call, stream)
}

fn stateless() -> Settings {
    Settings { upstream_is_stateless: true, ..Settings::default() }
}

#[test]
fn a_running_call_goes_on_where_its_stream_stood_and_ends_in_its_result() {
    let mut rig = Rig::continued(Settings::default());
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let (id, stream) = running(&mut rig, "1", Some("at 1"));
    rig.say(id, &progress_of(id, 2), "at 2");
    rig.restart();
    let calls = vec![(id, "at 2".into())];
    let continuation = "server session 1".to_owned();
    let expected = Continued { continuation, is_initialized: true, calls, standalone: None };
    assert_eq!(continued(&rig), Some(expected));
    assert_eq!((phase(&rig, id), rig.state(stream)), ("sent", "owed"));
    let repeat = rig.post(&call("2", "tool1", "{}"));
    assert_eq!(rig.refused(repeat).map(|refused| refused.reason.name()), Some("request_in_flight"));
    let get = rig.get(Some(rig.event_id(stream, 1)));
    rig.wire(get, WireEvent::ReplayAcknowledged);
    rig.say(id, &progress_of(id, 3), "at 3");
    rig.say(id, &answer_to(id), "at 4");
    rig.deliver(get);
    rig.pass(1_000);
    assert_eq!((phase(&rig, id), rig.state(stream)), ("finished", "presumed"));
    let numbers = rig.events_after(stream, Seq::ORIGIN).len();
    assert_eq!(numbers, 4, "three of progress and the result");
    assert_eq!(rig.executed(), [id], "nothing was sent again");
    let next = rig.post(&call("3", "other", "{}"));
    assert!(rig.opened(next).is_some(), "no state was lost");
}

#[test]
fn a_cursor_is_in_the_batch_of_what_it_covers_and_gone_with_its_call() {
    let mut rig = Rig::continued(Settings::default());
    let (id, _) = running(&mut rig, "1", None);
    assert_eq!(rig.rows.calls[&id].upstream_cursor, None);
    let channel = Channel::Call(id);
    let cursor = Some("primed".into());
    rig.feed(Input::Upstream(FromUpstream::Cursor { channel, cursor }));
    assert_eq!(rig.rows.calls[&id].upstream_cursor.as_deref(), Some("primed"));
    rig.say(id, &progress_of(id, 1), "at 1");
    assert_eq!(rig.rows.calls[&id].upstream_cursor.as_deref(), Some("at 1"));
    // Dropped, as nobody asked for it: it need not come again.
    rig.say(id, &progress_of(CallId(999), 1), "at 2");
    assert_eq!(rig.rows.calls[&id].upstream_cursor.as_deref(), Some("at 2"));
    rig.say(id, &answer_to(id), "at 3");
    let row = &rig.rows.calls[&id];
    assert_eq!((row.phase, &row.upstream_cursor), (Phase::Finished, &None));
}

#[test]
fn what_cannot_be_picked_up_is_unknown_and_the_session_goes_on() {
    let mut rig = Rig::continued(Settings::default());
    let (silent, _) = running(&mut rig, "1", None);
    let (reset, _) = running(&mut rig, "2", Some("at 1"));
    let channel = Channel::Call(reset);
    rig.feed(Input::Upstream(FromUpstream::Cursor { channel, cursor: None }));
    rig.post(&call("3", "tool3", "{}"));
    let claimed = *rig.executed().last().unwrap();
    let (whole, _) = running(&mut rig, "4", Some("at 1"));
    // A read that is answered as JSON: nobody waits for that any more.
    rig.post(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{}}"#);
    let read = *rig.executed().last().unwrap();
    rig.feed(Input::Upstream(FromUpstream::Sent(read)));
    rig.say(read, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, "at 1");
    rig.restart();
    assert_eq!(continued(&rig).unwrap().calls, [(whole, "at 1".into())]);
    let phases = [silent, reset, claimed, whole, read].map(|call| phase(&rig, call));
    assert_eq!(phases, ["unknown", "unknown", "unknown", "sent", "gone"]);
    rig.pass(GRACE_MS);
    let next = rig.post(&call("9", "other", "{}"));
    assert!(rig.opened(next).is_some(), "no state was lost");
}

#[test]
fn an_upstream_that_cannot_go_on_makes_its_calls_unknown_and_its_state_lost() {
    let mut rig = Rig::continued(Settings::default());
    let (id, stream) = running(&mut rig, "1", Some("at 1"));
    rig.restart();
    rig.feed(Input::Upstream(FromUpstream::Closed));
    assert_eq!(phase(&rig, id), "unknown");
    assert!(rig.events_after(stream, Seq(1))[0].1.contains("40906"));
    rig.pass(GRACE_MS);
    let next = rig.post(&call("2", "other", "{}"));
    assert_eq!(rig.refused(next).map(|refused| refused.reason.name()), Some("state_lost"));
    assert_eq!(rig.executed(), [id]);
}

#[test]
fn a_server_that_was_gone_is_not_continued() {
    let mut rig = Rig::continued(Settings::default());
    running(&mut rig, "1", Some("at 1"));
    rig.feed(Input::Upstream(FromUpstream::Closed));
    assert_eq!(rig.rows.row.continuation, None);
    rig.restart();
    assert_eq!(continued(&rig), None);
    assert!(rig.session.view().upstream_down);
}

#[test]
fn a_server_that_was_opened_again_is_continued_as_that_and_its_loss_is_still_to_be_told() {
    let mut rig = Rig::continued(Settings::default());
    let told = |rig: &mut Rig, cursor: &'static str| {
        let (channel, message) =
            (Channel::Standalone, parse(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#));
        let cursor = Some(cursor.into());
        rig.feed(Input::Upstream(FromUpstream::Message { channel, message, cursor }));
    };
    told(&mut rig, "old 1");
    rig.feed(Input::Upstream(FromUpstream::Closed));
    let continuation = Some(Continuation::new("server session 2"));
    rig.feed(Input::Upstream(FromUpstream::Reopened { continuation }));
    rig.restart();
    let seen = continued(&rig).unwrap();
    assert_eq!((&*seen.continuation, seen.standalone), ("server session 2", None));
    told(&mut rig, "new 1");
    rig.restart();
    assert_eq!(continued(&rig).unwrap().standalone.as_deref(), Some("new 1"));
    let next = rig.post(&call("2", "other", "{}"));
    assert_eq!(rig.refused(next).map(|refused| refused.reason.name()), Some("state_lost"));
    rig.restart();
    let again = rig.post(&call("3", "other", "{}"));
    assert!(rig.opened(again).is_some(), "it was told");
}

#[test]
fn a_request_of_the_server_is_answered_under_its_own_id_after_the_restart() {
    let mut rig = Rig::continued(stateless());
    let (id, stream) = running(&mut rig, "1", None);
    let ask = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"roots/list"}}"#);
    rig.say(id, &ask("a"), "at 1");
    rig.say(id, &ask("b"), "at 2");
    rig.feed(Input::Respond(parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)));
    rig.restart();
    let sent = |rig: &Rig| -> Vec<String> {
        let sent = rig.effects.iter().filter_map(|effect| match effect {
            Effect::Upstream(ToUpstream::Send(bytes)) => {
                Some(String::from_utf8_lossy(bytes).into_owned())
            }
            _ => None,
        });
        sent.collect()
    };
    let before = sent(&rig).len();
    rig.feed(Input::Respond(parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)));
    assert_eq!(sent(&rig).len(), before, "it was answered already");
    rig.feed(Input::Respond(parse(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#)));
    assert_eq!(sent(&rig)[before..], [r#"{"jsonrpc":"2.0","id":"b","result":{}}"#]);
    // A number is never given out again.
    rig.say(id, &ask("c"), "at 3");
    let events = rig.events_after(stream, Seq::ORIGIN);
    let last = &events.last().unwrap().1;
    assert!(!last.contains(r#""id":1,"#) && !last.contains(r#""id":2,"#), "{last}");
    // Nobody comes for it: its server is told so.
    let sent_before = sent(&rig).len();
    let max_ms = Settings::default().limits.server_request_max_ms;
    rig.restart();
    rig.pass(max_ms + 1);
    let refused = &sent(&rig)[sent_before..];
    assert!(refused.len() == 1 && refused[0].contains(r#""id":"c""#), "{refused:?}");
}

#[test]
fn a_server_does_not_fill_the_row_of_its_session_with_requests() {
    let mut rig = Rig::continued(stateless());
    let (id, _) = running(&mut rig, "1", None);
    let ask = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"ping"}}"#);
    rig.say(id, &ask(&"x".repeat(100_000)), "at 1");
    assert!(rig.rows.row.open_requests.is_empty(), "no id is so long");
    for number in 0..200 {
        rig.say(id, &ask(&number.to_string()), "at 2");
    }
    let open = &rig.rows.row.open_requests;
    assert_eq!((open.len(), &open[0].upstream_id[..]), (64, &br#""199""#[..]));
}

#[test]
fn the_silence_of_a_call_begins_anew_with_the_restart() {
    let mut rig = Rig::continued(stateless());
    let (id, _) = running(&mut rig, "1", Some("at 1"));
    let max_ms = Settings::default().limits.call_silence_max_ms;
    rig.now_ms += max_ms;
    rig.restart();
    rig.pass(max_ms / 2);
    assert_eq!(phase(&rig, id), "sent");
    rig.pass(max_ms);
    assert_eq!(phase(&rig, id), "unknown");
}

#[test]
fn a_call_that_its_client_left_long_ago_goes_on_too() {
    let mut rig = Rig::continued(stateless());
    let (id, stream) = running(&mut rig, "1", Some("at 1"));
    let connection = rig.opened_on(stream);
    rig.lose(connection, Seq(1));
    rig.pass(GRACE_MS);
    assert_eq!(rig.state(stream), "abandoned");
    rig.restart();
    assert_eq!(continued(&rig).unwrap().calls, [(id, "at 1".into())]);
    rig.say(id, &answer_to(id), "at 2");
    rig.get(Some(rig.event_id(stream, 1)));
    assert_eq!(rig.events_after(stream, Seq(1)).len(), 1);
    assert_eq!(rig.state(stream), "live");
}

#[test]
fn rows_that_an_older_version_wrote_are_read() {
    let rig = Rig::continued(Settings::default());
    let mut row = serde_json::to_value(&rig.rows.row).unwrap();
    for name in ["continuation", "lost_untold", "open_requests"] {
        assert!(row.as_object_mut().unwrap().remove(name).is_some(), "{name}");
    }
    let row: SessionRow = serde_json::from_value(row).unwrap();
    assert_eq!((row.continuation, row.lost_untold, row.open_requests), (None, false, Vec::new()));
    let mut rig = rig;
    let (id, _) = running(&mut rig, "1", Some("at 1"));
    let mut call = serde_json::to_value(&rig.rows.calls[&id]).unwrap();
    assert!(call.as_object_mut().unwrap().remove("upstream_cursor").is_some());
    let call: Call = serde_json::from_value(call).unwrap();
    assert_eq!(call.upstream_cursor, None);
}

#[test]
fn nothing_shows_what_a_continuation_holds() {
    let rig = Rig::continued(Settings::default());
    let shown = format!("{:?} {:?}", rig.rows.row, rig.session.start());
    assert!(!shown.contains("server session 1"), "{shown}");
}

#[test]
fn a_cursor_on_an_event_that_was_lost_with_its_process_resumes_from_what_is_kept() {
    let mut rig = Rig::continued(Settings::default());
    let (_, stream) = running(&mut rig, "1", Some("at 1"));
    rig.restart();
    let get = rig.get(Some(rig.event_id(stream, 3)));
    assert_eq!(rig.opened(get).map(|attach| attach.after), Some(Seq(1)));
    let beyond = rig.get(Some(rig.event_id(stream, 5_000)));
    assert!(rig.not_resumable(beyond), "no process has given that number out");
}

#[test]
fn no_number_is_given_out_twice_however_many_of_one_kind_there_were() {
    let mut rig = Rig::continued(Settings::default());
    let ping = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    for _ in 0..100 {
        // Three at once, and no number of a stream but one.
        rig.post_with(&[&ping(1), &ping(2), &ping(3)], None);
    }
    let calls = *rig.executed().last().unwrap();
    assert!(rig.rows.row.reserved.call >= calls, "{calls}");
    for _ in 0..300 {
        rig.upstream(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    }
    assert!(rig.rows.row.reserved.server_request >= 300);
    rig.restart();
    rig.post(&ping(4));
    assert!(*rig.executed().last().unwrap() > calls);
}

#[test]
fn no_stream_has_the_number_of_one_that_was_withdrawn() {
    let mut settings = Settings::default();
    settings.limits.owed_grace_ms = None;
    let mut rig = Rig::new(settings);
    let owed = rig.post(&call("1", "slow", "{}"));
    rig.lose(owed, Seq::ORIGIN);
    for number in 0..300 {
        let held = rig.post(&call("2", &format!("t{number}"), "{}"));
        rig.pass(250);
        assert!(rig.opened(held).unwrap().stream <= rig.rows.row.reserved.stream);
        rig.feed(Input::Gone(held));
    }
    assert_eq!(rig.executed().len(), 1);
}

#[test]
fn what_the_log_holds_is_counted_after_a_restart() {
    let mut rig = Rig::continued(Settings::default());
    let (first, _) = running(&mut rig, "1", Some("at 1"));
    running(&mut rig, "2", Some("at 1"));
    rig.answer(first);
    let bytes = rig.session.log_bytes();
    rig.restart();
    rig.session.check().unwrap();
    assert!(bytes > 200 && rig.session.log_bytes() == bytes, "{bytes}");
}
