//! One stream, read until it tells what became of a call.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::Client;
use super::http::{Exchange, Item, request};
use super::session::Opened;
use crate::history::{Asking, Conn, Exec, Leave, Mark, RequestId, What};
use crate::net::marks;

/// A client that has read nothing for so long counts the connection as lost: comments come more
/// often.
const SILENCE_MAX: Duration = Duration::from_secs(40);

/// How often a client tries to answer a request of the server.
const ANSWERS_MAX: usize = 20;

/// The answer to a request of the server, if it is one, and which execution asked.
fn answer_to(text: &str) -> Option<(Exec, Value)> {
    let message: Value = serde_json::from_str(text).ok()?;
    let (id, _) = (message.get("id")?, message.get("method")?);
    let asks = marks(text).into_iter().find_map(|(mark, _)| match mark {
        Mark::Ask(exec) => Some(exec),
        _ => None,
    });
    let exec = asks.unwrap_or_default();
    let result = json!({ "action": "accept", "content": { "exec": exec } });
    Some((exec, json!({ "jsonrpc": "2.0", "id": id, "result": result })))
}

/// What a client has learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    Answer {
        exec: u32,
        recorded: bool,
    },
    Refused(Refusal),
    /// The connection is lost, or the stream ended without an answer.
    Lost,
    /// No connection.
    Unreachable,
    /// The session is gone.
    Gone,
    /// A status that says to come again, or not to.
    Status(u16),
}

/// An error for the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: i64,
    pub is_rejoins: bool,
    pub send_again: bool,
    pub retry_ms: u64,
    pub cursor: Option<String>,
}

/// For which call, in which session.
#[derive(Clone, Copy)]
pub struct For<'a> {
    pub asking: Asking,
    pub opened: &'a Opened,
}

/// A stream that a client reads, and the last event it has processed there.
pub struct Reading {
    exchange: Exchange,
    pub cursor: Option<String>,
    /// The pause that the stream asked for last.
    pub retry_ms: Option<u64>,
}

impl Client {
    /// Sends a call.
    pub async fn post(
        &self,
        on: For<'_>,
        (attempt, request_id): (u32, RequestId),
        body: &Value,
        pause_ms: u64,
    ) -> Result<Reading, Learned> {
        let Ok(end) = self.connection().await else { return Err(Learned::Unreachable) };
        let (client, asking, session) = (self.number, on.asking, on.opened.number);
        let conn = end.conn();
        let posted = What::Posted { client, asking, session, conn, attempt, request: request_id };
        self.clients.history.record(posted);
        let message = request("POST", &self.headers(on.opened), &body.to_string());
        let Ok(mut exchange) = Exchange::send(end, &message).await else {
            return Err(Learned::Lost);
        };
        exchange.pause = Duration::from_millis(pause_ms);
        Ok(Reading { exchange, cursor: None, retry_ms: None })
    }

    /// Asks for what follows a cursor.
    pub async fn get(
        &self,
        on: For<'_>,
        cursor: String,
        pause_ms: u64,
    ) -> Result<Reading, Learned> {
        let Ok(end) = self.clients.net.connect(self.number).await else {
            return Err(Learned::Unreachable);
        };
        let (client, asking, session) = (self.number, on.asking, on.opened.number);
        self.clients.history.record(What::Resumed { client, asking, session, conn: end.conn() });
        let mut headers = self.headers(on.opened);
        headers.push(("last-event-id", cursor.clone()));
        match Exchange::send(end, &request("GET", &headers, "")).await {
            Ok(mut exchange) => {
                exchange.pause = Duration::from_millis(pause_ms);
                Ok(Reading { exchange, cursor: Some(cursor), retry_ms: None })
            }
            Err(_) => Err(Learned::Lost),
        }
    }

    /// Reads on until an answer, an error or the end. `cursor` moves with what is read, also if
    /// this future is dropped.
    pub async fn read(&self, on: For<'_>, reading: &mut Reading) -> Learned {
        match self.read_on(on, reading).await {
            Ok(learned) => learned,
            Err(_) => Learned::Lost,
        }
    }

