//! Streams: cut, resumed, replayed badly, answered elsewhere; the standalone one.
use std::time::{Duration, Instant};

use rejoin_core::id::CallId;
use rejoin_gateway::upstream::conformance::{Session, WAIT, progress, received, response, write};
use rejoin_gateway::upstream::{Channel, Command, Event, LostReason};
use serde_json::{Value, json};

use crate::support::{Server, event, initialized, requests, round_trip, scripts, served, to};

/// A call that is cut twice and ended once while it runs.
fn broken_call(call: u64) -> Vec<Value> {
    vec![
        json!({ "retry": 50 }),
        json!({ "write": progress(call, "1#N#"), "times": 20 }),
        json!({ "cut": true }),
        json!({ "write": progress(call, "2#N#"), "times": 20 }),
        json!({ "end": true }),
        json!({ "write": progress(call, "3#N#"), "times": 20 }),
        json!({ "cut": true }),
        write(response(call, "\"whole\"")),
    ]
}

fn broken_call_messages(call: u64) -> Vec<String> {
    let parts = ["1", "2", "3"].into_iter();
    let numbers = parts.flat_map(|part| (0..20).map(move |number| format!("{part}{number}")));
    let mut expected: Vec<String> = numbers.map(|number| progress(call, &number)).collect();
    expected.push(response(call, "\"whole\""));
    expected
}

async fn is_whole(flags: &[&str]) {
    let upstream = served(flags);
    let mut session = Session::open(&upstream).await;
    session.script(1, broken_call(1)).await;
    for expected in broken_call_messages(1) {
        assert_eq!(session.message().await, expected, "{flags:?}");
    }
    let seen = requests(&mut session, 2).await;
    assert_eq!(scripts(&seen), 1, "the call was sent once");
    let gets = seen.iter().filter(|request| request["http"] == "GET").count();
    assert!(gets >= 3, "{gets} resumes");
    session.end().await;
}

#[tokio::test]
async fn a_stream_with_ids_is_resumed_and_nothing_is_lost_or_doubled() {
    is_whole(&["ids"]).await;
}

#[tokio::test]
async fn a_replay_that_begins_with_the_cursor_doubles_nothing() {
    is_whole(&["ids", "replay-cursor"]).await;
}

#[tokio::test]
async fn an_event_that_is_lost_where_a_replay_meets_what_comes_live_is_asked_for_again() {
    let upstream = served(&["ids", "replay-only"]);
    let mut session = Session::open(&upstream).await;
    initialized(&mut session).await;
    let steps = [write(progress(1, "1")), json!({ "cut": true }), received("go")];
    session.script(1, steps.into_iter().chain([write(response(1, "1"))])).await;
    assert_eq!(session.message().await, progress(1, "1"));
    // Until it is resumed: what comes now is in no replay yet, and nobody brings it.
    for call in 2..1_000 {
        let seen = requests(&mut session, call).await;
        let resumes = |request: &&Value| !request["headers"]["last-event-id"].is_null();
        if seen.iter().filter(resumes).count() > 0 {
            break;
        }
    }
    session.send(r#"{"jsonrpc":"2.0","method":"notifications/go"}"#).await;
    let both = [session.message().await, session.message().await];
    assert!(both.contains(&response(1, "1")), "{both:?}");
    session.end().await;
}

#[tokio::test]
async fn ids_that_repeat_across_streams_lose_nothing() {
    is_whole(&["same-ids"]).await;
}

#[tokio::test]
async fn a_replay_with_events_of_other_streams_doubles_nothing() {
    let upstream = served(&["ids", "replay-foreign"]);
    let mut session = Session::open(&upstream).await;
    session.script(1, [write(progress(1, "1")), write(response(1, "1"))]).await;
    assert_eq!(session.message().await, progress(1, "1"));
    assert_eq!(session.message().await, response(1, "1"));
    session.script(2, broken_call(2)).await;
    for expected in broken_call_messages(2) {
        assert_eq!(session.message().await, expected);
    }
    session.end().await;
}

#[tokio::test]
async fn a_stream_without_ids_that_breaks_loses_its_call_and_no_other() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    session.script(2, [received("go"), write(response(2, "2"))]).await;
    for (call, end) in [(1, "cut"), (3, "end")] {
        session.script(call, [write(progress(call, "1")), json!({ end: true })]).await;
        assert_eq!(session.message().await, progress(call, "1"));
        let what = "its events have no ids";
        let reason = LostReason::StreamEnded { what };
        assert_eq!(event(&mut session).await, Event::Lost { call: CallId(call), reason });
    }
    session.send(r#"{"jsonrpc":"2.0","method":"notifications/go"}"#).await;
    let both = [session.message().await, session.message().await];
    assert!(both.contains(&response(2, "2")), "{both:?}");
    let seen = requests(&mut session, 4).await;
    assert_eq!(scripts(&seen), 3, "none was sent twice");
    session.end().await;
}

#[tokio::test]
async fn a_resume_that_brings_nothing_ends_within_its_budget() {
    let upstream = served(&["ids"]);
    let mut session = Session::open(&upstream).await;
    let silent = (0..20).map(|_| json!({ "end": true }));
    let steps = [write(progress(1, "1"))].into_iter().chain(silent);
    session.script(1, steps).await;
    assert_eq!(session.message().await, progress(1, "1"));
    let reason = LostReason::StreamEnded { what: "resuming it brought nothing new" };
    assert_eq!(event(&mut session).await, Event::Lost { call: CallId(1), reason });
    let seen = requests(&mut session, 2).await;
    let gets = seen.iter().filter(|request| request["http"] == "GET").count();
    assert_eq!((gets, scripts(&seen)), (4, 1));
    session.end().await;
}

#[tokio::test]
async fn the_wait_that_the_server_asks_for_is_kept() {
    let upstream = served(&["ids"]);
    let mut session = Session::open(&upstream).await;
    let steps = [
        json!({ "retry": 700 }),
        write(progress(1, "1")),
        json!({ "cut": true }),
        write(response(1, "1")),
    ];
    // The cut is later than this, and when it is seen here is not known.
    let before_cut = Instant::now();
    session.script(1, steps).await;
    assert_eq!(session.message().await, progress(1, "1"));
    assert_eq!(session.message().await, response(1, "1"));
    assert!(before_cut.elapsed() >= Duration::from_millis(700), "{:?}", before_cut.elapsed());
    session.end().await;
}

#[tokio::test]
async fn a_response_on_the_standalone_stream_answers_its_call() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    initialized(&mut session).await;
    let elsewhere = json!({ "elsewhere": response(1, "1") });
    session.script(1, [elsewhere, json!({ "wait": "never" })]).await;
    assert_eq!(session.message().await, response(1, "1"));
    // And once its own stream has ended without it.
    let late = json!({ "elsewhere": response(2, "2") });
    session.script(2, [write(progress(2, "1")), late, json!({ "cut": true })]).await;
    let both = [session.message().await, session.message().await];
    assert!(both.contains(&progress(2, "1")) && both.contains(&response(2, "2")), "{both:?}");
    round_trip(&mut session, 3).await;
    session.end().await;
}

