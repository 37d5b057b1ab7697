//! One endpoint for both eras: what has a session is guarded, all else is passed through.

use std::sync::{Arc, Mutex};

use rejoin_testkit::call::Call;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{Bench, End, Peer, answer, bare, chunk, modern, post, stream};

/// A server of both eras behind a gateway, one connection after the other.
struct DualEra {
    bench: Arc<Bench>,
    seen: Arc<Mutex<Vec<Seen>>>,
    serving: JoinHandle<()>,
}

/// A request at the server.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    line: String,
    session: Option<String>,
    method: String,
    id: Value,
}

impl Drop for DualEra {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl DualEra {
    /// `own`: the id that the server gives its sessions.
    async fn start(own: Option<&'static str>) -> Result<Self, Failure> {
        let bench = Arc::new(Bench::start().await?);
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (accepting, noted) = (Arc::clone(&bench), Arc::clone(&seen));
        let serving = tokio::spawn(async move {
            loop {
                let Ok(mut peer) = accepting.peer().await else { continue };
                let said = said(&peer, own);
                noted.lock().unwrap().push(note(&peer));
                drop(peer.say(said).await);
            }
        });
        Ok(Self { bench, seen, serving })
    }

    async fn ask(&self, request: &str) -> Result<(String, Value), Failure> {
        let got = self.bench.client(request).await?.answer().await?;
        Ok((got.status().to_owned(), got.json()))
    }

    fn seen(&self, method: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.method == method).cloned().collect()
    }
}

fn note(peer: &Peer) -> Seen {
    let body: Value = serde_json::from_slice(&peer.body).unwrap_or_default();
    Seen {
        line: peer.first_line().to_owned(),
        session: peer.field("mcp-session-id").map(str::to_owned),
        method: body["method"].as_str().unwrap_or_default().to_owned(),
        id: body["id"].clone(),
    }
}

fn said(peer: &Peer, own: Option<&str>) -> String {
    let body: Value = serde_json::from_slice(&peer.body).unwrap_or_default();
    let named = own.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
    let json = "Content-Type: application/json\r\nConnection: close\r\n";
    let revision = match &body["params"]["clientInfo"]["name"] {
        stubborn if stubborn == "stubborn" => &json!("2026-07-28"),
        _ => &body["params"]["protocolVersion"],
    };
    let result = match body["method"].as_str() {
        Some("initialize") => json!({"protocolVersion": revision,
            "capabilities": {"tools": {}}, "serverInfo": {"name": "both", "version": "1"}}),
        Some(_) if body["id"].is_null() => return answer("202 Accepted", json, ""),
        Some(_) => json!({"content": [{"type": "text", "text": "ran"}]}),
        None => return answer("405 Method Not Allowed", json, ""),
    };
    let result = json!({"jsonrpc": "2.0", "id": body["id"], "result": result});
    answer("200 OK", &format!("{json}{named}"), &result.to_string())
}

#[tokio::test]
async fn both_eras_are_served_on_one_endpoint() -> TestResult {
    let server = DualEra::start(Some("theirs")).await?;
    let session = Session::open(server.bench.address).await?;
    assert_ne!(session.id(), "theirs");
    let call = Call::new(5, "t", json!({}));
    let mut guarded = session.call(&call).await?;
    assert_eq!(guarded.response().await?["id"], 5);
    assert_eq!(guarded.head().await?.header("mcp-stream-resumable"), Some("true"));
    let (status, body) = server.ask(&modern(5, "")).await?;
    assert_eq!((status.as_str(), &body["id"]), ("200", &json!(5)));
    let seen = server.seen("tools/call");
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].session.as_deref(), Some("theirs"), "in the session");
    assert_ne!(seen[0].id, 5, "its id was minted");
    assert_eq!((&seen[1].session, &seen[1].id), (&None, &json!(5)), "passed through");
    Ok(())
}

#[tokio::test]
async fn a_newer_request_with_a_session_header_is_passed_and_makes_no_state() -> TestResult {
    let server = DualEra::start(Some("theirs")).await?;
    let session = Session::open(server.bench.address).await?;
    let spare = ["Mcp-Session-Id: nobody's\r\nLast-Event-ID: 7\r\n"];
    let own = format!("Mcp-Session-Id: {}\r\n", session.id());
    for named in [spare[0], &own] {
        // The same twice: nothing is a repeat here.
        for _ in 0..2 {
            let (status, body) = server.ask(&modern(9, named)).await?;
            assert_eq!((status.as_str(), &body["id"]), ("200", &json!(9)));
        }
    }
    let seen = server.seen("tools/call");
    let presented: Vec<_> = seen.iter().map(|seen| seen.session.as_deref()).collect();
    let foreign = Some("nobody's");
    assert_eq!(presented, [foreign, foreign, None, None], "the gateway's own id stays with it");
    Ok(())
}

