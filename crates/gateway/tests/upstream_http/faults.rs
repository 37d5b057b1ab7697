//! What servers and what stands before them do wrong.
use std::time::{Duration, Instant};

use http::StatusCode;
use rejoin_core::id::CallId;
use rejoin_gateway::upstream::conformance::{Session, progress, response, write};
use rejoin_gateway::upstream::{CloseReason, Event, LostReason, NotSentReason};
use serde_json::{Value, json};

use crate::support::{
    Server, at, error_of, event, initialized, options, requests, round_trip, scripts, served, to,
};

fn status(status: u16, headers: &Value, body: &str) -> Value {
    json!({ "status": status, "headers": headers, "body": body, "type": "text/plain" })
}

#[tokio::test]
async fn a_status_that_excludes_processing_refuses_the_call() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    let none = json!({});
    let retry = json!({ "Retry-After": "7" });
    let challenge = json!({ "WWW-Authenticate": "Bearer scope=\"more\"" });
    let refusals =
        [(401, &challenge), (403, &challenge), (429, &none), (503, &retry), (413, &none)];
    for (call, (code, headers)) in (1..).zip(refusals) {
        session.script(call, [status(code, headers, "no")]).await;
        let Event::NotSent { call: refused, reason } = event(&mut session).await else {
            panic!("{code} is a refusal")
        };
        let NotSentReason::Refused { status, answer, .. } = reason else { panic!("{reason:?}") };
        assert_eq!((refused, status.as_u16()), (CallId(call), code));
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let error = &answer["error"];
        assert_eq!((&answer["id"], &error["data"]["status"]), (&json!(call), &json!(code)));
        assert!(error["message"].as_str().unwrap().starts_with("Not run."), "{error}");
        assert_eq!(error["data"]["wwwAuthenticate"], headers["WWW-Authenticate"]);
        assert_eq!(error["data"]["retryAfter"], headers["Retry-After"]);
    }
    round_trip(&mut session, 9).await;
    assert_eq!(scripts(&requests(&mut session, 10).await), 6, "none was sent twice");
    session.end().await;
}

#[tokio::test]
async fn a_status_that_does_not_tell_loses_the_call() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    for (call, code) in (1..).zip([502, 503, 504, 500, 408]) {
        session.script(call, [status(code, &json!({}), "<html>")]).await;
        let reason = LostReason::Status { status: StatusCode::from_u16(code).unwrap() };
        assert_eq!(event(&mut session).await, Event::Lost { call: CallId(call), reason });
    }
    round_trip(&mut session, 9).await;
    assert_eq!(scripts(&requests(&mut session, 10).await), 6, "none was sent twice");
    session.end().await;
}

#[tokio::test]
async fn an_error_response_for_the_call_is_its_answer_whatever_the_status() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    for (call, code) in (1..).zip([400, 500, 502]) {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{call},"error":{{"code":-32602,"message":"bad"}}}}"#);
        let step = json!({ "status": code, "type": "application/json", "body": text });
        session.script(call, [step]).await;
        assert_eq!(session.message().await, text);
    }
    session.end().await;
}

#[tokio::test]
async fn what_is_no_answer_ends_the_call_with_an_error_that_names_it() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    let gzip = json!({ "Content-Encoding": "gzip" });
    let cases = [
        (json!({ "status": 200, "type": "text/html", "body": "<html>" }), "text/html"),
        (json!({ "status": 200 }), "HTTP status 200 OK and nothing else"),
        (json!({ "status": 202 }), "HTTP status 202 Accepted and nothing else"),
        (json!({ "status": 200, "type": "application/json", "body": "" }), "no message"),
        (json!({ "status": 200, "type": "application/json", "body": "{\"a\":1}" }), "no message"),
        (
            json!({ "status": 200, "type": "application/json", "body": response(77, "1") }),
            "belongs to another call",
        ),
        (
            json!({ "status": 200, "type": "text/event-stream", "body": "x", "headers": gzip }),
            "coding gzip",
        ),
    ];
    for (call, (step, text)) in (1..).zip(cases) {
        session.script(call, [step]).await;
        let error = error_of(&mut session, call).await;
        assert!(error.contains(text) && error.contains("may have run"), "{error}");
    }
    round_trip(&mut session, 50).await;
    session.end().await;
}

#[tokio::test]
async fn json_answers_the_call_and_a_batch_passes_on_all_it_holds() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    let json = |body: String| json!({ "status": 200, "type": "application/json", "body": body });
    session.script(1, [json(response(1, "[1, 2]"))]).await;
    assert_eq!(session.message().await, response(1, "[1, 2]"));
    session.script(2, [json(format!("[{},{}]", progress(2, "1"), response(2, "2")))]).await;
    assert_eq!(session.message().await, progress(2, "1"));
    assert_eq!(session.message().await, response(2, "2"));
    session.end().await;
}

#[tokio::test]
async fn an_event_beyond_the_limit_ends_its_call_with_an_error() {
    let server = Server::start(&["ids"]);
    let mut options = options();
    std::sync::Arc::make_mut(&mut options.limits).event_bytes_max = 64 * 1024;
    let mut session = Session::open(&at(&format!("{}/mcp", server.url), options)).await;
    let large = "x".repeat(100 * 1024);
    session.script(1, [write(response(1, &format!("\"{large}\"")))]).await;
    let error = error_of(&mut session, 1).await;
    assert!(error.contains("larger than event_bytes_max"), "{error}");
    round_trip(&mut session, 2).await;
    session.end().await;
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_gone_and_the_call_was_not_run() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    session.script(1, [json!({ "forget": true }), write(progress(1, "1"))]).await;
    assert_eq!(session.message().await, progress(1, "1"));
    round_trip_or_gone(&mut session, 2).await;
    let gone = CloseReason::SessionGone;
    assert_eq!(session.rest().await.last(), Some(&Event::Closed { reason: gone }));
    // Call 1 was sent: its outcome is not known. Call 2 was answered 404: it was not run.
    assert_eq!(session.was_sent(1), Some(true));
}

