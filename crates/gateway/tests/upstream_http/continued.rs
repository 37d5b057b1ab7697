//! A session that is left and resumed: by another process, or by this one once it can write again.
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use rejoin_core::id::CallId;
use rejoin_gateway::upstream::conformance::{
    INITIALIZE, Left, Session, a_session_that_is_left_goes_on_where_it_was_or_ends, progress,
    received, response, script, write,
};
use rejoin_gateway::upstream::{
    CloseReason, Command, Event, LostReason, Opening, Resumed, Resumption, Upstream, UpstreamCursor,
};
use serde_json::{Value, json};

use crate::support::{
    Server, at, event, initialized, options, requests, round_trip, scripts, served, to,
};

/// Leaves a session; it can go on.
async fn left(session: Session) -> Left {
    session.leave().await.expect("it can go on")
}

/// A session with a call that waits, whose stream stands somewhere.
async fn left_in_a_call(
    upstream: &Arc<dyn Upstream>,
    steps: impl IntoIterator<Item = Value>,
) -> Left {
    let mut session = Session::open(upstream).await;
    let first = [write(progress(1, "1"))];
    session.script(1, first.into_iter().chain(steps)).await;
    assert_eq!(session.message().await, progress(1, "1"));
    let left = left(session).await;
    assert!(left.cursors.contains_key(&CallId(1)), "{left:?}");
    left
}

/// All requests that the server got, as another session is told.
async fn requests_seen(upstream: &Arc<dyn Upstream>) -> Vec<Value> {
    let mut session = Session::open(upstream).await;
    let seen = requests(&mut session, 900).await;
    left(session).await;
    seen
}

fn of_http<'a>(seen: &'a [Value], method: &'a str) -> impl Iterator<Item = &'a Value> {
    seen.iter().filter(move |request| request["http"] == method)
}

#[tokio::test]
async fn a_replay_that_begins_with_the_cursor_doubles_nothing_in_another_process() {
    a_session_that_is_left_goes_on_where_it_was_or_ends(served(&["ids", "replay-cursor"])).await;
}