#[tokio::test]
async fn an_initialize_for_a_revision_without_sessions_opens_a_guarded_session() -> TestResult {
    let server = DualEra::start(Some("theirs")).await?;
    let identity = Identity::of_revision("2026-07-28");
    let session = Session::open_as(server.bench.address, identity).await?;
    let agreed = &session.initialize_result()["protocolVersion"];
    assert_eq!(agreed, "2025-11-25", "the server agrees on what it is asked for");
    let mut call = session.call(&Call::new(5, "t", json!({}))).await?;
    assert_eq!(call.response().await?["id"], 5);
    assert_eq!(call.head().await?.header("mcp-stream-resumable"), Some("true"));
    Ok(())
}

#[tokio::test]
async fn a_server_that_insists_on_a_revision_without_sessions_opens_none() -> TestResult {
    let server = DualEra::start(Some("theirs")).await?;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "stubborn", "version": "1"}});
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params});
    let got = server.bench.client(&post("", &request.to_string())).await?.answer().await?;
    assert_eq!((got.status(), got.field("mcp-session-id")), ("502", None), "{}", got.head);
    let message = got.json()["error"]["message"].to_string();
    assert!(message.contains("agreed on revision 2026-07-28"), "{message}");
    assert!(message.contains("which was asked for 2025-11-25"), "{message}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_date_is_no_newer_revision_and_leaves_no_session() -> TestResult {
    let server = DualEra::start(Some("theirs")).await?;
    let session = Session::open(server.bench.address).await?;
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "t"}});
    for claimed in ["draft", "DRAFT-2026-v1", "latest", "v1", "2026-7-28", "99", "2025-12-01"] {
        let named =
            format!("Mcp-Session-Id: {}\r\nMcp-Protocol-Version: {claimed}\r\n", session.id());
        let (status, body) = server.ask(&post(&named, &call.to_string())).await?;
        assert_eq!((status.as_str(), &body["id"]), ("400", &json!(9)), "{claimed}");
        let stream = format!("{named}Accept: text/event-stream\r\n");
        let get = bare("GET", "/mcp", &stream).replace("Accept: */*\r\n", "");
        assert_eq!(server.ask(&get).await?.0, "400", "{claimed}");
        assert_eq!(server.ask(&bare("DELETE", "/mcp", &named)).await?.0, "400", "{claimed}");
    }
    assert!(server.seen("tools/call").is_empty());
    Ok(())
}

#[tokio::test]
async fn a_client_that_never_had_a_session_is_passed_through() -> TestResult {
    let server = DualEra::start(Some("theirs")).await?;
    let list = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}).to_string();
    for request in [
        post("", &list),
        post("MCP-Protocol-Version: 2025-06-18\r\n", &list),
        post("", &list).replace("Accept: application/json, text/event-stream", "Accept: x/y"),
    ] {
        let (status, body) = server.ask(&request).await?;
        assert_eq!((status.as_str(), &body["id"]), ("200", &json!(3)));
    }
    assert_eq!(server.ask(&bare("GET", "/mcp", "")).await?.0, "405");
    assert_eq!(server.ask(&bare("DELETE", "/mcp", "")).await?.0, "405");
    let lines: Vec<_> = server.seen("").into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["GET /mcp HTTP/1.1", "DELETE /mcp HTTP/1.1"]);
    Ok(())
}

