//! Two calls in one POST, as revision 2025-03-26 allows.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::Client;
use super::http::{Exchange, Item, request};
use super::session::Opened;
use crate::history::{Asking, Conn, Mark, Outcome, What};
use crate::net::marks;
use crate::tool::{REQUEST_META, Work, request_meta};

/// From its first POST on, a client is patient for so long.
const PATIENCE: Duration = Duration::from_secs(300);
/// As for single calls.
const SILENCE_MAX: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_secs(1);
/// Nothing more can be learned.
const FINAL: [i64; 3] = [40903, 40904, 40906];

/// The calls that are not settled yet, by their JSON-RPC ids.
struct Open {
    calls: BTreeMap<u64, (Asking, Work)>,
    /// Those that are.
    settled: BTreeMap<u64, Asking>,
    cursor: Option<String>,
}

impl Client {
    /// Wants both, until both are settled.
    pub async fn batch(&self, works: [Work; 2]) {
        let mut open = Open { calls: BTreeMap::new(), settled: BTreeMap::new(), cursor: None };
        for work in works {
            let (client, asking) = (self.number, self.clients.next_asking());
            let (key, charge, token) = (work.key, work.charge, None);
            self.clients.history.record(What::Asked { client, asking, key, token, charge });
            open.calls.insert(self.session.next_id(), (asking, work));
        }
        let began = Instant::now();
        while !open.calls.is_empty() && began.elapsed() < PATIENCE {
            let Some(opened) = self.session().await else { break };
            let resumes = self.plan.kind.resumes();
            let done = match open.cursor.clone().filter(|_| resumes) {
                Some(cursor) => self.rest(&opened, cursor, &mut open).await,
                None => self.send(&opened, &mut open).await,
            };
            // Lost: what it has of the stream, if it has, tells how to go on.
            let _lost = done.is_err();
            sleep(PAUSE).await;
        }
        for (asking, _) in std::mem::take(&mut open.calls).into_values() {
            self.settle(asking, Outcome::Patience);
        }
    }

    fn settle(&self, asking: Asking, outcome: Outcome) {
        let client = self.number;
        self.clients.history.record(What::Settled { client, asking, outcome });
    }

    async fn send(&self, opened: &Opened, open: &mut Open) -> io::Result<()> {
        let call = |(id, (_, work)): (&u64, &(Asking, Work))| {
            let mut meta = json!({ "progressToken": id });
            meta[REQUEST_META] = json!(request_meta(self.number, *id));
            let (name, arguments) = (work.tool(), work.arguments());
            let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
        };
        let body = Value::Array(open.calls.iter().map(call).collect()).to_string();
        let end = self.connection().await?;
        let (client, session, conn) = (self.number, opened.number, end.conn());
        for (&request, &(asking, _)) in &open.calls {
            let posted = What::Posted { client, asking, session, conn, attempt: 1, request };
            self.clients.history.record(posted);
        }
        let message = request("POST", &self.headers(opened), &body);
        self.follow(opened, Exchange::send(end, &message).await?, open).await
    }

    async fn rest(&self, opened: &Opened, cursor: String, open: &mut Open) -> io::Result<()> {
        let end = self.clients.net.connect(self.number).await?;
        let (client, session, conn) = (self.number, opened.number, end.conn());
        for &(asking, _) in open.calls.values() {
            self.clients.history.record(What::Resumed { client, asking, session, conn });
        }
        let mut headers = self.headers(opened);
        headers.push(("last-event-id", cursor));
        self.follow(opened, Exchange::send(end, &request("GET", &headers, "")).await?, open).await
    }

    async fn follow(
        &self,
        opened: &Opened,
        mut exchange: Exchange,
        open: &mut Open,
    ) -> io::Result<()> {
        let conn = exchange.conn();
        let head = timeout(SILENCE_MAX, exchange.head()).await??;
        let replays = head.header("mcp-replay-until").is_some();
        self.clients.history.record(What::Head { conn, status: head.status, replays });
        if head.status == 404 {
            self.session.forget(opened.number);
        }
        if head.status != 200 && head.status != 409 {
            open.cursor = open.cursor.take().filter(|_| head.status == 503);
        }
        loop {
            let text = match timeout(SILENCE_MAX, exchange.next()).await?? {
                Item::Comment(_) => continue,
                Item::End => break,
                Item::Whole(text) => text,
                Item::Event { id, data, .. } => {
                    open.cursor = id.or(open.cursor.take());
                    data
                }
            };
            // The body of another status says no more than the status.
            let is_told = matches!(head.status, 200 | 409);
            let text = if is_told { &text[..] } else { "null" };
            let message: Value = serde_json::from_str(text).unwrap_or_default();
            match message {
                Value::Array(all) => all.iter().for_each(|one| self.learn(open, conn, one)),
                one => self.learn(open, conn, &one),
            }
        }
        self.clients.history.record(What::Whole { conn });
        // The stream is over: whatever is still open has to be asked for again.
        open.cursor = None;
        self.session.give_back(exchange.finish());
        Ok(())
    }

    fn learn(&self, open: &mut Open, conn: Conn, message: &Value) {
        let id = message["id"].as_u64().or(message["params"]["progressToken"].as_u64());
        let Some(id) = id else { return };
        let is_open = open.calls.get(&id).map(|(asking, _)| *asking);
        let Some(asking) = is_open.or(open.settled.get(&id).copied()) else { return };
        let client = self.number;
        let mut exec = None;
        for (mark, _) in marks(&message.to_string()) {
            self.clients.history.record(What::Read { client, asking, conn, mark });
            if let Mark::Answer(number) = mark {
                exec = Some(number);
            }
        }
        let outcome = match (exec, message.get("error")) {
            (Some(exec), _) => {
                let recorded = !message["result"]["_meta"]["dev.rejoin/recorded"].is_null();
                Some(Outcome::Answered(exec, recorded))
            }
            (None, Some(error)) => {
                let code = error["code"].as_i64().unwrap_or_default();
                self.clients.history.record(What::Error { client, asking, conn, code });
                let is_final = FINAL.contains(&code) || error["data"]["by"] != "rejoin";
                is_final.then_some(Outcome::Refused(code))
            }
            (None, None) => None,
        };
        if let Some(outcome) = outcome.filter(|_| is_open.is_some()) {
            open.calls.remove(&id);
            open.settled.insert(id, asking);
            self.settle(asking, outcome);
        }
    }
}