async fn round_trip_or_gone(session: &mut Session, call: u64) {
    session.script(call, [write(response(call, "{}"))]).await;
    let reason = NotSentReason::SessionGone;
    assert_eq!(event(session).await, Event::NotSent { call: CallId(call), reason });
}

#[tokio::test]
async fn a_restarted_server_is_found_out_without_a_call() {
    let mut server = Server::start(&["ids"]);
    let mut session = Session::open(&to(&server)).await;
    initialized(&mut session).await;
    session.script(1, [write(progress(1, "1")), json!({ "wait": "never" })]).await;
    assert_eq!(session.message().await, progress(1, "1"));
    let port = format!("port={}", server.port());
    server.kill();
    let _again = Server::start(&[&port]);
    let rest = session.rest().await;
    assert_eq!(rest.last(), Some(&Event::Closed { reason: CloseReason::SessionGone }), "{rest:?}");
}

#[tokio::test]
async fn a_server_that_is_away_refuses_calls_and_then_ends_the_session() {
    let mut server = Server::start(&[]);
    let mut session = Session::open(&to(&server)).await;
    round_trip(&mut session, 1).await;
    server.kill();
    let away = Instant::now();
    let mut refused = 0;
    // A kept connection, of which there are two at most, may not have been seen to end.
    for call in 2..=4 {
        session.script(call, []).await;
        match event(&mut session).await {
            Event::NotSent { reason: NotSentReason::Unreachable, .. } => refused += 1,
            Event::Lost { reason: LostReason::ConnectionLost, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(refused >= 1);
    let closed = Event::Closed { reason: CloseReason::Unreachable { limit_ms: 1_500 } };
    assert_eq!(session.rest().await, [closed]);
    assert!(away.elapsed() >= Duration::from_millis(1_400), "{:?}", away.elapsed());
}

#[tokio::test]
async fn a_call_that_is_never_answered_and_one_that_floods_hurt_no_other() {
    const FLOOD: u64 = 100_000;
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    session.script(1, [json!({ "wait": "never" })]).await;
    let flood = json!({ "write": progress(2, "#N#"), "times": FLOOD });
    session.script(2, [flood, write(response(2, "{}"))]).await;
    assert_eq!(session.message().await, progress(2, "0"));
    let started = Instant::now();
    let (mut next, mut answered, mut flooded) = (1, 0_u64, None);
    let mut asked = Instant::now();
    let mut slowest = Duration::ZERO;
    session.script(10, [write(response(10, "{}"))]).await;
    while flooded.is_none() {
        let text = session.message().await;
        if text == progress(2, &next.to_string()) {
            next += 1;
        } else if text == response(2, "{}") {
            flooded = Some(started.elapsed());
        } else {
            assert_eq!(text, response(10 + answered, "{}"));
            slowest = slowest.max(asked.elapsed());
            answered += 1;
            asked = Instant::now();
            session.script(10 + answered, [write(response(10 + answered, "{}"))]).await;
        }
    }
    assert_eq!(next, FLOOD, "nothing of the flood is lost");
    assert!(answered >= 3, "{answered} calls were answered in {flooded:?}");
    eprintln!("flood of {FLOOD} in {flooded:?}, {answered} calls beside it, slowest {slowest:?}");
    session.end().await;
}

#[tokio::test]
async fn a_slow_head_is_waited_for() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    // Longer than any limit but the one on silence, which is not this adapter's.
    session.script(1, [json!({ "wait": "go" }), write(response(1, "1"))]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    session.script(2, [json!({ "signal": "go" }), write(response(2, "2"))]).await;
    let both = [session.message().await, session.message().await];
    assert!(both.contains(&response(1, "1")) && both.contains(&response(2, "2")), "{both:?}");
    session.end().await;
}

#[tokio::test]
async fn a_redirected_call_is_refused_and_names_the_target() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    let location = json!({ "Location": "http://elsewhere.example/mcp" });
    session.script(1, [status(307, &location, "")]).await;
    let Event::NotSent { reason: NotSentReason::Refused { answer, .. }, .. } =
        event(&mut session).await
    else {
        panic!("a redirect is a refusal")
    };
    let answer = String::from_utf8(answer.into()).unwrap();
    assert!(answer.contains("redirects to http://elsewhere.example"), "{answer}");
    session.end().await;
}

#[tokio::test]
async fn comments_and_odd_events_are_skipped() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    let steps = [
        json!({ "comment": 10_000 }),
        json!({ "raw": "event: replay\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n" }),
        json!({ "raw": "data: not json\n\nid\ndata:\n\n" }),
        json!({ "raw": "data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"two/lines\"}\r\n\r\n" }),
        write(response(99, "\"of nobody\"")),
        write(response(1, "1")),
    ];
    session.script(1, steps).await;
    assert_eq!(session.message().await, "{\"jsonrpc\":\"2.0\",\n\"method\":\"two/lines\"}");
    assert_eq!(session.message().await, response(1, "1"));
    session.end().await;
}
