//! The well-behaved client: its connections break like anybody's. It resumes, or sends its call
//! again, and has every answer of calls that ran once.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::sleep;

use super::client::{Connection, LAST_CHUNK};
use super::server::Server;
use super::{INITIALIZE, call, request};
use crate::split::Numbers;

/// A call that is not cut has its answer within this.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// What has come is looked at for so long, after a cut and before the next attempt.
const NOTICED: Duration = Duration::from_millis(1);
/// Attempts to have the answer of one call: a refusal may say to wait.
const ATTEMPTS_MAX: usize = 40;

/// What it does about a call whose connection was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It resumes, if it has read an event id.
    Resumes,
    /// It asks again under another id.
    Repeats,
    /// It sends the same bytes again.
    Resends,
    /// It asks again with the token that the call had.
    RepeatsWithToken,
}

/// The client.
#[derive(Debug)]
pub(super) struct Victim {
    address: SocketAddr,
    server: Server,
    numbers: Numbers,
    pub(super) session: Vec<u8>,
    /// An event id of it.
    pub(super) event: Vec<u8>,
    calls: usize,
}

impl Victim {
    /// Opens its session, and loses the connection of a first call before it has read the answer:
    /// that lies in the log now, for whoever comes with the session and the event.
    pub(super) async fn start(address: SocketAddr, server: Server, numbers: Numbers) -> Self {
        let (session, event, calls) = Default::default();
        let mut client = Self { address, server, numbers, session, event, calls };
        let mut connection = client.post("", INITIALIZE.as_bytes()).await;
        assert!(connection.until(b"\r\n\r\n", ANSWER_MAX).await, "initialize is answered");
        client.session = connection.last_after(b"mcp-session-id: ").expect("a session has an id");
        client.calls += 1;
        let mut connection = client.post("", &call(0, b"{}")).await;
        assert!(connection.until(b"\nid: ", ANSWER_MAX).await, "a good call is answered");
        connection.until(b"\r\n\r\n", ANSWER_MAX).await;
        client.event = connection.first_after(b"\nid: ").unwrap_or_default();
        client
    }

    /// Calls, has the answer in the end, whatever was cut, and the server ran it once.
    pub(super) async fn call(&mut self) {
        self.calls += 1;
        let number = self.calls;
        let manner = match self.numbers.below(6) {
            0 => Some(Manner::Resumes),
            1 => Some(Manner::Repeats),
            2 => Some(Manner::Resends),
            3 => Some(Manner::RepeatsWithToken),
            _ => None,
        };
        let mut connection = self.attempt(number, 0, manner).await;
        if let Some(manner) = manner {
            let cursor = self.cut(connection).await;
            connection = self.recover(number, manner, cursor).await;
        }
        let has_answer = connection.until(self.server.secret.as_bytes(), ANSWER_MAX).await;
        let read = String::from_utf8_lossy(&connection.read);
        assert!(has_answer, "a good call ({manner:?}) has no answer, but: {read}");
        // The end of the stream, so that nothing is owed.
        connection.until(LAST_CHUNK, ANSWER_MAX).await;
        sleep(NOTICED).await;
        assert_eq!(self.server.victims_calls(), number, "each good call runs once ({manner:?})");
    }

    /// Cuts a connection at once, or once something of the answer has come. The last event id.
    async fn cut(&mut self, mut connection: Connection) -> Option<Vec<u8>> {
        if self.numbers.below(3) > 0 {
            connection.until(b"\nid: ", ANSWER_MAX).await;
            connection.until(b"\n\n", ANSWER_MAX).await;
        }
        let cursor = connection.first_after(b"\nid: ");
        drop(connection);
        sleep(NOTICED).await;
        cursor
    }

    /// Has the rest of a call on another connection, as a refusal says how.
    async fn recover(
        &mut self,
        number: usize,
        manner: Manner,
        mut cursor: Option<Vec<u8>>,
    ) -> Connection {
        let mut told = String::new();
        for attempt in 1..=ATTEMPTS_MAX {
            let resumes = manner == Manner::Resumes || attempt % 2 == 0;
            let mut connection = match cursor.take_if(|_| resumes) {
                Some(cursor) => self.resume(&cursor).await,
                None => self.attempt(number, attempt, Some(manner)).await,
            };
            connection.until(b"\r\n\r\n", ANSWER_MAX).await;
            let is_refused = |read: &[u8]| !read.starts_with(b"HTTP/1.1 200");
            if !is_refused(&connection.read)
                && connection.until(self.server.secret.as_bytes(), ANSWER_MAX).await
            {
                return connection;
            }
            cursor = connection.last_after(b"last-event-id: ");
            told = String::from_utf8_lossy(&connection.read).into_owned();
            drop(connection);
            sleep(Duration::from_secs(1)).await;
        }
        panic!("a good call ({manner:?}) is never answered, but: {told}");
    }

    async fn attempt(&self, number: usize, attempt: usize, manner: Option<Manner>) -> Connection {
        let id = match manner {
            Some(Manner::Resends) | None => number,
            Some(_) => number + 1_000 * attempt,
        };
        let token = format!("Idempotency-Key: token-{number}\r\n");
        let token = if manner == Some(Manner::RepeatsWithToken) { &token[..] } else { "" };
        let arguments = format!("{{\"number\":{number}}}");
        self.post(token, &call(id, arguments.as_bytes())).await
    }

    async fn post(&self, fields: &str, body: &[u8]) -> Connection {
        self.send("POST", fields.as_bytes(), body).await
    }

    async fn resume(&self, cursor: &[u8]) -> Connection {
        self.send("GET", &[b"Last-Event-ID: ", cursor, b"\r\n"].concat(), b"").await
    }

    /// A connection with a request on it.
    async fn send(&self, method: &str, fields: &[u8], body: &[u8]) -> Connection {
        let mut connection = Connection::open(self.address).await.expect("the listener accepts");
        let credential = format!("Authorization: {}\r\n", self.server.secret);
        let fields = [credential.as_bytes(), fields].concat();
        connection.write(&request(method, &fields, &self.session, body)).await;
        connection
    }
}