#[tokio::test]
async fn a_stream_that_has_only_said_where_it_stands_is_picked_up() {
    let upstream = served(&["ids"]);
    let mut session = Session::open(&upstream).await;
    // An event with an id and without a message.
    session.script(1, [write(""), received("go"), write(response(1, "1"))]).await;
    while !session.next().await.is_some_and(|event| is_cursor(&event)) {}
    let left = left(session).await;
    let mut resumed = Session::resume(&upstream, &left);
    resumed.send(r#"{"jsonrpc":"2.0","method":"notifications/go"}"#).await;
    let both = [resumed.message().await, resumed.message().await];
    assert!(both.contains(&response(1, "1")), "{both:?}");
    resumed.end().await;
    assert_eq!(scripts(&requests_seen(&upstream).await), 1);
}

fn is_cursor(event: &Event) -> bool {
    matches!(event, Event::Cursor { cursor: Some(_), .. })
}

#[tokio::test]
async fn what_was_left_is_ended_only_by_who_resumed_it() {
    let upstream = served(&["ids"]);
    let left = left_in_a_call(&upstream, [json!({ "wait": "never" })]).await;
    assert_eq!(of_http(&requests_seen(&upstream).await, "DELETE").count(), 0);
    Session::resume(&upstream, &left).end().await;
    assert_eq!(of_http(&requests_seen(&upstream).await, "DELETE").count(), 1);
}

#[tokio::test]
async fn a_session_that_the_server_forgot_meanwhile_is_gone_and_its_call_lost() {
    let upstream = served(&["ids"]);
    let never = [json!({ "forget": true }), json!({ "wait": "never" })];
    let left = left_in_a_call(&upstream, never).await;
    let mut resumed = Session::resume(&upstream, &left);
    let mut rest = resumed.rest().await;
    assert_eq!(rest.pop(), Some(Event::Closed { reason: CloseReason::SessionGone }));
    let is_loss = |event: &Event| matches!(event, Event::Lost { call: CallId(1), .. });
    assert!(rest.iter().all(is_loss), "{rest:?}");
    assert_eq!(scripts(&requests_seen(&upstream).await), 1, "nothing was sent again");
}

#[tokio::test]
async fn a_stream_that_the_server_does_not_resume_loses_its_call_and_no_session() {
    let upstream = served(&["ids", "no-get=405"]);
    let left = left_in_a_call(&upstream, [json!({ "wait": "never" })]).await;
    let mut resumed = Session::resume(&upstream, &left);
    let reason = LostReason::StreamEnded { what: "the server refused to resume it" };
    assert_eq!(event(&mut resumed).await, Event::Lost { call: CallId(1), reason });
    round_trip(&mut resumed, 2).await;
    resumed.end().await;
}

#[tokio::test]
async fn a_cursor_that_no_version_wrote_loses_its_call() {
    let upstream = served(&["ids"]);
    let mut left = left_in_a_call(&upstream, [json!({ "wait": "never" })]).await;
    left.cursors.insert(CallId(1), UpstreamCursor::from("?"));
    let mut resumed = Session::resume(&upstream, &left);
    let lost = event(&mut resumed).await;
    assert!(matches!(lost, Event::Lost { call: CallId(1), .. }), "{lost:?}");
    resumed.end().await;
}

#[tokio::test]
async fn a_server_that_is_away_for_a_moment_is_waited_for() {
    let mut server = Server::start(&["ids"]);
    let upstream = to(&server);
    let mut session = Session::open(&upstream).await;
    round_trip(&mut session, 1).await;
    let left = left(session).await;
    let port = format!("port={}", server.port());
    server.kill();
    // Its successor knows nothing of the session.
    let mut resumed = Session::resume(&upstream, &left);
    let _server = Server::start(&["ids", &port]);
    let closed = Some(Event::Closed { reason: CloseReason::SessionGone });
    assert_eq!(resumed.rest().await.pop(), closed);
}

#[tokio::test]
async fn the_standalone_stream_goes_on_where_it_was() {
    let upstream = served(&["ids"]);
    let mut session = Session::open(&upstream).await;
    initialized(&mut session).await;
    let left = left(session).await;
    assert!(left.standalone.is_some());
    let news = r#"{"jsonrpc":"2.0","method":"notifications/news"}"#;
    let mut other = Session::open(&upstream).await;
    other.script(5, [json!({ "elsewhere": news }), write(response(5, "1"))]).await;
    assert_eq!(other.message().await, response(5, "1"));
    let mut resumed = Session::resume(&upstream, &left);
    assert_eq!(resumed.message().await, news, "and nothing that came before");
    resumed.end().await;
    other.end().await;
}

fn credential(value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))])
}

/// Opens a session as "Bearer a", leaves it in a call that waits for "go", and resumes it.
async fn resumed_with(
    upstream: &Arc<dyn Upstream>,
    step: Option<Value>,
    headers: HeaderMap,
) -> Resumed {
    let initialize = INITIALIZE.into();
    let opening = Opening { initialize, headers: credential("Bearer a") };
    let mut opened = upstream.open(opening).await.expect("it opens");
    let steps = [write(progress(1, "1")), received("go"), write(response(1, "1"))];
    let message = script(1, step.into_iter().chain(steps)).into();
    opened.commands.send(Command::Call { call: CallId(1), message }).await.expect("it is open");
    let cursor = loop {
        match opened.events.recv().await {
            Some(Event::Message { cursor, .. }) => break cursor.expect("events have ids"),
            Some(_) => {}
            None => panic!("it ended"),
        }
    };
    opened.commands.send(Command::Leave).await.expect("it is open");
    while opened.events.recv().await.is_some() {}
    let continuation = opened.continuation.expect("it can go on");
    let text = continuation.expose();
    assert!(!text.contains("Bearer"), "no credential is written down: {text}");
    let resumption = Resumption {
        continuation,
        initialize: INITIALIZE.into(),
        headers,
        is_initialized: true,
        calls: vec![(CallId(1), cursor)],
        standalone: None,
    };
    upstream.resume(resumption).expect("it goes on")
}

