//! One upstream session: what its tasks share, and the requests they make.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::time::timeout;

use super::Origin;
use super::calls::Calls;
use super::check::Refusal;
use super::credential::select;
use super::departure::Departure;
use super::wire::Fault;
use crate::headers::{LAST_EVENT_ID, MCP_PROTOCOL_VERSION, MCP_SESSION_ID};
use crate::passthrough::UpstreamBody;
use crate::upstream::{BackPressure, CloseReason, Opening};

/// Some servers insist on the order (spec POST-2 does not).
const BOTH: HeaderValue = HeaderValue::from_static("text/event-stream, application/json");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Without this header a server may compress (RFC 9110 section 12.5.3), and events would wait in
/// the compressor.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("rejoin/", env!("CARGO_PKG_VERSION")));

/// Where the session is between `initialize` and `notifications/initialized`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// The client has not sent `notifications/initialized`.
    Before,
    /// It is on its way: nothing may overtake it.
    Passing,
    /// The server has it.
    Behind,
}

/// What the server said about the session when it answered `initialize`.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    /// Its id for the session. `None`: it keeps none.
    pub(super) id: Option<HeaderValue>,
    /// The revision it agreed on.
    pub(super) revision: Option<HeaderValue>,
}

/// A session, shared by its tasks.
pub(super) struct Session {
    pub(super) origin: Arc<Origin>,
    /// The URL behind the redirects of `initialize`.
    pub(super) uri: Uri,
    pub(super) terms: Terms,
    pub(super) calls: Calls,
    pub(super) gate: watch::Sender<Gate>,
    /// Streams that brought much already wait.
    pub(super) pressure: watch::Sender<BackPressure>,
    /// Whose requests these are is known: their headers, if there are any to pass on.
    pub(super) client: watch::Sender<bool>,
    /// A standalone stream is open.
    pub(super) listens: AtomicBool,
    /// Somebody saw the server fail.
    pub(super) suspicion: Notify,
    /// A server that failed answers again.
    pub(super) revival: Notify,
    /// The `initialize` that opened it.
    pub(super) initialize: Bytes,
    /// What the server answers in this session since it does not know it any more.
    pub(super) gone: AsyncMutex<Option<Refusal>>,
    /// Pings sent.
    pub(super) pings: AtomicU64,
    client_headers: Mutex<HeaderMap>,
    over: watch::Sender<Option<CloseReason>>,
}

impl Session {
    pub(super) fn new(
        origin: Arc<Origin>,
        uri: Uri,
        terms: Terms,
        calls: Calls,
        opening: Opening,
    ) -> Self {
        let Opening { initialize, headers } = opening;
        Self {
            origin,
            uri,
            terms,
            calls,
            gate: watch::Sender::new(Gate::Before),
            pressure: watch::Sender::new(BackPressure::None),
            client: watch::Sender::new(true),
            listens: AtomicBool::new(false),
            suspicion: Notify::new(),
            revival: Notify::new(),
            initialize,
            gone: AsyncMutex::new(None),
            pings: AtomicU64::new(first_ping()),
            client_headers: Mutex::new(headers),
            over: watch::Sender::new(None),
        }
    }

