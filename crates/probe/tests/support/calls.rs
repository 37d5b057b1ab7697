//! Calls, and what is made of one that is sent again: hazards of repeats.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::faults::Fault;
use super::http::{self, Request};
use super::log::{Session, Stream};
use super::server::Shared;

/// Longest wait for the sign that a connection is gone.
const GONE_MAX: Duration = Duration::from_millis(300);
/// Events that a log keeps, with that fault.
const KEPT: usize = 50;

pub(super) fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

pub(super) fn result(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

impl Shared {
    pub(super) async fn post(
        self: &Arc<Self>,
        socket: &mut TcpStream,
        request: &Request,
        session: &Arc<Session>,
    ) -> io::Result<()> {
        let (id, method) = (&request.body["id"], request.body["method"].as_str());
        if id.is_null() {
            if self.has(Fault::AnswersNotificationsLate) {
                sleep(GONE_MAX).await;
            }
            let is_odd = self.has(Fault::AnswersNotifications);
            return http::answer(socket, if is_odd { 200 } else { 202 }, &[], None).await;
        }
        if !self.has(Fault::AnswersDuringReplays) && method == Some("tools/call") {
            let mut replays = session.replays.subscribe();
            let _held = timeout(Duration::from_secs(5), replays.wait_for(|now| *now == 0)).await;
        }
        let _written = session.writing.lock().await;
        drop(_written);
        let name = request.body["params"]["name"].as_str();
        let body = match (method, name) {
            (Some("ping"), _) => result(id, &json!({})),
            (Some("tools/list"), _) => result(id, &tools()),
            (Some("tools/call"), Some("peek")) => result(id, &json!({ "content": [] })),
            (Some("tools/call"), Some("work")) => {
                return self.call(socket, request, session).await;
            }
            (Some("tools/call"), _) => error(id, -32602, "no such tool"),
            _ => error(id, -32601, "no such method"),
        };
        http::answer(socket, 200, &[], Some(&body)).await
    }

    pub(super) async fn call(
        self: &Arc<Self>,
        socket: &mut TcpStream,
        request: &Request,
        session: &Arc<Session>,
    ) -> io::Result<()> {
        let (id, params) = (&request.body["id"], &request.body["params"]);
        let key = params["arguments"].to_string();
        if let Some((status, body)) = self.repeated(session, &key, id).await {
            return http::answer(socket, status, &[], Some(&body)).await;
        }
        let stream = Stream::new(&session.id, self.number(), id.clone(), key);
        session.streams.lock().unwrap().push(Arc::clone(&stream));
        if session.revision.as_str() >= "2025-11-25" && !self.has(Fault::DoesNotPrime) {
            stream.push(self.has(Fault::GivesIdsTwice), String::new());
        }
        let running = Arc::clone(self).run(params.clone(), Arc::clone(&stream));
        tokio::spawn(running);
        http::begin(socket).await?;
        self.write(socket, session, &stream, 0, 0).await
    }

    /// What a call is answered that was sent before.
    async fn repeated(&self, session: &Session, key: &str, id: &Value) -> Option<(u16, Value)> {
        if self.has(Fault::ReplaysAllOfTheSession) {
            return None;
        }
        let same = session.all().into_iter().filter(|stream| stream.key == key);
        let stream = same.into_iter().find(|one| !one.delivered.load(Ordering::SeqCst))?;
        let mut watch = stream.watch();
        let gone = async {
            while !stream.is_owed() && !stream.delivered.load(Ordering::SeqCst) {
                if watch.changed().await.is_err() {
                    break;
                }
            }
        };
        let _gone = timeout(GONE_MAX, gone).await;
        if !stream.is_owed() {
            return None;
        }
        if !stream.is_done() {
            if self.has(Fault::RunsRepeatsInFlight) {
                return None;
            }
            let mut body = error(id, 40902, "the same call runs");
            if !self.has(Fault::RefusesWithoutReason) {
                body["error"]["data"] = json!({ "reason": "request_in_flight" });
            }
            return Some((409, body));
        }
        if self.has(Fault::RunsRepeatsAfterTheEnd) {
            return None;
        }
        let mut response = stream.response()?;
        response["id"] = id.clone();
        Some((200, response))
    }

    /// The tool.
    async fn run(self: Arc<Self>, params: Value, stream: Arc<Stream>) {
        let number = self.executions.fetch_add(1, Ordering::SeqCst) + 1;
        let argument =
            |name: &str, default: u64| params["arguments"][name].as_u64().unwrap_or(default);
        let (events, interval) = (argument("events", 12), argument("interval_ms", 40));
        let padding = "x".repeat(usize::try_from(argument("bytes", 0)).unwrap());
        for progress in 1..=events {
            if interval > 0 {
                sleep(Duration::from_millis(interval)).await;
            }
            if self.has(Fault::CancelsOnDisconnect) && stream.is_owed() {
                return;
            }
            let message = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": params["_meta"]["progressToken"],
                "progress": progress, "total": events, "message": padding,
            } });
            stream.push(self.has(Fault::GivesIdsTwice), message.to_string());
        }
        let text = format!("done (execution {number})");
        let content = json!({ "content": [{ "type": "text", "text": text }] });
        let response = result(&stream.request, &content).to_string();
        if self.has(Fault::AnswersOnTheStandaloneStream) && stream.is_owed() {
            let session = self.sessions.lock().unwrap().get(&stream.session).cloned();
            if let Some(session) = session {
                session.standalone.push(false, response);
            }
            return stream.finish();
        }
        stream.push(self.has(Fault::GivesIdsTwice), response);
        stream.finish();
        if self.has(Fault::ForgetsWhatEnded) && stream.is_owed() {
            stream.events.lock().unwrap().clear();
        }
        if self.has(Fault::EvictsOldEvents) {
            let mut watch = stream.watch();
            let connected = || stream.connected.load(Ordering::SeqCst);
            while connected() && watch.changed().await.is_ok() {}
            let mut events = stream.events.lock().unwrap();
            let old = events.len().saturating_sub(KEPT);
            events.drain(..old);
        }
    }
}

fn tools() -> Value {
    json!({ "tools": [
        { "name": "erase", "inputSchema": { "type": "object" } },
        {
            "name": "work", "description": "Sends progress.",
            "inputSchema": { "type": "object", "properties": {} },
            "annotations": { "readOnlyHint": true },
        },
        {
            "name": "peek", "description": "Answers at once.",
            "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true },
        },
    ] })
}