    async fn read_on(&self, on: For<'_>, reading: &mut Reading) -> io::Result<Learned> {
        let conn = reading.exchange.conn();
        let head = timeout(SILENCE_MAX, reading.exchange.head()).await??;
        let replays = head.header("mcp-replay-until").is_some();
        self.clients.history.record(What::Head { conn, status: head.status, replays });
        let mut learned = match head.status {
            404 => Learned::Gone,
            200 | 409 => Learned::Lost,
            other => Learned::Status(other),
        };
        loop {
            let text = match timeout(SILENCE_MAX, reading.exchange.next()).await?? {
                Item::Comment(_) => continue,
                Item::End => {
                    self.clients.history.record(What::Whole { conn });
                    return Ok(learned);
                }
                Item::Whole(text) => text,
                Item::Event { id, data, retry_ms } => {
                    reading.retry_ms = retry_ms.or(reading.retry_ms);
                    if let Some(id) = id {
                        self.session.note(on.opened.number, &id);
                        self.clients.reveal(on.opened.number, &id);
                        reading.cursor = Some(id);
                    }
                    data
                }
            };
            if let Some((exec, answer)) = answer_to(&text) {
                self.answer(on.opened, exec, &answer).await;
            }
            let news = self.take(on, conn, &text);
            // The body of another status says no more than the status.
            if learned == Learned::Lost
                && let Some(news) = news
            {
                learned = news;
            }
        }
    }

    /// Answers a request of the server, until that is taken.
    async fn answer(&self, opened: &Opened, exec: Exec, answer: &Value) {
        for _ in 0..ANSWERS_MAX {
            let told = timeout(SILENCE_MAX, self.tell(opened, answer)).await;
            if let Ok(Ok(202)) = told {
                let session = opened.number;
                return self.clients.history.record(What::AnswerTaken { session, exec });
            }
            if let Ok(Ok(404)) = told {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Processes a message.
    fn take(&self, on: For<'_>, conn: Conn, text: &str) -> Option<Learned> {
        let (client, asking) = (self.number, on.asking);
        let message: Value = serde_json::from_str(text).ok()?;
        let mut exec = None;
        for (mark, _) in marks(text) {
            self.clients.history.record(What::Read { client, asking, conn, mark });
            if let Mark::Answer(number) = mark {
                exec = Some(number);
            }
        }
        if let (Some(exec), Some(result)) = (exec, message.get("result")) {
            // The tool says how much it filled in.
            let text = result["content"][0]["text"].as_str().unwrap_or_default();
            let bytes = result["structuredContent"]["bytes"].as_u64();
            if bytes != Some(text.bytes().filter(|byte| *byte == b'x').count() as u64) {
                self.clients.history.record(What::Garbled { asking, exec });
            }
            let recorded = !result["_meta"]["dev.rejoin/recorded"].is_null();
            return Some(Learned::Answer { exec, recorded });
        }
        let error = message.get("error")?;
        let code = error["code"].as_i64().unwrap_or_default();
        self.clients.history.record(What::Error { client, asking, conn, code });
        let data = &error["data"];
        Some(Learned::Refused(Refusal {
            code,
            is_rejoins: data["by"] == "rejoin",
            send_again: data["sendAgain"] == true,
            retry_ms: data["retryAfterMs"].as_u64().unwrap_or(1_000),
            cursor: data["lastEventId"].as_str().map(str::to_owned),
        }))
    }

    /// The client does not read on.
    pub fn leave(&self, reading: Reading, how: Leave) {
        reading.exchange.leave(how);
        if how == Leave::Stay {
            self.session.keep(reading.exchange);
        }
    }

    /// The client has what it wanted, or the stream is over.
    pub fn finish(&self, reading: Reading) {
        match reading.exchange.finish() {
            Some(end) => self.session.give_back(Some(end)),
            // One broke: those that wait are no better.
            None => self.session.forget_connections(),
        }
    }
}
