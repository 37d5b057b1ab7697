//! The server: correct as long as no fault is switched on.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::http::{self, Request};
use super::log::{Session, Stream};

/// What a server can be made to do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    RunsRepeatsInFlight,
    RunsRepeatsAfterTheEnd,
    EndsAfterReplay,
    ForgetsWhatEnded,
    SkipsAnEventAtHandOver,
    ShufflesReplays,
    EvictsOldEvents,
    AnswersDuringReplays,
    ServesForeignIds,
    KeysLogsByRequestId,
    /// Runs repeats, too, and replays what follows the cursor on any stream.
    ReplaysAllOfTheSession,
    Broadcasts,
    EmptyForUnknownCursors,
    RepeatsTheCursorEvent,
    CancelsOnDisconnect,
    AnswersOnTheStandaloneStream,
    BlocksOnStalledReaders,
    GivesIdsTwice,
    DoesNotPrime,
    Answers400ForEndedSessions,
    IgnoresTheVersion,
    IgnoresAccept,
    AnswersNotifications,
    /// Which is none, but leaves a client time to change its mind.
    AnswersNotificationsLate,
    LetsEveryOriginIn,
    CountsItsSessions,
    RefusesWithoutReason,
    ForgetsSessionsAtRestart,
}

/// Longest wait for the sign that a connection is gone.
const GONE_MAX: Duration = Duration::from_millis(300);
/// Events that a log keeps, with that fault.
const KEPT: usize = 50;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    fault: Option<Fault>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    next: AtomicU64,
    executions: AtomicU64,
}

impl Server {
    pub(crate) async fn start(fault: Option<Fault>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            fault,
            sessions: Mutex::default(),
            next: AtomicU64::new(1),
            executions: AtomicU64::new(0),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                tokio::spawn(async move {
                    socket.set_nodelay(true).unwrap();
                    let _gone = shared.serve(&mut socket).await;
                });
            }
        });
        Self { address, shared }
    }

    /// Sessions that nobody ended.
    pub(crate) fn sessions(&self) -> usize {
        self.shared.sessions.lock().unwrap().len()
    }

    /// How often the tool ran.
    pub(crate) fn executions(&self) -> u64 {
        self.shared.executions.load(Ordering::SeqCst)
    }
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