/// The client comes back with this credential, and its call is answered.
async fn comes_back(resumed: &mut Resumed, value: &'static str) {
    resumed.commands.send(Command::Headers(credential(value))).await.expect("it is open");
    let message = r#"{"jsonrpc":"2.0","method":"notifications/go"}"#.into();
    resumed.commands.send(Command::Send { message }).await.expect("it is open");
    loop {
        match resumed.events.recv().await {
            Some(Event::Message { message, .. }) if message == response(1, "1") => break,
            Some(Event::Message { .. } | Event::Cursor { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn streams_wait_for_the_client_whose_credential_they_need() {
    let upstream = served(&["ids"]);
    let mut resumed = resumed_with(&upstream, None, HeaderMap::new()).await;
    let own = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no client"}}"#;
    resumed.commands.send(Command::Send { message: own.into() }).await.unwrap();
    // Longer than a stream takes that waits for nothing.
    for _ in 0..3 {
        let seen = requests_seen(&upstream).await;
        assert_eq!(of_http(&seen, "GET").count(), 0, "what Rejoin says tells no credential");
    }
    comes_back(&mut resumed, "Bearer a").await;
    let seen = requests_seen(&upstream).await;
    let gets: Vec<_> = of_http(&seen, "GET").collect();
    assert!(gets.len() >= 2, "the call's and the standalone one: {gets:?}");
    for get in gets {
        assert_eq!(get["headers"]["authorization"], "Bearer a", "{get}");
    }
}

#[tokio::test]
async fn a_call_whose_credential_expired_waits_for_the_one_its_client_refreshes() {
    let upstream = served(&["ids"]);
    let requires = json!({ "require": "Bearer b" });
    let mut resumed = resumed_with(&upstream, Some(requires), credential("Bearer a")).await;
    let is_call = |get: &Value| get["headers"]["last-event-id"].is_string();
    for _ in 0..200 {
        if of_http(&requests_seen(&upstream).await, "GET").any(is_call) {
            break;
        }
    }
    comes_back(&mut resumed, "Bearer b").await;
    let seen = requests_seen(&upstream).await;
    let is_stale = |get: &&Value| is_call(get) && get["headers"]["authorization"] == "Bearer a";
    assert_eq!(of_http(&seen, "GET").filter(is_stale).count(), 1, "it was not asked in vain");
}

#[tokio::test]
async fn a_resumed_event_that_comes_slowly_is_not_asked_for_again() {
    let upstream = served(&["ids"]);
    let piece = || [json!({ "pause": 500 }), json!({ "raw": "p" })];
    let begin = json!({ "raw": r#"data: {"jsonrpc":"2.0","id":1,"result":""# });
    let end = json!({ "raw": "\"}\n\n" });
    let pieces = (0..6).flat_map(|_| piece());
    let steps = [received("go"), begin].into_iter().chain(pieces).chain([end]);
    let left = left_in_a_call(&upstream, steps).await;
    let mut resumed = Session::resume(&upstream, &left);
    resumed.send(r#"{"jsonrpc":"2.0","method":"notifications/go"}"#).await;
    let answer = response(1, "\"pppppp\"");
    while resumed.message().await != answer {}
    resumed.end().await;
    let seen = requests_seen(&upstream).await;
    let is_call = |get: &&Value| get["headers"]["last-event-id"].is_string();
    assert_eq!(of_http(&seen, "GET").filter(is_call).count(), 1);
}

#[tokio::test]
async fn a_session_of_another_url_is_not_looked_for() {
    let server = Server::start(&["ids"]);
    let left = left(Session::open(&to(&server)).await).await;
    let other = at(&format!("{}/mcp?other", server.url), options());
    let resumption = |continuation| Resumption {
        continuation,
        initialize: INITIALIZE.into(),
        headers: HeaderMap::new(),
        is_initialized: true,
        calls: Vec::new(),
        standalone: None,
    };
    assert!(other.resume(resumption(left.continuation.clone())).is_none());
    let unknown = rejoin_gateway::upstream::Continuation::new("{}");
    assert!(to(&server).resume(resumption(unknown)).is_none());
    assert!(to(&server).resume(resumption(left.continuation)).is_some());
}
