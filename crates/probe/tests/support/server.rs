//! The server: correct as long as no fault is switched on.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use super::calls::result;
use super::faults::Fault;
use super::http::{self, Request};
use super::log::Session;

/// What the kernel takes of an answer that nobody reads: hundreds of kilobytes are enough to stall.
const SEND_BYTES: usize = 32 * 1024;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(super) fault: Option<Fault>,
    pub(super) sessions: Mutex<HashMap<String, Arc<Session>>>,
    next: AtomicU64,
    pub(super) executions: AtomicU64,
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
                    SockRef::from(&socket).set_send_buffer_size(SEND_BYTES).unwrap();
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

impl Shared {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(super) fn number(&self) -> u64 {
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
}
