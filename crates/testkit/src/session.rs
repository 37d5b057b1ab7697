//! An MCP session over raw connections: one new connection per request unless a test says else.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::call::Call;
use crate::raw::{Connection, OpenOptions, Request, WireError};

/// The revision a client asks for unless it says otherwise.
pub const NEWEST_REVISION: &str = "2025-11-25";

/// Who the client is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The revision asked for in `initialize`.
    pub revision: String,
    /// `User-Agent`, if any.
    pub user_agent: Option<String>,
    /// `Authorization`, if any.
    pub authorization: Option<String>,
}

impl Default for Identity {
    fn default() -> Self {
        Self { revision: NEWEST_REVISION.into(), user_agent: None, authorization: None }
    }
}

impl Identity {
    /// A client of another revision.
    pub fn of_revision(revision: &str) -> Self {
        Self { revision: revision.into(), ..Self::default() }
    }

    /// A client with an `Authorization` header.
    pub fn authorized(authorization: &str) -> Self {
        Self { authorization: Some(authorization.into()), ..Self::default() }
    }
}

/// An initialised session.
#[derive(Clone, Debug)]
pub struct Session {
    address: SocketAddr,
    path: String,
    identity: Identity,
    id: String,
    /// The revision the server agreed to.
    agreed: String,
    /// The result of `initialize`.
    result: Value,
}

impl Session {
    /// Initialises a session as the newest client.
    pub async fn open(address: SocketAddr) -> Result<Self, WireError> {
        Self::open_as(address, Identity::default()).await
    }

    /// Initialises a session at `/mcp`: `initialize`, then `notifications/initialized`.
    pub async fn open_as(address: SocketAddr, identity: Identity) -> Result<Self, WireError> {
        Self::open_at(address, "/mcp", identity).await
    }

    /// As [`Session::open_as`], at another path.
    pub async fn open_at(
        address: SocketAddr,
        path: &str,
        identity: Identity,
    ) -> Result<Self, WireError> {
        let (unset, result) = (String::new(), Value::Null);
        let path = path.to_owned();
        let mut session =
            Self { address, path, identity, id: unset.clone(), agreed: unset, result };
        let mut connection = Connection::open(address).await?;
        connection.request(&session.post_request(&session.initialize_body())).await?;
        let head = connection.head().await?;
        let response = connection.response().await?;
        let refused = |expected: &str| WireError::Unexpected {
            expected: expected.to_owned(),
            account: format!("{head:?} {response}"),
        };
        let id = head.header("mcp-session-id").ok_or_else(|| refused("Mcp-Session-Id"))?;
        id.clone_into(&mut session.id);
        session.result = response["result"].clone();
        let agreed = session.result["protocolVersion"].as_str();
        agreed.ok_or_else(|| refused("protocolVersion"))?.clone_into(&mut session.agreed);
        let status = session.notify("notifications/initialized", json!({})).await?;
        if status != 202 {
            return Err(refused(&format!("202 to initialized, not {status}")));
        }
        Ok(session)
    }

    fn initialize_body(&self) -> Value {
        json!({
            "jsonrpc": "2.0",
            "id": "initialize",
            "method": "initialize",
            "params": {
                "protocolVersion": self.identity.revision,
                // No roots: a stock server asks for them whenever it likes, on any stream.
                "capabilities": {"elicitation": {}, "sampling": {}},
                "clientInfo": {"name": "rejoin-testkit", "version": "1.0.0"},
            },
        })
    }

    /// The session id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The result of `initialize`.
    pub fn initialize_result(&self) -> &Value {
        &self.result
    }

    /// The same session as another client sees it, for instance through a forwarder.
    pub fn by_way_of(&self, address: SocketAddr) -> Self {
        Self { address, ..self.clone() }
    }

    /// The same session presented with another identity.
    pub fn presented_as(&self, identity: Identity) -> Self {
        Self { identity, ..self.clone() }
    }

    /// A request with the header fields of this session.
    pub fn http(&self, method: &str) -> Request {
        let mut request =
            Request::new(method, &self.path).header("Host", &self.address.to_string());
        if !self.id.is_empty() {
            request = request.header("Mcp-Session-Id", &self.id);
        }
        if !self.agreed.is_empty() && self.agreed.as_str() >= "2025-06-18" {
            request = request.header("Mcp-Protocol-Version", &self.agreed);
        }
        for (name, value) in [
            ("User-Agent", &self.identity.user_agent),
            ("Authorization", &self.identity.authorization),
        ] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request
    }

    /// A POST of `body`.
    pub fn post_request(&self, body: &Value) -> Request {
        self.http("POST")
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(body.to_string())
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
    pub async fn send(&self, request: &Request) -> Result<Connection, WireError> {
        self.send_with(request, OpenOptions::default()).await
    }

    /// Sends a request on a new connection with options; reads nothing.
    pub async fn send_with(
        &self,
        request: &Request,
        options: OpenOptions,
    ) -> Result<Connection, WireError> {
        let mut connection = Connection::open_with(self.address, options).await?;
        connection.request(request).await?;
        Ok(connection)
    }

    /// Posts a message; reads nothing.
    pub async fn post(&self, message: &Value) -> Result<Connection, WireError> {
        self.send(&self.post_request(message)).await
    }

    /// Posts a tool call; reads nothing.
    pub async fn call(&self, call: &Call) -> Result<Connection, WireError> {
        self.post(&call.message()).await
    }

    /// Posts a tool call and waits for its response.
    pub async fn answer(&self, call: &Call) -> Result<Value, WireError> {
        self.call(call).await?.response().await
    }

    /// Opens the standalone stream, or resumes the stream of `cursor`; reads nothing.
    pub async fn get(&self, cursor: Option<&str>) -> Result<Connection, WireError> {
        self.send(&self.get_request(cursor)).await
    }

    /// Posts a notification; gives the status.
    pub async fn notify(&self, method: &str, params: Value) -> Result<u16, WireError> {
        self.status(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await
    }

    /// Cancels the request with `id`; gives the status.
    pub async fn cancel(&self, id: u64) -> Result<u16, WireError> {
        self.notify("notifications/cancelled", json!({"requestId": id, "reason": "test"})).await
    }

    /// Answers a request of the server; gives the status.
    pub async fn respond(&self, id: &Value, result: Value) -> Result<u16, WireError> {
        self.status(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await
    }

    /// Ends the session; gives the status.
    pub async fn delete(&self) -> Result<u16, WireError> {
        Ok(self.send(&self.http("DELETE")).await?.head().await?.status)
    }

    async fn status(&self, message: &Value) -> Result<u16, WireError> {
        Ok(self.post(message).await?.head().await?.status)
    }
}
