//! A server that does not know the session any more, and says so in other ways than by 404; and
//! servers that only seem to.
use http::StatusCode;
use rejoin_core::id::CallId;
use rejoin_gateway::upstream::conformance::{Session, response, write};
use rejoin_gateway::upstream::{CloseReason, Event, NotSentReason};
use serde_json::{Value, json};

use crate::support::{Server, event, requests, round_trip, served, to};

/// A session that was in use, whose server was then started again with these flags.
async fn restarted(flags: &[&str]) -> (Session, Server) {
    // So that no call meets a connection of the old server, after which its outcome is unknown.
    let mut server = Server::start(&["ids", "close"]);
    let mut session = Session::open(&to(&server)).await;
    round_trip(&mut session, 1).await;
    let port = format!("port={}", server.port());
    server.kill();
    (session, Server::start(&[flags, &[&*port]].concat()))
}

fn gone() -> Event {
    Event::Closed { reason: CloseReason::SessionGone }
}

#[tokio::test]
async fn a_restarted_server_that_refuses_the_session_did_not_run_the_call() {
    let text = |text: &str| format!("unknown-text={text}");
    let valid = text("Bad Request: No valid session ID provided");
    let initialized = text("Bad Request: Server not initialized");
    let (found, other) = (text("Session not found"), text("Nope"));
    for flags in [
        &["unknown=404"][..],
        &["unknown=410"],
        &["unknown=400", &valid, "unknown-own"],
        &["unknown=400", &valid],
        &["unknown=400", &initialized, "unknown-own"],
        // No word tells: only that a new session is served.
        &["unknown=400", &other, "unknown-own"],
        &["unknown=400", &other],
        &["unknown=200", &found, "unknown-own"],
    ] {
        let (mut session, _server) = restarted(flags).await;
        session.script(2, [write(response(2, "{}"))]).await;
        let not_run = Event::NotSent { call: CallId(2), reason: NotSentReason::SessionGone };
        assert_eq!(event(&mut session).await, not_run, "{flags:?}");
        assert_eq!(session.rest().await, [gone()], "{flags:?}");
    }
}

fn refusal(call: u64, text: &str) -> (String, Value) {
    let error = json!({ "code": -32_000, "message": text });
    let body = json!({ "jsonrpc": "2.0", "id": call, "error": error }).to_string();
    (body.clone(), json!({ "status": 400, "type": "application/json", "body": body }))
}

#[tokio::test]
async fn a_400_in_a_session_that_lives_stays_the_answer_of_its_call() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    for (call, text) in [(1, "no such amount"), (2, "unknown session_type"), (3, "not initialized")]
    {
        let (body, step) = refusal(call, text);
        session.script(call, [step]).await;
        assert_eq!(session.message().await, body);
    }
    session.script(4, [json!({ "status": 400, "type": "text/plain", "body": "session?" })]).await;
    is_refused(&mut session, 4).await;
    round_trip(&mut session, 5).await;
    session.end().await;
}

async fn is_refused(session: &mut Session, call: u64) {
    let Event::NotSent { call: refused, reason } = event(session).await else {
        panic!("a 400 is a refusal")
    };
    assert_eq!(refused, CallId(call));
    let status = StatusCode::BAD_REQUEST;
    assert!(matches!(reason, NotSentReason::Refused { status: s, .. } if s == status), "{reason}");
}

#[tokio::test]
async fn a_server_that_refuses_pings_too_has_not_lost_the_session() {
    let upstream = served(&["no-ping=400"]);
    let mut session = Session::open(&upstream).await;
    session.script(1, [json!({ "status": 400 })]).await;
    is_refused(&mut session, 1).await;
    round_trip(&mut session, 2).await;
    let seen = requests(&mut session, 3).await;
    let count = |name: &str, value: &str| seen.iter().filter(|r| r[name] == value).count();
    // One more session was opened for comparison, and ended.
    assert_eq!((count("method", "initialize"), count("http", "DELETE")), (2, 1));
    session.end().await;
}

#[tokio::test]
async fn an_answer_of_its_own_reaches_a_call_although_the_session_is_gone_by_then() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    let (body, step) = refusal(1, "this one ran, and failed");
    session.script(1, [json!({ "forget": true }), step]).await;
    assert_eq!(session.message().await, body);
    assert_eq!(session.rest().await, [gone()]);
    assert_eq!(session.was_sent(1), Some(true));
}