fn result(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

impl Shared {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    async fn serve(self: &Arc<Self>, socket: &mut TcpStream) -> io::Result<()> {
        let Some(request) = http::read(socket).await? else {
            return Ok(());
        };
        if request.path == "/executions" {
            let count = json!(self.executions.load(Ordering::SeqCst));
            return http::answer(socket, 200, &[], Some(&count)).await;
        }
        if request.path == "/restart" {
            if self.has(Fault::ForgetsSessionsAtRestart) {
                self.sessions.lock().unwrap().clear();
            }
            return http::answer(socket, 200, &[], None).await;
        }
        if !self.has(Fault::LetsEveryOriginIn) {
            let host = request.header("host").unwrap_or_default();
            if request.header("origin").is_some() || !host.starts_with("127.0.0.1") {
                return http::answer(socket, 403, &[], None).await;
            }
        }
        let accept = request.header("accept").unwrap_or_default();
        if request.method != "DELETE"
            && !accept.contains("text/event-stream")
            && !self.has(Fault::IgnoresAccept)
        {
            return http::answer(socket, 406, &[], None).await;
        }
        if request.body["method"] == "initialize" {
            return self.initialize(socket, &request).await;
        }
        let Some(id) = request.header("mcp-session-id") else {
            return http::answer(socket, 400, &[], None).await;
        };
        let session = self.sessions.lock().unwrap().get(id).cloned();
        let Some(session) = session else {
            let is_odd = self.has(Fault::Answers400ForEndedSessions);
            return http::answer(socket, if is_odd { 400 } else { 404 }, &[], None).await;
        };
        let version = request.header("mcp-protocol-version").unwrap_or(&session.revision);
        if version != session.revision && !self.has(Fault::IgnoresTheVersion) {
            return http::answer(socket, 400, &[], None).await;
        }
        match request.method.as_str() {
            "DELETE" => {
                self.sessions.lock().unwrap().remove(&session.id);
                http::answer(socket, 204, &[], None).await
            }
            "GET" => self.get(socket, &request, &session).await,
            _ => self.post(socket, &request, &session).await,
        }
    }

    async fn initialize(&self, socket: &mut TcpStream, request: &Request) -> io::Result<()> {
        let number = self.number();
        let id = if self.has(Fault::CountsItsSessions) {
            format!("session-{number:016}")
        } else {
            let mut bytes = [0_u8; 16];
            io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let revision = request.body["params"]["protocolVersion"].as_str().unwrap_or_default();
        let session = Session::new(id.clone(), revision.to_owned());
        self.sessions.lock().unwrap().insert(id.clone(), session);
        let body = result(
            &request.body["id"],
            &json!({
                "protocolVersion": revision,
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "scripted", "version": "1" },
            }),
        );
        http::answer(socket, 200, &[("Mcp-Session-Id", &id)], Some(&body)).await
    }

    async fn post(
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

    async fn call(
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

    /// Writes a stream from this place on until it ends or another connection has it.
    async fn write(
        &self,
        socket: &mut TcpStream,
        session: &Session,
        stream: &Arc<Stream>,
        from: usize,
        skipped: usize,
    ) -> io::Result<()> {
        let holder = self.number();
        stream.holder.store(holder, Ordering::SeqCst);
        stream.connected.store(true, Ordering::SeqCst);
        stream.change();
        let written = self.write_events(socket, session, stream, from, skipped, holder).await;
        if stream.holder.load(Ordering::SeqCst) == holder {
            stream.connected.store(false, Ordering::SeqCst);
            stream.change();
        }
        if written? { http::end(socket).await } else { Ok(()) }
    }

    /// Says whether the stream ended, or went to another connection, while this one lived.
    async fn write_events(
        &self,
        socket: &mut TcpStream,
        session: &Session,
        stream: &Arc<Stream>,
        mut from: usize,
        mut skipped: usize,
        holder: u64,
    ) -> io::Result<bool> {
        let mut watch = stream.watch();
        loop {
            watch.borrow_and_update();
            let is_taken = stream.holder.load(Ordering::SeqCst) != holder;
            if is_taken && !self.has(Fault::Broadcasts) {
                return Ok(true);
            }
            let done = stream.is_done();
            let mut events = stream.events.lock().unwrap().split_off_copy(from);
            from += events.len();
            if skipped > 0 && !events.is_empty() {
                events.remove(0);
                skipped = 0;
            }
            if !events.is_empty() {
                let blocking = self.has(Fault::BlocksOnStalledReaders);
                let _held = if blocking { Some(session.writing.lock().await) } else { None };
                http::events(socket, &events).await?;
            }
            if done {
                stream.delivered.store(true, Ordering::SeqCst);
                stream.change();
                return Ok(true);
            }
            let mut byte = [0];
            tokio::select! {
                changed = watch.changed() => changed.map_err(io::Error::other)?,
                gone = socket.peek(&mut byte) => if gone? == 0 {
                    return Ok(false);
                },
            }
        }
    }

    async fn get(
        &self,
        socket: &mut TcpStream,
        request: &Request,
        session: &Arc<Session>,
    ) -> io::Result<()> {
        let Some(cursor) = request.header("last-event-id") else {
            http::begin(socket).await?;
            return self.write(socket, session, &Arc::clone(&session.standalone), 0, 0).await;
        };
        let mut found = session.find(cursor);
        if found.is_none() && self.has(Fault::ServesForeignIds) {
            let sessions: Vec<_> = self.sessions.lock().unwrap().values().cloned().collect();
            found = sessions.iter().find_map(|session| session.find(cursor));
        }
        let Some((stream, place)) = found else {
            let silent = [Fault::EmptyForUnknownCursors, Fault::EvictsOldEvents];
            if silent.iter().chain([&Fault::ForgetsWhatEnded]).any(|fault| self.has(*fault)) {
                http::begin(socket).await?;
                return http::end(socket).await;
            }
            return http::answer(socket, 405, &[], None).await;
        };
        self.resume(socket, session, &stream, place).await
    }

    async fn resume(
        &self,
        socket: &mut TcpStream,
        session: &Arc<Session>,
        stream: &Arc<Stream>,
        place: usize,
    ) -> io::Result<()> {
        session.replays.send_modify(|replays| *replays += 1);
        let replayed = self.replay(socket, stream, place).await;
        session.replays.send_modify(|replays| *replays -= 1);
        let next = replayed?;
        if self.has(Fault::EndsAfterReplay) {
            return http::end(socket).await;
        }
        let skipped = usize::from(self.has(Fault::SkipsAnEventAtHandOver));
        self.write(socket, session, stream, next, skipped).await
    }

    /// Writes what is in the log; gives the place after it.
    async fn replay(
        &self,
        socket: &mut TcpStream,
        stream: &Arc<Stream>,
        place: usize,
    ) -> io::Result<usize> {
        http::begin(socket).await?;
        if self.has(Fault::AnswersDuringReplays) {
            sleep(Duration::from_millis(200)).await;
        }
        let first = place - usize::from(self.has(Fault::RepeatsTheCursorEvent));
        let mut events = stream.events.lock().unwrap().split_off_copy(first);
        let next = first + events.len();
        if self.has(Fault::ShufflesReplays) {
            events.sort_by_key(|(id, _)| id.chars().rev().collect::<String>());
        }
        let mixed: fn(&Stream, &Stream) -> bool = match self.fault {
            Some(Fault::KeysLogsByRequestId) => |one, other| one.request == other.request,
            Some(Fault::ReplaysAllOfTheSession) => |one, other| one.session == other.session,
            _ => |_, _| false,
        };
        let sessions: Vec<_> = self.sessions.lock().unwrap().values().cloned().collect();
        let others = sessions.iter().flat_map(|session| session.all());
        let same = others.filter(|one| mixed(one, stream));
        for other in same.filter(|one| !Arc::ptr_eq(one, stream)) {
            events.extend(other.events.lock().unwrap().iter().cloned());
        }
        if !events.is_empty() {
            http::events(socket, &events).await?;
        }
        Ok(next)
    }
}

/// A copy of what follows a place.
trait SplitOffCopy {
    fn split_off_copy(&self, from: usize) -> Vec<(String, String)>;
}

impl SplitOffCopy for Vec<(String, String)> {
    fn split_off_copy(&self, from: usize) -> Vec<(String, String)> {
        self.get(from..).unwrap_or_default().to_vec()
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
