//! A client's session with the gateway: opened, and opened again when it is gone.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rejoin_core::id::digest;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::Client;
use super::http::{Exchange, Item, request};
use crate::history::What;
use crate::net::End;
use crate::plan::Kind;

/// A client waits so long for the answer to something small.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// How often it tries to open a session.
const OPENINGS_MAX: usize = 60;

/// What the client knows of its session.
#[derive(Default)]
pub struct Session {
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Opened>,
    next_id: u64,
    /// Connections whose answers were read to the end.
    pool: Vec<End>,
    /// Connections that stay open, unread.
    kept: Vec<Exchange>,
}

/// An open session.
#[derive(Clone, Debug)]
pub struct Opened {
    pub number: usize,
    pub id: String,
    pub ledger_epoch: u64,
    /// Of each stream the last event that was processed.
    pub cursors: BTreeMap<String, String>,
}

/// The stream that an event id names.
pub fn stream_of(id: &str) -> String {
    id.rsplit_once('-').map_or(id, |(stream, _)| stream).to_owned()
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A JSON-RPC id of its own for a request.
    pub fn next_id(&self) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        state.next_id
    }

    /// Everything up to this event was processed.
    pub fn note(&self, session: usize, id: &str) {
        let mut state = self.state();
        if let Some(current) = state.current.as_mut().filter(|current| current.number == session) {
            current.cursors.insert(stream_of(id), id.to_owned());
        }
    }

    pub fn current(&self) -> Option<Opened> {
        self.state().current.clone()
    }

    /// The session is gone.
    pub fn forget(&self, session: usize) {
        let mut state = self.state();
        if state.current.as_ref().is_some_and(|current| current.number == session) {
            state.current = None;
        }
    }

    pub fn keep(&self, exchange: Exchange) {
        self.state().kept.push(exchange);
    }

    pub fn forget_connections(&self) {
        self.state().pool.clear();
    }

    pub fn give_back(&self, end: Option<End>) {
        self.state().pool.extend(end);
    }
}

impl Client {
    /// A connection: one that served before, or a new one.
    pub async fn connection(&self) -> io::Result<End> {
        let pooled = match self.plan.pools {
            true => self.session.state().pool.pop(),
            false => None,
        };
        match pooled {
            Some(end) => Ok(end),
            None => self.clients.net.connect(self.number).await,
        }
    }

    /// The headers of a request in a session.
    pub fn headers(&self, opened: &Opened) -> Vec<(&'static str, String)> {
        let mut headers = self.credential();
        headers.push(("mcp-session-id", opened.id.clone()));
        headers.push(("mcp-protocol-version", self.revision().to_owned()));
        if self.plan.kind == Kind::Aware && !opened.cursors.is_empty() {
            let cursors: Vec<_> = opened.cursors.values().cloned().collect();
            headers.push(("mcp-stream-ack", cursors.join(", ")));
        }
        headers
    }

    /// The only revision with batches, or the newest.
    fn revision(&self) -> &'static str {
        if self.plan.batches.is_empty() { "2025-11-25" } else { "2025-03-26" }
    }

    fn credential(&self) -> Vec<(&'static str, String)> {
        let principal = self.plan.principal;
        principal.map(|number| ("authorization", format!("Bearer {number}"))).into_iter().collect()
    }

    /// The open session, opened if there is none.
    pub async fn session(&self) -> Option<Opened> {
        let _one_at_a_time = self.session.opening.lock().await;
        for _ in 0..OPENINGS_MAX {
            if let Some(opened) = self.session.state().current.clone() {
                return Some(opened);
            }
            let number = self.clients.next_session();
            self.clients.history.record(What::Opening { session: number });
            if let Ok(Ok(opened)) = timeout(ANSWER_MAX, self.open(number)).await {
                let (client, principal) = (self.number, self.plan.principal);
                let (session, store_key) = (number, digest(opened.id.as_bytes()));
                let known = What::Session { client, session, principal, store_key };
                self.clients.history.record(known);
                self.clients.publish(principal, &opened);
                self.session.state().current = Some(opened);
                continue;
            }
            sleep(Duration::from_secs(1)).await;
        }
        None
    }

    async fn open(&self, number: usize) -> io::Result<Opened> {
        let body = json!({ "jsonrpc": "2.0", "id": self.session.next_id(), "method": "initialize",
            "params": { "protocolVersion": self.revision(), "capabilities": {},
                "clientInfo": { "name": format!("session-{number}"), "version": "1" } } });
        let end = self.connection().await?;
        let message = request("POST", &self.credential(), &body.to_string());
        let mut exchange = Exchange::send(end, &message).await?;
        let head = exchange.head().await?;
        let id = head.header("mcp-session-id").map(str::to_owned);
        let answer = whole(&mut exchange).await?;
        self.session.give_back(exchange.finish());
        let id = id.ok_or(io::ErrorKind::InvalidData)?;
        let continuity = &answer["result"]["capabilities"]["experimental"]["dev.rejoin/continuity"];
        let ledger_epoch = continuity["epoch"].as_u64().unwrap_or_default();
        let opened = Opened { number, id, ledger_epoch, cursors: BTreeMap::new() };
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.tell(&opened, &told).await?;
        Ok(opened)
    }

    /// Sends a notification.
    pub async fn tell(&self, opened: &Opened, message: &Value) -> io::Result<u16> {
        let end = self.connection().await?;
        let message = request("POST", &self.headers(opened), &message.to_string());
        let mut exchange = Exchange::send(end, &message).await?;
        let status = exchange.head().await?.status;
        while exchange.next().await? != Item::End {}
        self.session.give_back(exchange.finish());
        Ok(status)
    }

    /// Sends a DELETE.
    pub async fn end_session(&self) {
        let Some(opened) = self.session.state().current.clone() else { return };
        let session = opened.number;
        self.clients.history.record(What::Ending { session });
        let ending = async {
            let end = self.connection().await?;
            let message = request("DELETE", &self.headers(&opened), "");
            let status = Exchange::send(end, &message).await?.head().await?.status;
            Ok::<_, io::Error>(status)
        };
        if let Ok(Ok(204)) = timeout(ANSWER_MAX, ending).await {
            self.clients.history.record(What::EndTaken { session });
        }
    }

    /// Asks for something that nothing may hold (design section 5, row 1).
    pub async fn ping(&self) {
        let Some(opened) = self.session().await else { return };
        let id = self.session.next_id();
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
        let pinging = async {
            let end = self.clients.net.connect(self.number).await?;
            let (client, session, conn) = (self.number, opened.number, end.conn());
            self.clients.history.record(What::Pinged { client, session, conn });
            let message = request("POST", &self.headers(&opened), &message.to_string());
            let mut exchange = Exchange::send(end, &message).await?;
            let status = exchange.head().await?.status;
            self.clients.history.record(What::Head { conn, status, replays: false });
            while exchange.next().await? != Item::End {}
            self.clients.history.record(What::Whole { conn });
            Ok::<_, io::Error>(())
        };
        // On a path that is broken nothing is learned.
        let _either = timeout(ANSWER_MAX, pinging).await.is_ok();
    }
}

/// Reads a body that is one JSON text, or one event of it.
async fn whole(exchange: &mut Exchange) -> io::Result<Value> {
    let mut answer = Value::Null;
    loop {
        match exchange.next().await? {
            Item::Whole(text) | Item::Event { data: text, .. } => {
                answer = serde_json::from_str(&text).unwrap_or(answer);
            }
            Item::Comment(_) => {}
            Item::End => return Ok(answer),
        }
    }
}
