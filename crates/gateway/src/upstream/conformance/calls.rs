//! Calls, their answers, and what passes beside them.
use std::sync::Arc;

use rejoin_core::id::CallId;
use serde_json::json;

use super::{Session, echo_of, progress, received, response, write};
use crate::upstream::{Command, Event, Upstream};

/// `open` returns the whole response to `initialize`.
pub async fn open_returns_the_answer(upstream: Arc<dyn Upstream>) {
    let session = Session::open(&upstream).await;
    assert_eq!(session.answer["id"], 0);
    assert_eq!(session.answer["result"]["serverInfo"]["name"], "scripted");
    assert!(!upstream.name().is_empty());
    session.end().await;
}

/// A response arrives as the server wrote it: big integers, key order, escapes, white space.
pub async fn a_response_keeps_its_bytes(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    let odd = concat!(
        r#"{ "z":1, "a":123456789012345678901234567890,"e":1.0E+2,"#,
        r#" "u":"\u00e9\ud83d\ude00é","k":[ ] }"#
    );
    let line = format!(r#"{{"id" : 1, "result":{odd}, "jsonrpc":"2.0", "extra":null}}"#);
    session.script(1, [write(&*line)]).await;
    assert_eq!(session.next().await, Some(Event::Sent { call: CallId(1) }));
    let Some(Event::Message { channel, message, .. }) = session.next().await else {
        panic!("an answer comes")
    };
    assert_eq!(message, line);
    assert!(channel.call().is_none_or(|call| call == CallId(1)), "{channel:?}");
    session.end().await;
}

/// What the server writes for one call arrives in the order it was written, server requests too,
/// and the answer to those reaches the server while the call runs.
pub async fn progress_and_server_requests_keep_their_order(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    let request = r#"{"jsonrpc":"2.0","id":"s-1","method":"roots/list","params":{}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":"s-1","result":{"role":"assistant"}}"#;
    let steps = [
        write(progress(1, "1")),
        write(request),
        received("s-1"),
        write(progress(1, "2")),
        write(response(1, "{}")),
    ];
    session.script(1, steps).await;
    assert_eq!(session.message().await, progress(1, "1"));
    assert_eq!(session.message().await, request);
    session.send(answer).await;
    let mut rest = Vec::new();
    while rest.len() < 3 {
        rest.push(session.message().await);
    }
    rest.retain(|text| !echo_of(text, answer));
    assert_eq!(rest, [progress(1, "2"), response(1, "{}")]);
    session.end().await;
}

/// Calls run side by side; a later one may be answered first. A notification asks for each answer.
pub async fn parallel_calls_end_in_any_order(upstream: Arc<dyn Upstream>) {
    const CALLS: u64 = 8;
    let mut session = Session::open(&upstream).await;
    for call in 1..=CALLS {
        session.script(call, [received(&format!("go-{call}")), write(response(call, "[]"))]).await;
    }
    for call in (1..=CALLS).rev() {
        let go = format!(r#"{{"jsonrpc":"2.0","method":"notifications/go-{call}"}}"#);
        session.send(go.clone()).await;
        let mut both = [session.message().await, session.message().await];
        both.sort_by_key(|text| echo_of(text, &go));
        assert_eq!(both[0], response(call, "[]"));
        assert!(echo_of(&both[1], &go), "{both:?}");
    }
    session.end().await;
}

/// A cancel is a notification and nothing more: the next call is served by the same server.
pub async fn a_cancel_reaches_the_server_and_the_session_lives_on(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    session.script(1, [received("notifications/cancelled")]).await;
    assert_eq!(session.next().await, Some(Event::Sent { call: CallId(1) }));
    let command = Command::Cancel { call: CallId(1), message: cancel.into() };
    assert!(session.command(command).await);
    let text = session.message().await;
    assert!(echo_of(&text, cancel), "{text}");
    session.script(2, [write(response(2, "true"))]).await;
    assert_eq!(session.message().await, response(2, "true"));
    session.end().await;
}

/// Notifications reach the server as they are and come back without any call running.
pub async fn notifications_pass_both_ways(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    let lines = [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{ "method":"x", "params":{"n":98765432109876543210,"s":"\u00e9é"},"jsonrpc":"2.0"}"#,
    ];
    for line in lines {
        session.send(line).await;
        let text = session.message().await;
        assert!(echo_of(&text, line), "{text}");
    }
    session.end().await;
}

/// 8 MB pass both ways.
pub async fn large_messages_pass_both_ways(upstream: Arc<dyn Upstream>) {
    let mut session = Session::open(&upstream).await;
    let text: String = (0..800_000).map(|n| format!("{n:010}")).collect();
    let line = response(1, &format!("\"{text}\""));
    session.script(1, [write(&*line), write(progress(1, "1"))]).await;
    let answer = session.message().await;
    assert!(answer == line, "8 MB changed on the way: {} bytes", answer.len());
    assert_eq!(session.message().await, progress(1, "1"));
    session.end().await;
}

/// A flood of progress arrives whole, then the answer.
pub async fn ten_thousand_progress_events_arrive_complete_and_in_order(
    upstream: Arc<dyn Upstream>,
) {
    let mut session = Session::open(&upstream).await;
    let flood = json!({ "write": progress(1, "#N#"), "times": 10_000 });
    session.script(1, [flood, write(response(1, "{}"))]).await;
    for number in 0..10_000 {
        assert_eq!(session.message().await, progress(1, &number.to_string()));
    }
    assert_eq!(session.message().await, response(1, "{}"));
    session.end().await;
}
