//! Bytes on sockets against a whole gateway: the real listener, a `RejoinLayer` around a server in
//! this process, a clock that jumps. Beside whoever sends the input there is a well-behaved client
//! of another principal, whose session nothing of it may touch: whatever that one loses it gets,
//! and none of its calls runs twice.

mod client;
mod server;
mod victim;

use std::net::SocketAddr;
use std::time::Duration;

use rejoin_gateway::listen::{ListenConfig, bind};
use rejoin_gateway::{LayerConfig, RejoinLayer, serve_with};
use tokio::time::sleep;

use crate::split::Numbers;
use client::{Connection, find};
use server::{Reply, Server};
use victim::Victim;

const CONNECTIONS: usize = 4;
/// More are not played.
const STEPS_MAX: usize = 24;
/// Ends a step of the input.
const STEP_END: u8 = 0x1E;
/// Every connection that said something has an answer or an end within this (virtual) time: the
/// longest silence that is allowed to a call is an hour.
const ANSWER_MAX: Duration = Duration::from_secs(2 * 3_600);
const PASSES_MS: [u64; 8] = [1, 50, 1_000, 3_000, 6_000, 11_000, 35_000, 100_000];

/// The input is a list of steps, each ended by the byte 0x1E: a letter, the digit of a connection
/// and what the letter takes.
///
/// | letter | does |
/// |---|---|
/// | `i` | initialize |
/// | `c` | call a tool, with this as arguments |
/// | `p` | POST this body |
/// | `g` | GET, with this as `Last-Event-ID` |
/// | `h` | POST a call, with these further header lines |
/// | `d` | DELETE |
/// | `r` | send this as it is |
/// | `s` | the next call is answered so: see below |
/// | `w` | time passes, the digit says how much |
/// | `x`, `f` | reset, finish the connection |
///
/// The digit of `s` says how: 0 JSON, 1 a stream, 2 one without end, 3 nothing; 4 this as JSON, 5
/// this as a stream, 6 and 7 this with status 404 and 500.
///
/// In what is sent, bytes 1 to 4 stand for: the session id, that of the well-behaved client, the
/// event id read last, and an event id of the well-behaved client.
pub fn run(data: &[u8]) {
    // What only the well-behaved client may read, and its credential; no input can know it.
    let mut numbers = Numbers::of(data);
    let secret = format!("secret-{:016x}", numbers.below(usize::MAX));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime can be made");
    runtime.block_on(async {
        let world = World::start(secret, numbers).await;
        world.play(data).await;
    });
}

struct World {
    address: SocketAddr,
    server: Server,
    connections: [Option<Connection>; CONNECTIONS],
    session: Vec<u8>,
    cursor: Vec<u8>,
    victim: Victim,
}