#[tokio::test]
async fn each_message_tells_the_channel_it_came_on() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    initialized(&mut session).await;
    let ask = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"roots/list"}}"#);
    let steps = [json!({ "elsewhere": ask("beside") }), write(ask("within"))];
    session.script(1, steps.into_iter().chain([write(response(1, "1"))])).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        if let Event::Message { channel, message, .. } = event(&mut session).await {
            seen.push((String::from_utf8(message.into()).unwrap(), channel));
        }
    }
    assert!(seen.contains(&(ask("beside"), Channel::Standalone)), "{seen:?}");
    let own = Channel::Call(CallId(1));
    let of_call = seen.iter().filter(|(_, channel)| *channel == own).map(|(text, _)| text);
    assert_eq!(of_call.collect::<Vec<_>>(), [&ask("within"), &response(1, "1")]);
    session.end().await;
}

#[tokio::test]
async fn the_standalone_stream_is_opened_again_and_continues() {
    let upstream = served(&["ids"]);
    let mut session = Session::open(&upstream).await;
    initialized(&mut session).await;
    let news = |number| format!(r#"{{"jsonrpc":"2.0","method":"notifications/news-{number}"}}"#);
    for number in 1..=3 {
        let steps = [
            json!({ "elsewhere": news(number) }),
            json!({ "drop": "get" }),
            write(response(number, "1")),
        ];
        session.script(number, steps).await;
        let both = [session.message().await, session.message().await];
        assert!(both.contains(&news(number)), "{both:?}");
        assert!(both.contains(&response(number, "1")), "{both:?}");
    }
    session.end().await;
}

#[tokio::test]
async fn a_server_without_standalone_stream_is_asked_once() {
    let upstream = served(&["no-get=405"]);
    let mut session = Session::open(&upstream).await;
    session.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    let deadline = Instant::now() + WAIT;
    let gets = |seen: &[Value]| seen.iter().filter(|request| request["http"] == "GET").count();
    let mut call = 0;
    loop {
        call += 1;
        let seen = requests(&mut session, call).await;
        if gets(&seen) == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "no GET came");
    }
    // More than the wait between two attempts.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(gets(&requests(&mut session, call + 1).await), 1);
    session.end().await;
}

#[tokio::test]
async fn a_get_answered_404_does_not_end_a_session_that_lives() {
    let upstream = served(&["no-get=404"]);
    let mut session = Session::open(&upstream).await;
    session.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    let deadline = Instant::now() + WAIT;
    for call in 1.. {
        let seen = requests(&mut session, call).await;
        let of = |name: &str, value: &str| seen.iter().filter(|r| r[name] == value).count();
        if of("method", "ping") >= 1 && of("http", "GET") >= 3 {
            break;
        }
        assert!(Instant::now() < deadline, "the server was not asked");
    }
    session.end().await;
}

#[tokio::test]
async fn two_sessions_of_one_server_do_not_meet() {
    let server = Server::start(&["ids"]);
    let upstream = to(&server);
    let mut first = Session::open(&upstream).await;
    let mut second = Session::open(&upstream).await;
    first.script(1, broken_call(1)).await;
    second.script(2, [write(progress(2, "1")), write(response(2, "\"second\""))]).await;
    assert_eq!(second.message().await, progress(2, "1"));
    assert_eq!(second.message().await, response(2, "\"second\""));
    for expected in broken_call_messages(1) {
        assert_eq!(first.message().await, expected);
    }
    first.end().await;
    round_trip(&mut second, 3).await;
    let seen = requests(&mut second, 4).await;
    let ids: std::collections::HashSet<&str> =
        seen.iter().filter_map(|request| request["headers"]["mcp-session-id"].as_str()).collect();
    assert_eq!(ids.len(), 2);
    second.end().await;
}

#[tokio::test]
async fn a_cancelled_call_may_still_be_answered() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    session.script(1, [received("cancelled"), write(response(1, "\"late\""))]).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let command = Command::Cancel { call: CallId(1), message: cancel.into() };
    assert!(session.command(command).await);
    let both = [session.message().await, session.message().await];
    assert!(both.contains(&response(1, "\"late\"")), "{both:?}");
    session.end().await;
}
