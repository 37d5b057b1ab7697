//! What no server of a library does: connections, byte by byte.
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use rejoin_core::id::CallId;
use rejoin_core::limits::Limits;
use rejoin_gateway::upstream::conformance::{Session, response};
use rejoin_gateway::upstream::{Command, Event, LostReason, NotSentReason};
use serde_json::{Value, json};

use crate::support::{at, event, open_error, options};

/// A body that a server refuses. It need not read it, and then serves its connection no longer.
const LARGE_BYTES: usize = 1024 * 1024;

/// The length of the body of the next request on a connection; `None`: there is none.
fn head(reader: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        } else if line.is_empty() {
            return Some(length);
        }
    }
}

fn json_answer(body: &str, more: &str) -> String {
    let (kind, length) = ("Content-Type: application/json", body.len());
    format!("HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\n{more}\r\n{body}")
}

/// Keeps a connection open for as long as the process lives.
fn rest() {
    loop {
        thread::park();
    }
}

/// Answers what comes on one connection; each answer has the headers `more`.
fn converse(connection: TcpStream, more: &str) {
    let mut writer = connection.try_clone().expect("a second handle");
    let mut reader = BufReader::new(connection);
    while let Some(length) = head(&mut reader) {
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a whole body");
        if length >= LARGE_BYTES {
            let refusal = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
            writer.write_all(refusal.as_bytes()).expect("it is read");
            return rest();
        }
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        if message["method"] == "half" {
            let begin = json_answer("{", more).replace("Length: 1", "Length: 100");
            writer.write_all(begin.as_bytes()).expect("it is read");
            return rest();
        }
        let answer = match message["id"].as_u64() {
            Some(id) => json_answer(&response(id, "{}"), more),
            None => "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n".to_owned(),
        };
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A server whose answers have these headers too; where it is. Its threads end with the process.
fn serve(more: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let more = more.clone();
            thread::spawn(move || converse(connection, &more));
        }
    });
    url
}

fn call(id: u64, method: &str, padding: usize) -> Command {
    let params = json!({ "padding": "x".repeat(padding) });
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    Command::Call { call: CallId(id), message: message.to_string().into() }
}

#[tokio::test]
async fn a_call_after_one_whose_long_body_was_refused_goes_another_way() {
    let mut session = Session::open(&at(&serve(String::new()), options())).await;
    for id in [1, 3, 5] {
        assert!(session.command(call(id, "test", LARGE_BYTES)).await);
        let refused = event(&mut session).await;
        let Event::NotSent { reason: NotSentReason::Refused { status, .. }, .. } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(status.as_u16(), 413);
        assert!(session.command(call(id + 1, "test", 10)).await);
        assert_eq!(session.message().await, response(id + 1, "{}"));
    }
    session.end().await;
}

#[tokio::test]
async fn a_cancelled_call_whose_json_answer_began_and_never_ends_is_given_up() {
    let mut options = options();
    Arc::make_mut(&mut options.limits).upstream.cancelled_silence_max_ms = 500;
    let mut session = Session::open(&at(&serve(String::new()), options)).await;
    assert!(session.command(call(1, "half", 10)).await);
    assert_eq!(session.next().await, Some(Event::Sent { call: CallId(1) }));
    let message =
        Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}");
    assert!(session.command(Command::Cancel { call: CallId(1), message }).await);
    let lost = Event::Lost { call: CallId(1), reason: LostReason::Cancelled };
    assert_eq!(session.next().await, Some(lost));
    session.end().await;
}

#[tokio::test]
async fn a_head_that_the_buffer_of_a_connection_holds_is_read_and_a_longer_one_is_not() {
    let buffer_bytes = Limits::default().connection_buffer_bytes_max;
    let padded = |bytes| at(&serve(format!("X-Padding: {}\r\n", "x".repeat(bytes))), options());
    let mut session = Session::open(&padded(buffer_bytes - 1_024)).await;
    assert!(session.command(call(1, "test", 10)).await);
    assert_eq!(session.message().await, response(1, "{}"));
    session.end().await;
    let error = open_error(&padded(2 * buffer_bytes)).await.to_string();
    assert!(error.contains("too large"), "{error}");
}