#[tokio::test]
async fn a_session_that_is_unknown_and_a_body_that_could_open_one_are_not_passed() -> TestResult {
    let server = DualEra::start(Some("theirs")).await?;
    let list = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}).to_string();
    let unknown = "Mcp-Session-Id: theirs\r\n";
    assert_eq!(server.ask(&post(unknown, &list)).await?.0, "404");
    let stream = format!("{unknown}Accept: text/event-stream\r\n");
    let get = bare("GET", "/mcp", &stream).replace("Accept: */*\r\n", "");
    assert_eq!(server.ask(&get).await?.0, "404");
    assert_eq!(server.ask(&bare("DELETE", "/mcp", unknown)).await?.0, "404");
    let initialize = json!({"jsonrpc": "2.0", "id": 3, "method": "initialize"}).to_string();
    assert_eq!(server.ask(&post("", &format!("[{initialize}]"))).await?.0, "400");
    assert_eq!(server.ask(&post("", "no json")).await?.0, "400");
    let plain = post("", &initialize).replace("application/json\r\n", "text/plain\r\n");
    assert_eq!(server.ask(&plain).await?.0, "415");
    assert!(server.seen.lock().unwrap().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_initialize_that_is_no_request_is_malformed_in_whatever_spelling() -> TestResult {
    let server = DualEra::start(Some("theirs")).await?;
    let session = Session::open(server.bench.address).await?;
    let own = format!("Mcp-Session-Id: {}\r\n", session.id());
    for body in [
        r#"{"jsonrpc":"2.0","method":"initialize"}"#,
        r#"{"jsonrpc":"2.0","method":"\u0069nitialize"}"#,
        r#"{"jsonrpc":"2.0","m\u0065thod":"initialize"}"#,
        r#"[{"jsonrpc":"2.0","method":"initialize"}]"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"initialize"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"\u0069nitialize"}"#,
    ] {
        for named in ["", &own, "MCP-Protocol-Version: 2026-07-28\r\n"] {
            assert_eq!(server.ask(&post(named, body)).await?.0, "400", "{named}{body}");
        }
    }
    let (_, body) = server.ask(&post("", r#"{"jsonrpc":"2.0","method":"initialize"}"#)).await?;
    let message = body["error"]["message"].to_string();
    assert!(message.contains("send it with an id"), "{message}");
    assert_eq!(server.seen("initialize").len(), 1, "the one of the session");
    assert!(server.seen("ping").is_empty());
    // As a request it opens a session, whatever it claims and however it is spelled.
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"\u0069nitialize","params":{}}"#;
    let newer = "MCP-Protocol-Version: 2026-07-28\r\n";
    let got = server.bench.client(&post(newer, request)).await?.answer().await?;
    let id = got.field("mcp-session-id");
    assert!(got.status() == "200" && id.is_some() && id != Some("theirs"), "{}", got.head);
    Ok(())
}

#[tokio::test]
async fn an_initialize_of_a_revision_that_has_none_is_unknown() -> TestResult {
    let server = DualEra::start(Some("theirs")).await?;
    let named = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
    let request = json!({
        "jsonrpc": "2.0", "id": 500, "method": "initialize", "params": { "_meta": named },
    });
    let newer = "MCP-Protocol-Version: 2026-07-28\r\n";
    let (status, body) = server.ask(&post(newer, &request.to_string())).await?;
    assert_eq!((&*status, &body["error"]["code"]), ("404", &json!(-32_601)), "{body}");
    assert_eq!(body["id"], 500);
    assert!(server.seen("initialize").is_empty(), "nor is it passed on");
    Ok(())
}

#[tokio::test]
async fn a_server_that_keeps_no_sessions_is_guarded_by_those_of_the_gateway() -> TestResult {
    let server = DualEra::start(None).await?;
    let session = Session::open(server.bench.address).await?;
    let call = Call::new(5, "t", json!({"n": 1}));
    let mut answered = session.call(&call).await?;
    assert_eq!(answered.response().await?["id"], 5);
    assert!(!answered.events().is_empty(), "its events have ids");
    let seen = server.seen("tools/call");
    assert_eq!((seen.len(), &seen[0].session), (1, &None));
    Ok(())
}

#[tokio::test]
async fn the_older_transport_reaches_its_second_endpoint_while_its_stream_is_open() -> TestResult {
    let bench = Bench::start().await?;
    let initialize = post("", r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#)
        .replace("POST /mcp ", "POST /messages/?session_id=7 ");
    assert_eq!(bench.client(&initialize).await?.answer().await?.status(), "404");
    let mut stream_client = bench.client(&bare("GET", "/mcp", "")).await?;
    let mut stream_peer = bench.peer().await?;
    let endpoint = "event: endpoint\ndata: /messages/?session_id=7\n\n";
    stream_peer.say(stream(endpoint)).await?;
    stream_client.sees(endpoint).await?;
    let said = answer("202 Accepted", "Connection: close\r\n", "Accepted");
    let (peer, got) = bench.exchange(&initialize, &said).await?;
    assert_eq!(peer.first_line(), "POST /messages/?session_id=7 HTTP/1.1");
    assert!(String::from_utf8(peer.body)?.contains("initialize"));
    assert_eq!((got.status(), &*got.body), ("202", &b"Accepted"[..]));
    stream_peer.say(chunk("event: message\ndata: {}\n\n")).await?;
    stream_client.sees("data: {}").await?;
    let get = bench.client(&bare("GET", "/messages/", "")).await?.answer().await?;
    assert_eq!(get.status(), "405");
    stream_client.end(End::Reset)?;
    stream_peer.closed().await?;
    assert_eq!(bench.client(&initialize).await?.answer().await?.status(), "404");
    assert!(bench.nothing_came().await);
    Ok(())
}