const FIELDS: &str = "Host: localhost\r\nContent-Type: application/json\r\n\
    Accept: application/json, text/event-stream\r\n";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":
    {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

fn request(method: &str, fields: &[u8], session: &[u8], body: &[u8]) -> Vec<u8> {
    let mut request = format!("{method} / HTTP/1.1\r\n{FIELDS}").into_bytes();
    if !session.is_empty() {
        request.extend([&b"Mcp-Session-Id: "[..], session, b"\r\n"].concat());
    }
    request.extend(fields);
    request.extend(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    request.extend(body);
    request
}

fn call(id: usize, arguments: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":{id}}},"arguments":"#
    );
    [head.as_bytes(), arguments, b"}}"].concat()
}

impl World {
    async fn start(secret: String, numbers: Numbers) -> Self {
        let server = Server::new(secret);
        let layer = RejoinLayer::with(LayerConfig::default()).expect("the defaults are sound");
        let service = layer.layer(server.clone());
        let any = "127.0.0.1:0".parse().expect("an address");
        let (listener, address) = bind(any).await.expect("a port is free");
        let config = ListenConfig::default();
        tokio::spawn(serve_with(listener, service, config, std::future::pending()));
        let victim = Victim::start(address, server.clone(), numbers).await;
        let (connections, session, cursor) = Default::default();
        Self { address, server, connections, session, cursor, victim }
    }

    async fn play(mut self, data: &[u8]) {
        for (number, step) in data.split(|byte| *byte == STEP_END).take(STEPS_MAX).enumerate() {
            let [letter, digit, rest @ ..] = step else { continue };
            self.step(number, *letter, usize::from(*digit) % 8, rest).await;
            // Whatever can go on without time goes on.
            sleep(Duration::from_micros(100)).await;
            self.look();
        }
        self.victim.call().await;
        for connection in self.connections.iter_mut().flatten() {
            assert!(connection.settles(ANSWER_MAX).await, "neither an answer nor an end");
        }
        self.look();
        self.victim.call().await;
    }

    async fn step(&mut self, number: usize, letter: u8, digit: usize, rest: &[u8]) {
        let rest = self.filled(rest);
        let bytes = match letter {
            b'i' => request("POST", b"", b"", INITIALIZE.as_bytes()),
            b'c' => request("POST", b"", &self.session, &call(number, &rest)),
            b'p' => request("POST", b"", &self.session, &rest),
            b'g' if rest.is_empty() => request("GET", b"", &self.session, b""),
            b'g' => {
                let field = [b"Last-Event-ID: ", &rest[..], b"\r\n"].concat();
                request("GET", &field, &self.session, b"")
            }
            b'h' => request("POST", &[&rest[..], b"\r\n"].concat(), b"", &call(number, b"{}")),
            b'd' => request("DELETE", b"", &self.session, b""),
            b'r' => rest,
            b's' => return self.server.will(reply(digit, rest)),
            b'w' => return sleep(Duration::from_millis(PASSES_MS[digit])).await,
            b'x' => {
                self.look();
                self.connections[digit % CONNECTIONS] = None;
                return;
            }
            b'f' => {
                if let Some(connection) = &mut self.connections[digit % CONNECTIONS] {
                    connection.finish().await;
                }
                return;
            }
            _ => return,
        };
        let place = &mut self.connections[digit % CONNECTIONS];
        if place.as_ref().is_none_or(|connection| connection.is_over) {
            *place = Connection::open(self.address).await.ok();
        }
        if let Some(connection) = place {
            connection.write(&bytes).await;
        }
    }

    /// What is sent, with what the placeholders stand for.
    fn filled(&self, text: &[u8]) -> Vec<u8> {
        let parts = text.iter().map(|byte| match byte {
            1 => &self.session[..],
            2 => &self.victim.session[..],
            3 => &self.cursor[..],
            4 => &self.victim.event[..],
            _ => std::slice::from_ref(byte),
        });
        parts.flatten().copied().collect()
    }

    /// Reads what has come: an id to go on with, and never what is another's.
    fn look(&mut self) {
        for connection in self.connections.iter_mut().flatten() {
            connection.take();
            let read = &connection.read;
            let is_told = find(read, self.server.secret.as_bytes()).is_some();
            assert!(!is_told, "an answer of another session");
            if let Some(session) = connection.last_after(b"mcp-session-id: ") {
                self.session = session;
            }
            if let Some(cursor) = connection.last_after(b"\nid: ") {
                self.cursor = cursor;
            }
        }
    }
}

fn reply(digit: usize, body: Vec<u8>) -> Reply {
    let body = body.into();
    match digit {
        0 => Reply::Json,
        1 => Reply::Stream { progress: 3, ends: true },
        2 => Reply::Stream { progress: 3, ends: false },
        3 => Reply::Never,
        4 => Reply::Raw { status: 200, is_stream: false, body },
        5 => Reply::Raw { status: 200, is_stream: true, body },
        6 => Reply::Raw { status: 404, is_stream: false, body },
        _ => Reply::Raw { status: 500, is_stream: false, body },
    }
}
