//! An MCP session that one hazard has for itself, and what is sent in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::limits::{
    HEAD_MAX_MS, MASKED_BYTES_MAX, QUOTED_CHARS_MAX, REQUESTS_MAX, SILENCE_MS, ms,
};
use crate::reading::{Reading, Until};
use crate::transcript::Transcript;
use crate::visible::beginning;
use crate::wire::{Dialer, Exchange, Head, Request, WireError};

/// The newest revision with sessions.
pub(crate) const REVISION: &str = "2025-11-25";

/// The server, and what every request to it carries.
#[derive(Clone)]
pub struct Target {
    /// Opens connections.
    pub dialer: Dialer,
    /// Header fields beside those of MCP, `Authorization` among them.
    pub headers: Vec<(String, String)>,
    /// Requests sent so far in the whole run.
    pub requests: Arc<AtomicU64>,
    /// Whether a DELETE was not answered in time: the next ones are waited for less long.
    pub keeps_sessions: Arc<AtomicBool>,
}

/// Why there is no session, or no answer in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// An exchange failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The server did not open a session.
    #[error("the server opens no session: {what}")]
    NoSession {
        /// What came instead.
        what: String,
    },
    /// What a hazard needs did not come.
    #[error("{0}")]
    Unexpected(String),
}

/// A session.
#[derive(Clone)]
pub struct Session {
    target: Target,
    transcript: Transcript,
    /// The session id; empty if the server gave none.
    pub id: String,
    /// The revision that was agreed on.
    pub revision: String,
    /// The result of `initialize`.
    pub result: Value,
}