    /// The newest headers of the client that are passed on.
    pub(super) fn client_headers(&self) -> HeaderMap {
        self.client_headers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the headers of the client.
    pub(super) fn set_client_headers(&self, headers: &HeaderMap) {
        let headers = select(&self.origin.forwarded, headers);
        *self.client_headers.lock().unwrap_or_else(PoisonError::into_inner) = headers;
    }

    /// Waits until the client has come back to a session that goes on, if its headers are needed.
    pub(super) async fn client_known(&self) {
        // The sender lives as long as `self`.
        let _ = self.client.subscribe().wait_for(|known| *known).await;
    }

    /// The session is over; the first reason counts.
    pub(super) fn finish(&self, reason: CloseReason) {
        self.over.send_if_modified(|over| {
            let first = over.is_none();
            if first {
                *over = Some(reason);
            }
            first
        });
    }

    /// Waits until the session is over.
    pub(super) async fn over(&self) -> CloseReason {
        let mut over = self.over.subscribe();
        let reason = over.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        // The sender lives as long as `self`.
        reason.unwrap_or(CloseReason::Ended)
    }

    /// The server failed in a way that may mean that it lost the session.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Whether a response may still come on the standalone stream.
    pub(super) fn listens(&self) -> bool {
        self.listens.load(Ordering::Relaxed)
    }

    /// Whether this status of a POST says that the session is gone (spec SES-7).
    pub(super) fn is_gone(&self, status: StatusCode) -> bool {
        self.terms.id.is_some() && matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
    }

    /// Posts a message and waits for the head of the response.
    pub(super) async fn post(
        &self,
        message: Bytes,
        departure: &Arc<Departure>,
    ) -> Result<Response<UpstreamBody>, Fault> {
        let mut headers = self.headers(BOTH).await?;
        headers.insert(CONTENT_TYPE, JSON);
        self.exchange(Method::POST, headers, message, departure).await
    }

    /// Posts a message that is answered at once, if at all.
    pub(super) async fn post_soon(&self, message: Bytes) -> Posted {
        let departure = Departure::new();
        let limit = Duration::from_millis(self.origin.limits.upstream.head_max_ms);
        match timeout(limit, self.post(message, &departure)).await {
            Ok(Ok(response)) => Posted::Answered(response),
            Ok(Err(Fault::Redirected { what, .. })) => Posted::Refused(what),
            Ok(Err(Fault::Credential(error))) => Posted::Refused(error.to_string()),
            Ok(Err(fault)) if departure.revoke() => Posted::NotSent(fault.to_string()),
            Ok(Err(fault)) => Posted::Failed(fault.to_string()),
            Err(_) if departure.revoke() => Posted::NotSent("no connection in time".to_owned()),
            Err(_) => Posted::Slow,
        }
    }

    /// Asks for a stream: the one that the cursor belongs to, or the standalone one.
    pub(super) async fn get(
        &self,
        cursor: Option<&HeaderValue>,
    ) -> Result<Response<UpstreamBody>, Fault> {
        let mut headers = self.headers(STREAM).await?;
        if let Some(cursor) = cursor {
            headers.insert(LAST_EVENT_ID, cursor.clone());
        }
        self.exchange(Method::GET, headers, Bytes::new(), &Departure::new()).await
    }

    /// Ends the session at the server (spec SES-9), if it can be done in time.
    pub(super) async fn delete(&self) {
        if self.terms.id.is_none() {
            return;
        }
        let limit = Duration::from_millis(self.origin.limits.upstream.delete_max_ms);
        let deleted = timeout(limit, async {
            let headers = self.headers(BOTH).await?;
            self.exchange(Method::DELETE, headers, Bytes::new(), &Departure::new()).await
        });
        let upstream = &*self.origin.name;
        match deleted.await {
            Ok(Ok(response)) => {
                tracing::debug!(upstream, status = %response.status(), "session ended");
            }
            Ok(Err(error)) => tracing::info!(upstream, %error, "the session was not ended"),
            Err(_) => tracing::info!(upstream, "the server did not end the session in time"),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        departure: &Arc<Departure>,
    ) -> Result<Response<UpstreamBody>, Fault> {
        let wire = &self.origin.wire;
        let (response, _) = wire.exchange(method, &self.uri, headers, body, departure).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.origin.credential.forget().await;
        }
        Ok(response)
    }

    async fn headers(&self, accept: HeaderValue) -> Result<HeaderMap, Fault> {
        let mut headers = headers(&self.origin, self.client_headers(), accept).await?;
        if let Some(id) = &self.terms.id {
            headers.insert(MCP_SESSION_ID, id.clone());
        }
        if let Some(revision) = &self.terms.revision {
            headers.insert(MCP_PROTOCOL_VERSION, revision.clone());
        }
        Ok(headers)
    }
}

/// Pings of an earlier process in the same session have other ids (spec B-2).
fn first_ping() -> u64 {
    getrandom::u32().unwrap_or(1).into()
}

/// What became of a message that is answered at once.
pub(super) enum Posted {
    Answered(Response<UpstreamBody>),
    /// No byte left.
    NotSent(String),
    /// It may have left, and there is no answer.
    Failed(String),
    /// The server redirects it away, or it cannot be authorized. It was not processed.
    Refused(String),
    /// It left, and the answer has not begun in time.
    Slow,
}

/// The headers of every request: the client's, then Rejoin's own.
async fn headers(
    origin: &Origin,
    client: HeaderMap,
    accept: HeaderValue,
) -> Result<HeaderMap, Fault> {
    let mut headers = client;
    if let Some(credential) = origin.credential.value().await? {
        headers.insert(AUTHORIZATION, credential);
    }
    headers.insert(ACCEPT, accept);
    headers.insert(ACCEPT_ENCODING, IDENTITY);
    headers.entry(USER_AGENT).or_insert(AGENT);
    Ok(headers)
}

/// The headers of `initialize`, before there is a session.
pub(super) async fn initialize_headers(
    origin: &Origin,
    client: HeaderMap,
) -> Result<HeaderMap, Fault> {
    let mut headers = headers(origin, client, BOTH).await?;
    headers.insert(CONTENT_TYPE, JSON);
    Ok(headers)
}
