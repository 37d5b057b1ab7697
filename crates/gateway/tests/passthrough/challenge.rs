//! What a server asks of a client in a session, with 401 or 403: it is told where clients look.

use std::sync::Arc;

use rejoin_testkit::call::Call;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::{Answer, Bench, Peer, answer, post, stream};

const JSON: &str = "Content-Type: application/json\r\nConnection: close\r\n";
const CHALLENGE: &str = "WWW-Authenticate: Bearer error=\"invalid_token\", scope=\"x\"\r\n\
    WWW-Authenticate: Basic realm=\"tools\"\r\n\
    Content-Type: text/plain\r\nConnection: close\r\n";

/// A server that opens a session for everyone, and answers calls by their credential.
struct Guarded {
    bench: Arc<Bench>,
    /// Lets it answer a call of `Bearer late`.
    late: Arc<Notify>,
    serving: JoinHandle<()>,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Guarded {
    async fn start(held_headers_ms: u64) -> Result<Self, Failure> {
        let bench = Bench::limited(|limits| limits.held_headers_ms = held_headers_ms).await?;
        let (bench, late) = (Arc::new(bench), Arc::<Notify>::default());
        let (accepting, released) = (Arc::clone(&bench), Arc::clone(&late));
        let serving = tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let Ok(mut peer) = accepting.peer().await else { continue };
                let said = said(&peer, &released).await;
                drop(peer.say(said).await);
                if peer.field("authorization") == Some("Bearer slow") {
                    open.push(peer);
                }
            }
        });
        Ok(Self { bench, late, serving })
    }

    async fn session(&self, credential: &str) -> Result<Session, Failure> {
        let identity =
            Identity { authorization: Some(credential.to_owned()), ..Identity::default() };
        Ok(Session::open_as(self.bench.address, identity).await?)
    }

    async fn ask(
        &self,
        session: &Session,
        credential: &str,
        body: &Value,
    ) -> Result<Answer, Failure> {
        let named = format!("Mcp-Session-Id: {}\r\nAuthorization: {credential}\r\n", session.id());
        self.bench.client(&post(&named, &body.to_string())).await?.answer().await
    }
}

async fn said(peer: &Peer, late: &Notify) -> String {
    let body: Value = serde_json::from_slice(&peer.body).unwrap_or_default();
    let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "guarded", "version": "1"}});
    match (body["method"].as_str(), peer.field("authorization")) {
        (Some("initialize"), _) => {
            let result = json!({"jsonrpc": "2.0", "id": body["id"], "result": result});
            answer("200 OK", JSON, &result.to_string())
        }
        (None, _) => answer("405 Method Not Allowed", JSON, ""),
        (Some(_), _) if body["id"].is_null() => answer("202 Accepted", JSON, ""),
        (Some(_), Some("Bearer expired")) => answer("401 Unauthorized", CHALLENGE, "who?"),
        (Some(_), Some("Bearer narrow")) => answer("403 Forbidden", CHALLENGE, "who?"),
        (Some(_), Some("Bearer late")) => {
            late.notified().await;
            answer("401 Unauthorized", CHALLENGE, "who?")
        }
        (Some(_), _) => stream(": open\n\n"),
    }
}

#[tokio::test]
async fn a_challenge_in_a_session_is_the_status_of_the_answer() -> TestResult {
    let server = Guarded::start(600_000).await?;
    for (credential, status) in [("Bearer expired", "401"), ("Bearer narrow", "403")] {
        let session = server.session(credential).await?;
        let call = Call::new(7, "t", json!({})).message();
        let list = json!({"jsonrpc": "2.0", "id": 8, "method": "tools/list"});
        let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"});
        // The call twice: it did not run, so the second is no repeat.
        for body in [&call, &list, &ping, &call] {
            let got = server.ask(&session, credential, body).await?;
            assert_eq!(got.status(), status, "{body}: {}", got.head);
            let challenges: Vec<_> = got.fields().into_iter().filter(is_challenge).collect();
            let expected = [
                "www-authenticate: Bearer error=\"invalid_token\", scope=\"x\"",
                "www-authenticate: Basic realm=\"tools\"",
            ];
            assert_eq!(challenges, expected, "{body}");
            assert_eq!(got.field("content-type"), Some("application/json"), "{body}");
            let error = got.json();
            assert_eq!((&error["id"], got.is_whole), (&body["id"], true), "{error}");
            let message = error["error"]["message"].as_str().unwrap_or_default();
            assert!(message.starts_with("Not run."), "{error}");
        }
    }
    Ok(())
}

fn is_challenge(field: &&str) -> bool {
    field.to_ascii_lowercase().starts_with("www-authenticate:")
}

#[tokio::test]
async fn a_challenge_that_comes_after_the_head_is_an_error_on_the_stream() -> TestResult {
    let server = Guarded::start(1).await?;
    let session = server.session("Bearer late").await?;
    let mut call = session.call(&Call::new(7, "t", json!({}))).await?;
    let head = call.head().await?;
    assert_eq!((head.status, head.is_event_stream()), (200, true));
    server.late.notify_one();
    let response = call.response().await?;
    assert_eq!((&response["id"], &response["error"]["data"]["status"]), (&json!(7), &json!(401)));
    Ok(())
}

#[tokio::test]
async fn the_head_of_a_stream_leaves_as_soon_as_the_server_begins_its_own() -> TestResult {
    let server = Guarded::start(600_000).await?;
    let session = server.session("Bearer slow").await?;
    let mut call = session.call(&Call::new(7, "t", json!({}))).await?;
    let head = call.head().await?;
    assert_eq!((head.status, head.is_event_stream()), (200, true));
    Ok(())
}
