//! Servers that answer nothing, too much, or what would steer the terminal of whoever reads it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "only a part of it is used here")]
#[path = "support/http.rs"]
mod http;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rejoin_probe::{Options, Report, RunError};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

/// What is allowed to a run that a hostile server keeps busy; each of its bounds is shorter.
const RUN_MAX: Duration = Duration::from_secs(100);
const STEERING: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}<script>alert(1)</script>";

const SESSION: &str = "zq-session-0123456789abcdef";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Accepts and says nothing.
    Silent,
    /// A head that goes on and on.
    EndlessHead,
    /// Interim answers without a final one.
    EndlessInterim,
    /// A line of the chunked coding that goes on and on.
    EndlessChunkLine,
    /// Comments without a pause.
    EndlessComments,
    /// Events without a pause.
    EndlessEvents,
    /// A body without end that is no stream.
    EndlessBody,
    /// A page, as any web server has it.
    Page,
    /// Another place.
    Moved,
    /// No credentials.
    Unauthorized,
    /// A proxy whose server is down.
    BadGateway,
    /// What it says steers terminals.
    Steering,
    /// The same, and its tool fails.
    SteeringError,
    /// It is gone after the tool was chosen.
    Lost,
    /// It repeats the credential and the session id of each request wherever it can.
    Echoing,
    /// The same to `initialize`, which it refuses.
    EchoingRefusal,
    /// It never answers DELETE.
    KeepsSessions,
    /// Events whose JSON takes a hundred times their bytes in memory.
    DenseEvents,
    /// It has no tools.
    NoTools,
    /// It does not know tools/list.
    NoToolList,
    /// Its tool is on the second page of its list.
    SecondPage,
}

async fn start(kind: Kind) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut calls = 0;
        while let Ok((mut socket, _)) = listener.accept().await {
            let Ok(Some(request)) = http::read(&mut socket).await else { continue };
            calls += u32::from(request.body["method"] == "tools/call");
            let lost = kind == Kind::Lost && calls >= 2 && request.body["method"] == "initialize";
            if !lost {
                tokio::spawn(async move {
                    let _gone = serve(kind, &mut socket, &request).await;
                });
            }
        }
    });
    address
}

/// Writes the first, and then the second again and again, until nobody reads.
async fn endless(socket: &mut TcpStream, first: &str, then: &str) -> io::Result<()> {
    socket.write_all(first.as_bytes()).await?;
    let block = then.repeat(64 * 1024 / then.len());
    loop {
        socket.write_all(block.as_bytes()).await?;
    }
}

async fn serve(kind: Kind, socket: &mut TcpStream, request: &http::Request) -> io::Result<()> {
    const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    match kind {
        Kind::Silent => std::future::pending().await,
        Kind::EndlessHead => endless(socket, "HTTP/1.1 200 OK\r\n", "X-Field: value\r\n").await,
        Kind::EndlessInterim => endless(socket, "", "HTTP/1.1 100 Continue\r\n\r\n").await,
        Kind::EndlessChunkLine => {
            let head = STREAM.replacen("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n", 1);
            endless(socket, &head, "0").await
        }
        Kind::EndlessComments => endless(socket, STREAM, ": x\n\n").await,
        Kind::EndlessEvents => endless(socket, STREAM, "data: {\"method\":\"x\"}\n\n").await,
        Kind::DenseEvents => {
            let dense = format!("data: [{}0]\n\n", "[],".repeat(10_000));
            endless(socket, STREAM, &dense).await
        }
        Kind::EchoingRefusal => {
            let words = request.header("authorization").unwrap_or_default();
            let body = json!({ "error": words, "key": request.header("x-key") });
            http::answer(socket, 401, &[], Some(&body)).await
        }
        Kind::EndlessBody => endless(socket, "HTTP/1.1 200 OK\r\n\r\n", "body").await,
        Kind::Page => {
            let page = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 4\
                        \r\n\r\n<h1>";
            socket.write_all(page.as_bytes()).await
        }
        Kind::Moved => {
            let fields = [("Location", "https://example.com/\u{1b}[2Jmcp")];
            http::answer(socket, 308, &fields, None).await
        }
        Kind::Unauthorized => {
            let body = json!({ "error": "invalid_token", "error_description": STEERING });
            http::answer(socket, 401, &[], Some(&body)).await
        }
        Kind::BadGateway => {
            let page =
                "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 22\r\n\r\nupstream\x1b[2J\n is down";
            socket.write_all(page.as_bytes()).await
        }
        Kind::KeepsSessions if request.method == "DELETE" => std::future::pending().await,
        _ => spoken(kind, socket, request).await,
    }
}

