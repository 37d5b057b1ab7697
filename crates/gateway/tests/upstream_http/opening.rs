//! Opening: answers, refusals, redirects, TLS, headers.
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rejoin_gateway::upstream::conformance::{INITIALIZE, Session, WAIT};
use rejoin_gateway::upstream::http::{HttpUpstream, HttpUpstreamError, UpstreamAuth, WireError};
use rejoin_gateway::upstream::{Command, Event, OpenError, Opened, Opening, Upstream};
use serde_json::Value;
use tokio::time::timeout;

use crate::support::{
    Server, at, initialized, open_error, options, requests, round_trip, served, to,
};

#[tokio::test]
async fn an_answer_on_a_stream_opens_the_session_and_keeps_what_came_before() {
    let upstream = served(&["sse", "early"]);
    let mut session = Session::open(&upstream).await;
    assert_eq!(session.answer["result"]["serverInfo"]["name"], "scripted");
    assert!(session.message().await.contains("early"));
    round_trip(&mut session, 1).await;
    session.end().await;
}

#[tokio::test]
async fn every_request_names_session_and_revision_and_asks_for_plain_bodies() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    initialized(&mut session).await;
    let seen = requests(&mut session, 1).await;
    let first = &seen[0]["headers"];
    assert_eq!(
        (&first["mcp-session-id"], &first["mcp-protocol-version"]),
        (&Value::Null, &Value::Null)
    );
    assert!(seen.iter().any(|request| request["http"] == "GET"));
    for request in &seen[1..] {
        let headers = &request["headers"];
        assert!(headers["mcp-session-id"].as_str().is_some_and(|id| id.starts_with("session-")));
        assert_eq!(headers["mcp-protocol-version"], "2025-11-25");
        assert_eq!(headers["accept-encoding"], "identity");
        let accept = headers["accept"].as_str().unwrap();
        assert!(accept.starts_with("text/event-stream"), "{accept}");
        assert_eq!(accept.contains("application/json"), request["http"] == "POST");
    }
    session.end().await;
}

#[tokio::test]
async fn an_ended_session_is_deleted_at_the_server() {
    let server = Server::start(&[]);
    let upstream = to(&server);
    Session::open(&upstream).await.end().await;
    let mut dropped = Session::open(&upstream).await;
    dropped.drop_commands();
    dropped.rest().await;
    let mut session = Session::open(&upstream).await;
    let seen = requests(&mut session, 1).await;
    assert_eq!(seen.iter().filter(|request| request["http"] == "DELETE").count(), 2);
    session.end().await;
}

#[tokio::test]
async fn a_session_opened_for_nobody_is_deleted() {
    let server = Server::start(&[]);
    let upstream = to(&server);
    let mut open = upstream.open(Bytes::from_static(INITIALIZE.as_bytes()).into());
    // One poll starts it, and cannot end it: this thread is the only one of the runtime.
    let polled = poll_fn(|context| Poll::Ready(open.as_mut().poll(context).is_ready())).await;
    assert!(!polled);
    drop(open);
    let mut session = Session::open(&upstream).await;
    let deadline = Instant::now() + WAIT;
    for call in 1.. {
        let seen = requests(&mut session, call).await;
        if seen.iter().any(|request| request["http"] == "DELETE") {
            break;
        }
        assert!(Instant::now() < deadline, "the session was not deleted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    session.end().await;
}

#[tokio::test]
async fn a_refusal_comes_back_with_status_challenge_and_body() {
    for status in ["401", "403"] {
        let error = open_error(&served(&[&format!("refuse={status}")])).await;
        let OpenError::Refused { status: got, headers, body, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(got.as_str(), status);
        assert_eq!(headers["www-authenticate"], "Bearer realm=\"tools\"");
        assert_eq!(headers["content-type"], "text/plain");
        assert!(!headers.contains_key("x-other"));
        assert_eq!(body, "denied");
    }
    for (status, path, remedy) in [
        ("404", "/", "most servers are at /mcp"),
        ("405", "", "most servers are at /mcp"),
        ("404", "/mcp", "check URL and credentials"),
        ("502", "/", "check URL and credentials"),
    ] {
        let server = Server::start(&[&format!("refuse={status}")]);
        let error = open_error(&at(&format!("{}{path}", server.url), options())).await;
        assert!(error.to_string().contains(remedy), "{path}: {error}");
    }
    let error = open_error(&served(&["refuse=502"])).await;
    assert!(matches!(error, OpenError::Refused { status: StatusCode::BAD_GATEWAY, .. }));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named_with_a_remedy() {
    let mut server = Server::start(&[]);
    let upstream = to(&server);
    server.kill();
    let error = open_error(&upstream).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&format!("127.0.0.1:{}", server.port())), "{text}");
    assert!(text.contains("refused") && text.contains("check the URL"), "{text}");
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let server = Server::start(&["mute"]);
    let mut options = options();
    Arc::make_mut(&mut options.limits).initialize_max_ms = 200;
    let error = open_error(&at(&format!("{}/mcp", server.url), options)).await;
    assert!(matches!(error, OpenError::TimedOut { limit_ms: 200, .. }), "{error:?}");
    // Of a server elsewhere nothing is seen of its standard error.
    assert!(error.to_string().contains("see the log of that server"), "{error}");
}

#[tokio::test]
async fn an_encoded_answer_is_refused() {
    let error = open_error(&served(&["encoded"])).await;
    assert!(error.to_string().contains("coding nobody asked for"), "{error}");
}

#[tokio::test]
async fn a_redirect_is_followed_on_its_origin_and_named_beyond_it() {
    let server = Server::start(&["ids"]);
    let mut session = Session::open(&at(&format!("{}/moved", server.url), options())).await;
    round_trip(&mut session, 1).await;
    session.end().await;
    for (path, text) in [
        ("other", format!("redirects to http://localhost:{}", server.port())),
        ("loop", "redirects more than 3 times".to_owned()),
        ("found", "HTTP status 302".to_owned()),
    ] {
        let error = open_error(&at(&format!("{}/{path}", server.url), options())).await;
        assert!(matches!(error, OpenError::Redirected { .. }), "{error:?}");
        assert!(error.to_string().contains(&text), "{error}");
    }
}

/// Opens a session as a client with these headers.
async fn open_with(upstream: &Arc<dyn Upstream>, headers: HeaderMap) -> Opened {
    let initialize = Bytes::from_static(INITIALIZE.as_bytes());
    upstream.open(Opening { initialize, headers }).await.expect("the session opens")
}

/// The headers of every request that the server got, by a call that asks for them.
async fn seen_headers(opened: &mut Opened, call: u64) -> Vec<Value> {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{call},"method":"test/stats"}}"#);
    let call = rejoin_core::id::CallId(call);
    opened.commands.send(Command::Call { call, message: text.into() }).await.expect("sent");
    loop {
        match timeout(WAIT, opened.events.recv()).await.expect("an event comes") {
            Some(Event::Message { message, .. }) => {
                let value: Value = serde_json::from_slice(&message).expect("JSON");
                let requests = value["result"]["requests"].as_array().expect("a list");
                return requests.iter().map(|request| request["headers"].clone()).collect();
            }
            Some(Event::Sent { .. } | Event::Begun { .. }) => {}
            other => panic!("expected an answer, got {other:?}"),
        }
    }
}