impl Session {
    /// Opens a session of this revision.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub async fn open(
        target: &Target,
        transcript: &Transcript,
        revision: &str,
    ) -> Result<Self, Trouble> {
        let mut session = Self::unopened(target, transcript);
        let params = json!({
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": { "name": "rejoin-probe", "version": env!("CARGO_PKG_VERSION") },
        });
        let mut exchange = session.post(&request("initialize", "initialize", &params)).await?;
        let head = exchange.head().await.map_err(|error| Trouble::NoSession {
            what: format!("initialize: {error}; is there an MCP server at this URL?"),
        })?;
        head.header("mcp-session-id").unwrap_or_default().clone_into(&mut session.id);
        transcript.hide(&session.id);
        let reading = Reading::of(&mut exchange, Until::response(&json!("initialize"))).await?;
        let response = reading.response(&json!("initialize")).cloned().unwrap_or_default();
        let agreed = response["result"]["protocolVersion"].as_str();
        let Some(agreed) = agreed else {
            let what = transcript.masked(&unopened(&head, &reading, exchange.plain()));
            return Err(Trouble::NoSession { what });
        };
        agreed.clone_into(&mut session.revision);
        session.result = response["result"].clone();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        match session.begin(&initialized).await {
            Ok(()) => Ok(session),
            Err(error) => {
                session.delete().await;
                Err(error)
            }
        }
    }

    async fn begin(&self, initialized: &Value) -> Result<(), Trouble> {
        self.post(initialized).await?.head().await?;
        Ok(())
    }

    /// What is sent before a session is open.
    pub fn unopened(target: &Target, transcript: &Transcript) -> Self {
        Self {
            target: target.clone(),
            transcript: transcript.clone(),
            id: String::new(),
            revision: String::new(),
            result: Value::Null,
        }
    }

    /// A text of the server's without what is secret.
    pub(crate) fn masked(&self, text: &str) -> String {
        self.transcript.masked(text)
    }

    /// A request with the header fields of this session.
    pub fn http(&self, method: &'static str) -> Request {
        let mut request = Request::new(method)
            .header("Host", self.target.dialer.host())
            .header("User-Agent", "rejoin-probe");
        if !self.id.is_empty() {
            request = request.header("Mcp-Session-Id", &self.id);
        }
        if self.revision.as_str() >= "2025-06-18" {
            request = request.header("Mcp-Protocol-Version", &self.revision);
        }
        for (name, value) in &self.target.headers {
            request = request.header(name, value);
        }
        request
    }

    /// A POST of `message`.
    pub fn post_request(&self, message: &Value) -> Request {
        self.http("POST")
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(message.to_string())
    }

    /// A GET, resuming after `cursor` if there is one.
    pub fn get_request(&self, cursor: Option<&str>) -> Request {
        let request = self.http("GET").header("Accept", "text/event-stream");
        match cursor {
            Some(cursor) => request.header("Last-Event-ID", cursor),
            None => request,
        }
    }

    /// Sends a request on a new connection; reads nothing.
    ///
    /// # Errors
    /// No connection, or the requests of the run are used up.
    pub async fn send(&self, request: &Request) -> Result<Exchange, WireError> {
        self.send_with(request, None).await
    }

    /// The same with a receive buffer of this size in the kernel.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn send_with(
        &self,
        request: &Request,
        receive_bytes: Option<usize>,
    ) -> Result<Exchange, WireError> {
        if self.target.requests.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
            return Err(WireError::UsedUp { requests_max: REQUESTS_MAX });
        }
        let line = self.transcript.line();
        Exchange::send(&self.target.dialer, request, receive_bytes, line).await
    }

    /// Posts a message; reads nothing.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn post(&self, message: &Value) -> Result<Exchange, WireError> {
        self.send(&self.post_request(message)).await
    }

    /// Opens the standalone stream, or resumes the stream of `cursor`; reads nothing.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn get(&self, cursor: Option<&str>) -> Result<Exchange, WireError> {
        self.send(&self.get_request(cursor)).await
    }

    /// Sends a request; gives the status and the answer's message, if it ends soon.
    ///
    /// # Errors
    /// As [`Self::send`]; and no head came.
    pub async fn answer(&self, request: &Request) -> Result<(u16, Reading), Trouble> {
        let mut exchange = self.send(request).await?;
        let status = exchange.head().await?.status;
        let reading = Reading::of(&mut exchange, Until::silence()).await?;
        Ok((status, reading))
    }

    /// Ends the session; a server that refuses it keeps it.
    pub async fn delete(&self) {
        if self.id.is_empty() {
            return;
        }
        let keeps = &self.target.keeps_sessions;
        if let Ok(mut exchange) = self.send(&self.http("DELETE")).await {
            let max_ms = if keeps.load(Ordering::Relaxed) { SILENCE_MS } else { HEAD_MAX_MS };
            let answered = timeout(ms(max_ms), exchange.head()).await;
            if matches!(answered, Err(_) | Ok(Err(WireError::Late { .. }))) {
                keeps.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// What came instead of a result of `initialize`, and what to do.
fn unopened(head: &Head, reading: &Reading, body: &[u8]) -> String {
    let kind = |name| beginning(head.header(name).unwrap_or("none"), QUOTED_CHARS_MAX);
    let what = match (reading.error(), reading.event_stream) {
        (Some(error), _) => {
            format!("initialize was answered {} with the error {error}", head.status)
        }
        (None, true) => format!("initialize was not answered: {}", reading.ending()),
        (None, false) => {
            let kind = kind("content-type");
            let status = head.status;
            let what = format!("initialize was answered {status}, content type {kind}, no result");
            match words(body) {
                words if words.is_empty() => what,
                words => format!("{what}, but `{words}`"),
            }
        }
    };
    match head.status {
        300..=399 => format!("{what}; it points to {}: probe that URL", kind("location")),
        401 | 403 => format!("{what}; give credentials with --auth or --header"),
        404 | 405 | 501 => format!("{what}; check the path of the URL (it often ends in /mcp)"),
        _ if reading.error().is_some() => what,
        500..=599 => format!("{what}; the server, or one behind it, failed: see its log"),
        _ => format!("{what}; is this the URL of an MCP server (it often ends in /mcp)?"),
    }
}

/// The beginning of what a server says in its own words, in one line.
fn words(body: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&body[..body.len().min(MASKED_BYTES_MAX)]);
    beginning(&shown.split_whitespace().collect::<Vec<_>>().join(" "), QUOTED_CHARS_MAX)
}

/// A JSON-RPC request.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}