/// What a server says in its own words.
fn words(kind: Kind, request: &http::Request) -> String {
    if kind != Kind::Echoing {
        return STEERING.to_owned();
    }
    let field = |name| request.header(name).unwrap_or(SESSION);
    format!("{} {} {}", field("authorization"), field("x-key"), field("mcp-session-id"))
}

/// A page of the list of tools; `None` if there is none.
fn tools(kind: Kind, request: &http::Request) -> Option<Value> {
    let tool = json!({
        "name": words(kind, request),
        "annotations": { "readOnlyHint": true },
        "inputSchema": { "required": ["a"], "properties": { "a": { "default": STEERING } } },
    });
    match kind {
        Kind::NoToolList => None,
        Kind::NoTools => Some(json!({ "tools": [] })),
        Kind::SecondPage if request.body["params"]["cursor"].is_null() => {
            Some(json!({ "tools": [], "nextCursor": "2" }))
        }
        _ => Some(json!({ "tools": [tool] })),
    }
}

/// A small server that answers at once.
async fn spoken(kind: Kind, socket: &mut TcpStream, request: &http::Request) -> io::Result<()> {
    let (id, words) = (&request.body["id"], words(kind, request));
    let session = [("Mcp-Session-Id", SESSION)];
    let has_session = matches!(kind, Kind::Echoing | Kind::KeepsSessions);
    let fields = if has_session { &session[..] } else { &[] };
    let listed = tools(kind, request);
    let result = match request.body["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25",
            "serverInfo": { "name": words, "version": words },
        }),
        Some("tools/list") if listed.is_some() => listed.unwrap_or_default(),
        Some("tools/call") if kind != Kind::SteeringError => {
            json!({ "content": [{ "type": "text", "text": words }] })
        }
        None | Some("notifications/initialized") => {
            return http::answer(socket, 202, &[], None).await;
        }
        _ => {
            let error = json!({ "code": -32000, "message": words });
            let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            return http::answer(socket, 200, &[("Retry-After", STEERING)], Some(&body)).await;
        }
    };
    let body: Value = json!({ "jsonrpc": "2.0", "id": id, "result": result });
    http::answer(socket, 200, fields, Some(&body)).await
}

/// A run, with all that it told meanwhile.
async fn probed(kind: Kind, only: &[&str]) -> (Result<Report, RunError>, String) {
    let told = Arc::new(std::sync::Mutex::new(String::new()));
    let options = Options {
        url: format!("http://{}/mcp", start(kind).await),
        only: only.iter().map(|hazard| (*hazard).to_owned()).collect(),
        headers: [("Authorization", "Bearer zq-token-1234"), ("X-Key", "zq-key-5678")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..Options::default()
    };
    let into = Arc::clone(&told);
    let watcher = move |notice: &rejoin_probe::Notice<'_>| {
        let text = match notice {
            rejoin_probe::Notice::Chosen(subject) => subject.told(),
            rejoin_probe::Notice::Line(entry) => entry.to_string(),
            _ => String::new(),
        };
        into.lock().unwrap().push_str(&(text + "\n"));
    };
    let run = rejoin_probe::run(&options, Arc::new(watcher));
    let result = tokio::time::timeout(RUN_MAX, run).await.unwrap();
    let told = told.lock().unwrap().clone();
    (result, told)
}

async fn refused(kind: Kind, text: &str) {
    let started = Instant::now();
    let error = probed(kind, &["priming"]).await.0.unwrap_err().to_string();
    assert!(error.contains(text), "{kind:?}: {error}");
    assert!(error.len() < 500 && is_plain(&error), "{kind:?}: {error:?}");
    assert!(started.elapsed() < RUN_MAX, "{kind:?}");
}