fn client(token: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_static(token));
    headers.insert("x-tenant", HeaderValue::from_static("blue"));
    headers.insert("x-private", HeaderValue::from_static("secret"));
    headers
}

#[tokio::test]
async fn allowed_headers_are_forwarded_and_a_refreshed_one_replaces_the_first() {
    let server = Server::start(&[]);
    let mut options = options();
    options.forward_headers = vec![HeaderName::from_static("x-tenant")];
    let upstream = at(&format!("{}/mcp", server.url), options);
    let mut opened = open_with(&upstream, client("Bearer one")).await;
    opened.commands.send(Command::Headers(client("Bearer two"))).await.unwrap();
    let seen = seen_headers(&mut opened, 1).await;
    assert_eq!(seen[0]["authorization"], "Bearer one");
    assert_eq!(seen[1]["authorization"], "Bearer two");
    for headers in &seen {
        assert_eq!((&headers["x-tenant"], &headers["x-private"]), (&"blue".into(), &Value::Null));
    }
}

#[tokio::test]
async fn an_own_credential_replaces_the_clients() {
    let server = Server::start(&[]);
    let mut options = options();
    options.auth = UpstreamAuth::Command("echo Bearer own".into());
    let upstream = at(&format!("{}/mcp", server.url), options.clone());
    let mut opened = open_with(&upstream, client("Bearer theirs")).await;
    for headers in seen_headers(&mut opened, 1).await {
        assert_eq!(headers["authorization"], "Bearer own");
    }
    options.auth = UpstreamAuth::Command("exit 1".into());
    let error = open_error(&at(&format!("{}/mcp", server.url), options)).await;
    assert!(matches!(error, OpenError::Credential { .. }), "{error:?}");
}

#[tokio::test]
async fn tls_trusts_the_authority_of_a_file_and_no_other() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("ca"), authority.pem()).unwrap();
    std::fs::write(path("cert"), certificate.pem()).unwrap();
    std::fs::write(path("key"), key.serialize_pem()).unwrap();
    let tls = format!("tls={},{}", path("cert").display(), path("key").display());
    let server = Server::start(&["ids", &tls]);
    let url = format!("{}/mcp", server.url);
    assert!(url.starts_with("https://"));

    let mut trusting = options();
    trusting.ca_file = Some(path("ca"));
    let mut session = Session::open(&at(&url, trusting.clone())).await;
    round_trip(&mut session, 1).await;
    session.end().await;

    // Without the file: the system's authorities do not know it; there may be none at all.
    match HttpUpstream::new(&url, options()) {
        Ok(upstream) => {
            let upstream: Arc<dyn Upstream> = Arc::new(upstream);
            let error = open_error(&upstream).await;
            assert!(error.to_string().contains("invalid peer certificate"), "{error}");
        }
        Err(error) => {
            let none = HttpUpstreamError::Wire(WireError::NoAuthorities);
            assert_eq!(error.to_string(), none.to_string());
        }
    }
    trusting.ca_file = Some(path("key"));
    let error = HttpUpstream::new(&url, trusting.clone()).unwrap_err();
    assert!(matches!(error, HttpUpstreamError::Wire(WireError::CaFile { .. })), "{error:?}");
    trusting.ca_file = Some(path("absent"));
    let error = HttpUpstream::new(&url, trusting.clone()).unwrap_err();
    assert!(matches!(error, HttpUpstreamError::Wire(WireError::NoCaFile { .. })), "{error:?}");

    let plain = Server::start(&[]);
    trusting.ca_file = Some(path("ca"));
    let error = open_error(&at(&plain.url.replace("http://", "https://"), trusting)).await;
    let text = error.to_string();
    assert!(text.contains("it does not speak TLS, its URL may begin with http:; check"), "{text}");
}
