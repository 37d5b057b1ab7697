//! A server elsewhere: it speaks Streamable HTTP, gives its events ids, and outlives the gateway.
//!
//! What a call does runs in tasks of the server's own, whoever is connected: streams are kept, and
//! given again from a cursor. Its connections can be cut, it can be away, and it can forget its
//! sessions.

mod body;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tower_service::Service;

use crate::child::{hello, session_of};
use crate::history::{History, What};
use crate::random::Random;
use crate::tool::{NOTES, READY, Tools};

use self::body::{Log, Said};

const QUEUE_MAX: usize = 64;
/// The number of a session's standalone stream.
const STANDALONE: u64 = 0;

/// The server. Clones are the same.
#[derive(Clone)]
pub struct Web {
    shared: Arc<Shared>,
}

struct Shared {
    tools: Tools,
    history: History,
    state: Mutex<State>,
    /// Counts what cuts all connections.
    cuts: watch::Sender<u64>,
}

struct State {
    random: Random,
    is_away: bool,
    /// The gateway's life that may connect.
    life: u32,
    next: u64,
    sessions: BTreeMap<String, Session>,
}

struct Session {
    number: usize,
    streams: BTreeMap<u64, Log>,
    running: BTreeMap<String, AbortHandle>,
    /// It was told that its client is ready.
    is_ready: bool,
}

type Answer = Response<Said>;