fn is_plain(text: &str) -> bool {
    let turns = ['\u{202e}', '\u{feff}'];
    !text.chars().any(|one| (one.is_control() && one != '\n') || turns.contains(&one))
}

macro_rules! refused {
    ($($name:ident: $kind:ident, $text:literal;)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            refused(Kind::$kind, $text).await;
        }
    )* };
}

refused! {
    a_server_that_says_nothing_is_waited_for_and_left: Silent,
        "opens no session: initialize: no answer within 10000 ms; is there an MCP server";
    a_head_without_end_is_cut_off: EndlessHead, "bytes of a head";
    interim_answers_without_end_are_left: EndlessInterim, "no answer within";
    a_chunk_line_without_end_is_cut_off: EndlessChunkLine, "does not end";
    comments_without_end_are_left: EndlessComments, "does not end";
    events_without_end_are_cut_off: EndlessEvents, "does not end";
    a_body_without_end_is_cut_off: EndlessBody, "does not end";
    a_web_server_is_no_mcp_server: Page,
        "404, content type text/html, no result, but `<h1>`; check the path of the URL";
    a_place_that_moved_is_named: Moved, "it points to https://example.com/\\u{";
    json_that_takes_much_memory_is_cut_off: DenseEvents, "elements of JSON came";
    a_credential_that_is_sent_back_is_not_shown: EchoingRefusal, "but `{\"error\":\"***\"";
    a_server_without_tools_is_said_to_have_none: NoTools, "the server has no tools";
    a_server_that_lists_no_tools_is_quoted: NoToolList, "does not list its tools (-32000: ";
    credentials_are_asked_for: Unauthorized, "--auth";
    what_refuses_credentials_is_quoted: Unauthorized, "invalid_token";
    a_proxy_without_its_server_is_quoted: BadGateway,
        "but `upstream\\u{1b}[2J is down`; the server";
    what_a_failing_tool_says_is_quoted: SteeringError, "-32000: \\u{1b}]0;owned";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_says_steers_neither_terminal_nor_page() {
    let only = ["priming", "refusal", "session-id", "wrong-stream", "notification-status"];
    let (report, told) = probed(Kind::Steering, &only).await;
    let report = report.unwrap();
    let texts =
        [report.table(), report.json().unwrap(), report.html(), report.junit(), report.summary()];
    for text in [told].into_iter().chain(texts) {
        assert!(is_plain(&text), "{text:?}");
    }
    assert!(report.table().contains("\\u{1b}]0;owned"), "{}", report.table());
    assert!(!report.html().contains("<script") && !report.junit().contains("<script"));
    let back: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
    assert_eq!(back["subject"]["tool"]["name"], STEERING, "JSON holds what it was");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_and_session_ids_that_are_sent_back_are_in_no_report() {
    let only = ["priming", "refusal", "notification-status", "session-id", "version-status"];
    let (report, told) = probed(Kind::Echoing, &only).await;
    let report = report.unwrap();
    let texts = [report.table(), report.json().unwrap(), report.html(), report.junit()];
    for text in [told].into_iter().chain(texts) {
        assert!(!text.contains("zq-"), "{text}");
        assert!(text.contains("***"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answers_a_delete_is_waited_for_once() {
    let started = Instant::now();
    let only = ["priming", "refusal", "session-id", "version-status", "accept-status"];
    let report = probed(Kind::KeepsSessions, &only).await.0.unwrap();
    assert_eq!(report.findings.len(), only.len());
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_on_the_second_page_of_the_list_is_found() {
    let report = probed(Kind::SecondPage, &["priming"]).await.0.unwrap();
    assert_eq!(report.subject.tool.name, STEERING);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_lost_in_the_middle_is_said_to_be() {
    let report = probed(Kind::Lost, &[]).await.0.unwrap();
    assert!(report.lost && report.hazards() == 0, "{}", report.table());
    assert!(report.summary().contains("LOST"), "{}", report.summary());
    assert!(report.table().contains("not played"), "{}", report.table());
}