impl Web {
    pub fn new(tools: Tools, history: History, random: Random) -> Self {
        let sessions = BTreeMap::new();
        let state = State { random, is_away: false, life: 0, next: 1, sessions };
        let (state, cuts) = (Mutex::new(state), watch::Sender::new(0));
        Self { shared: Arc::new(Shared { tools, history, state, cuts }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way there for the gateway's next life. What the one before has there reaches it no more.
    pub fn connect(&self) -> Way {
        let life = {
            let mut state = self.state();
            state.life += 1;
            state.life
        };
        self.disconnect();
        Way { web: self.clone(), life }
    }

    /// All its connections break; what runs goes on.
    pub fn cut(&self) {
        self.shared.history.record(What::ServerCut);
        self.disconnect();
    }

    fn disconnect(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    /// Nobody can connect meanwhile.
    pub fn leave(&self, is_away: bool) {
        let was_away = std::mem::replace(&mut self.state().is_away, is_away);
        if was_away != is_away {
            self.shared.history.record(What::ServerAway { away: is_away });
        }
        if is_away {
            self.cut();
        }
    }

    /// It forgets its sessions, and what runs ends.
    pub fn forget(&self) {
        self.shared.history.record(What::ServerDied);
        let sessions = std::mem::take(&mut self.state().sessions);
        for task in sessions.into_values().flat_map(|session| session.running.into_values()) {
            task.abort();
        }
        self.cut();
    }

    fn latency(&self) -> Duration {
        Duration::from_millis(self.state().random.between(1, 15))
    }

    fn next(&self) -> u64 {
        let mut state = self.state();
        state.next += 1;
        state.next - 1
    }

    /// Answers a request, in a task of the server's own.
    fn answer(&self, method: &Method, headers: &HeaderMap, body: &[u8]) -> Answer {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        if *method == Method::POST && message["method"] == "initialize" {
            let id = format!("web-{}", self.next());
            let (number, standalone) = (session_of(body), Log::new(STANDALONE));
            let speaking = tokio::spawn(say(self.shared.tools.clone(), number, standalone.clone()));
            let streams = BTreeMap::from([(STANDALONE, standalone)]);
            let running = BTreeMap::from([("itself".to_owned(), speaking.abort_handle())]);
            let session = Session { number, streams, running, is_ready: false };
            self.state().sessions.insert(id.clone(), session);
            let mut answer = json_answer(hello(body));
            if let Ok(id) = id.parse() {
                answer.headers_mut().insert("mcp-session-id", id);
            }
            return answer;
        }
        let session = text("mcp-session-id").unwrap_or_default().to_owned();
        if !self.state().sessions.contains_key(&session) {
            return status(StatusCode::NOT_FOUND);
        }
        match *method {
            Method::POST => self.post(&session, &message),
            Method::GET => match text("last-event-id") {
                Some(cursor) => self.resume(&session, cursor),
                None => self.resume(&session, &format!("{STANDALONE}-0")),
            },
            Method::DELETE => {
                let ended = self.state().sessions.remove(&session);
                if let Some(ended) = ended {
                    self.shared.tools.ended(ended.number);
                    ended.running.into_values().for_each(|task| task.abort());
                }
                status(StatusCode::OK)
            }
            _ => status(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    fn post(&self, session: &str, message: &Value) -> Answer {
        if message["method"] == "notifications/cancelled" {
            let from = self.state().sessions.get(session).map_or(0, |session| session.number);
            let call = self.shared.tools.cancelled(from, message).to_string();
            let mut state = self.state();
            let stops = state.random.percent(50);
            let running = state.sessions.get_mut(session).and_then(|s| s.running.remove(&call));
            if let Some(task) = running.filter(|_| stops) {
                task.abort();
            }
        }
        if message["method"] == READY
            && let Some(session) = self.state().sessions.get_mut(session)
        {
            session.is_ready = true;
        }
        self.shared.tools.answered(message);
        if message.get("id").is_none() || message.get("method").is_none() {
            return status(StatusCode::ACCEPTED);
        }
        if message["method"] != "tools/call" {
            let empty = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} });
            return json_answer(empty.to_string());
        }
        let number = self.next();
        let log = Log::new(number);
        let (web, call, kept) = (self.clone(), message.clone(), log.clone());
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(session) else {
            return status(StatusCode::NOT_FOUND);
        };
        let from = session.number;
        self.shared.tools.called(from, session.is_ready);
        let task = tokio::spawn(async move { web.work(from, &call, &kept).await });
        session.running.insert(message["id"].to_string(), task.abort_handle());
        session.streams.insert(number, log.clone());
        drop(state);
        self.stream(log, 0)
    }

    async fn work(&self, session: usize, call: &Value, log: &Log) {
        let (out, mut said) = mpsc::channel(QUEUE_MAX);
        let passing = async {
            while let Some(message) = said.recv().await {
                log.add(message, false);
            }
        };
        let (response, ()) = tokio::join!(self.shared.tools.run(session, call, out), passing);
        log.add(response, true);
    }

    fn resume(&self, session: &str, cursor: &str) -> Answer {
        let place = cursor.split_once('-').and_then(|(stream, event)| {
            Some((stream.parse::<u64>().ok()?, event.parse::<usize>().ok()?))
        });
        let log = place.and_then(|(stream, event)| {
            let state = self.state();
            let session = state.sessions.get(session)?;
            // Every other one begins a replay with the event of the cursor.
            let event = event.saturating_sub(session.number % 2);
            Some((session.streams.get(&stream)?.clone(), event))
        });
        match log {
            Some((log, event)) => self.stream(log, event),
            None => status(StatusCode::BAD_REQUEST),
        }
    }

    fn stream(&self, log: Log, after: usize) -> Answer {
        let mut answer = Response::new(Said::follow(log, after, self.shared.cuts.subscribe()));
        let headers = answer.headers_mut();
        headers.insert("content-type", http::HeaderValue::from_static("text/event-stream"));
        answer
    }
}

/// What it says of its own in a session.
async fn say(tools: Tools, session: usize, standalone: Log) {
    for _ in 0..NOTES {
        standalone.add(tools.note(session).await, false);
    }
}

fn status(status: StatusCode) -> Answer {
    let mut answer = Response::new(Said::whole(Bytes::new()));
    *answer.status_mut() = status;
    answer
}

fn json_answer(text: String) -> Answer {
    let mut answer = Response::new(Said::whole(text.into()));
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert("content-type", json);
    answer
}

/// The way to the server, for one life of the gateway.
#[derive(Clone)]
pub struct Way {
    web: Web,
    life: u32,
}

impl Way {
    fn is_over(&self) -> bool {
        self.web.state().life != self.life
    }

    async fn call(self, request: Request<Full<Bytes>>) -> io::Result<Answer> {
        if self.is_over() {
            return std::future::pending().await;
        }
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await;
        let body = body.to_bytes();
        let mut cuts = self.web.shared.cuts.subscribe();
        cuts.mark_unchanged();
        let (answering, answered) = oneshot::channel();
        let web = self.web.clone();
        // It has left: what becomes of it does not depend on who sent it.
        tokio::spawn(async move {
            sleep(web.latency()).await;
            let answer = web.answer(&head.method, &head.headers, &body);
            let cursor = head.headers.get("last-event-id");
            let (method, status) = (&head.method, answer.status().as_u16());
            let told = format!("the server is asked: {method} {cursor:?}, and says {status}");
            web.shared.history.record(What::Told(told));
            sleep(web.latency()).await;
            // Nobody may wait for it any more.
            let _sent = answering.send(answer).is_ok();
        });
        let outcome = tokio::select! {
            biased;
            _ = cuts.changed() => Err(io::ErrorKind::ConnectionReset.into()),
            answer = answered => answer.map_err(|_| io::ErrorKind::ConnectionReset.into()),
        };
        if self.is_over() { std::future::pending().await } else { outcome }
    }
}

impl Service<Request<Full<Bytes>>> for Way {
    type Response = Answer;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>>;

    /// Here, and not later, it is known that nothing has left.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_away = self.web.state().is_away && !self.is_over();
        Poll::Ready(if is_away { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(()) })
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        Box::pin(self.clone().call(request))
    }
}
