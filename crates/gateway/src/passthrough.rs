//! Pass-through: what has no session goes to the server as it came, and comes back as it came
//! (design section 1, "out of scope"; spec 3.2).
//!
//! A revision without sessions, a request without a session, the older transport with two
//! endpoints: for these nothing is logged, claimed, resumed or refused. The bytes of both bodies
//! are not touched, an answer is never held back, and a client that leaves takes its request to the
//! server with it, since in the newer revisions that is how a request is cancelled.

mod announced;
mod body;
mod era;
mod hop;
mod seats;
mod tally;

use std::error::Error;
use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use rejoin_core::limits::Limits;

use crate::gateway::Gateway;
use crate::headers::MCP_SESSION_ID;
use crate::post::{self, PostError};
use crate::respond::{self, AnswerBody, Ids};

use announced::Announced;
pub use body::PassedBody;
pub(crate) use era::{INITIALIZE, has_no_initialize, has_no_session, is_passed, is_stateless};
pub(crate) use seats::SeatError;
use seats::{Seat, Seats};
pub(crate) use tally::PassedEnd;
use tally::Tally;

/// Why a body ended before its end.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The method whose answer is a stream that lasts until one side leaves (revision 2026-07-28).
const LISTEN: &str = "subscriptions/listen";

/// A server that can be sent HTTP requests as they are.
#[async_trait]
pub trait Passthrough: Send + Sync {
    /// Sends one request, once, and waits for the head of its answer, as long as it takes. If the
    /// returned future is dropped, or the body of the answer is, the connection is closed.
    ///
    /// # Errors
    ///
    /// See [`ExchangeError`]. An answer of any status is not one of them.
    async fn exchange(&self, outgoing: Outgoing) -> Result<Response<UpstreamBody>, ExchangeError>;

    /// The path of the server's MCP endpoint.
    fn path(&self) -> &str;
}

/// The body of a server's answer, as it arrives.
pub type UpstreamBody = UnsyncBoxBody<Bytes, BoxError>;

/// A request on its way to the server.
#[derive(Clone)]
pub struct Outgoing {
    /// The client's method.
    pub method: Method,
    /// Where it goes.
    pub target: Target,
    /// The client's query, without the question mark.
    pub query: Option<String>,
    /// The client's end-to-end headers, without `Host`, `Content-Length` and a session's id that is
    /// Rejoin's own.
    pub headers: HeaderMap,
    /// The client's body.
    pub body: Bytes,
}

impl fmt::Debug for Outgoing {
    /// Neither headers nor query nor body: all of them can hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, target, .. } = self;
        let mut shown = f.debug_struct("Outgoing");
        shown.field("method", method).field("target", target).finish_non_exhaustive()
    }
}

/// Where a request goes at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The MCP endpoint.
    Endpoint,
    /// The path that the server announced for the messages of an open stream (the older transport
    /// with two endpoints).
    Announced(String),
}

/// Why an exchange has no answer of the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// No connection; the request has not left.
    #[error(
        "`{upstream}` cannot be reached: {what}; the request was not sent; \
         check the URL, and that the server runs"
    )]
    Unreachable {
        /// The upstream's name.
        upstream: String,
        /// What the system said.
        what: String,
    },
    /// The connection broke before an answer began.
    #[error(
        "the connection to `{upstream}` was lost before it answered: {what}; \
         the request may have been processed, and is not sent again"
    )]
    Lost {
        /// The upstream's name.
        upstream: String,
        /// What the system said.
        what: String,
    },
    /// The answer is none: HTTP ends with it on this connection, or another one was to follow
    /// (RFC 9110 section 15.2).
    #[error(
        "`{upstream}` answered with HTTP status {status}, which ends no request; the request may \
         have been processed, and is not sent again; the server must answer with 200 or higher"
    )]
    Interim {
        /// The upstream's name.
        upstream: String,
        /// The status.
        status: StatusCode,
    },
    /// The value for `Authorization` could not be had; the request has not left.
    #[error("the credential for `{upstream}` cannot be read: {what}; the request was not sent")]
    Credential {
        /// The upstream's name.
        upstream: String,
        /// What was wrong, without the value.
        what: String,
    },
}

/// Why a request was not passed through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PassError {
    /// The gateway is about to stop.
    #[error("Rejoin is about to stop")]
    Draining,
    /// Too many at once.
    #[error(transparent)]
    Seat(#[from] SeatError),
    /// The server did not answer.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The gateway stopped before the server answered.
    #[error("Rejoin stops before `{upstream}` answered: the request may have been processed")]
    Stopped {
        /// The upstream's name.
        upstream: String,
    },
}

/// What all exchanges that are passed through share.
pub(crate) struct Passing {
    seats: Seats,
    announced: Announced,
}

impl Passing {
    /// Room for as many exchanges as `limits` allow.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { seats: Seats::new(limits), announced: Announced::default() }
    }

    /// The same seats, for a gateway in front of another server.
    pub(crate) fn beside(&self) -> Self {
        Self { seats: self.seats.clone(), announced: Announced::default() }
    }

    /// Waits until no exchange runs that may be a call.
    pub(crate) async fn idle(&self) {
        self.seats.idle().await;
    }

    /// Where a request to this path of the gateway goes; `None`: nowhere.
    pub(crate) fn announced(&self, path: &str) -> Option<Target> {
        self.announced.find(path).map(Target::Announced)
    }
}

impl Gateway {
    /// The way to a server that can be sent requests as they are; `None`: there is no such way, as
    /// over stdio, which has sessions only.
    pub(crate) fn passthrough(&self) -> Option<&dyn Passthrough> {
        self.upstream().passthrough()
    }

    /// Passes a request on that needs no look into its body.
    pub(crate) async fn pass_unread<B: Body<Data = Bytes>>(
        &self,
        way: &dyn Passthrough,
        request: Request<B>,
        target: Target,
    ) -> Response<AnswerBody> {
        let (parts, body) = request.into_parts();
        let limits = &self.settings().limits;
        let mut ids = Ids::None;
        let passed = match post::whole(body, &parts.headers, limits, self.body_room()).await {
            Ok(body) => {
                ids = Ids::guess(&body);
                let is_call = parts.method != Method::GET;
                let passed = self.pass(way, &parts, body, target, is_call).await;
                passed.map_err(PostError::from)
            }
            Err(error) => Err(error.into()),
        };
        let manner = self.manner(&parts.headers);
        passed.unwrap_or_else(|error| {
            self.log_no_room(&error);
            respond::post_failed(&error, &ids, manner)
        })
    }

    /// Passes a request on. `is_call`: the end of the gateway waits for its answer.
    pub(crate) async fn pass(
        &self,
        way: &dyn Passthrough,
        parts: &Parts,
        body: Bytes,
        target: Target,
        is_call: bool,
    ) -> Result<Response<AnswerBody>, PassError> {
        let mut tally = Tally::start(self.metrics());
        let is_get = parts.method == Method::GET && target == Target::Endpoint;
        let answer = self.answer_of(way, parts, body, target, is_call).await;
        let (response, seat) = answer.inspect_err(|error| tally.ends(error.into()))?;
        let (mut head, body) = response.into_parts();
        tracing::debug!(method = %parts.method, status = %head.status, "passed through");
        let is_stream = is_event_stream(&head.headers);
        let can_announce = is_get && is_stream && head.status == StatusCode::OK;
        let listener = can_announce.then(|| {
            self.passing().announced.listen(self.path().to_owned(), way.path().to_owned())
        });
        head.headers = hop::response(&head.headers);
        let gateway = self.clone();
        let stopping = Box::pin(async move { gateway.stopping().await });
        let body = PassedBody::new(body, stopping, is_stream, listener, seat, tally);
        Ok(respond::passed(Response::from_parts(head, body)))
    }

    /// Takes a seat, sends the request, and waits for the head of its answer.
    async fn answer_of(
        &self,
        way: &dyn Passthrough,
        parts: &Parts,
        body: Bytes,
        target: Target,
        is_call: bool,
    ) -> Result<(Response<UpstreamBody>, Seat), PassError> {
        if self.is_draining() {
            return Err(PassError::Draining);
        }
        let principal = self.principal(&parts.headers);
        let seat = self.passing().seats.take(principal.key(), is_call)?;
        let mut headers = hop::request(&parts.headers);
        let is_own = |id: &HeaderValue| id.to_str().is_ok_and(|id| self.registry().knows(id));
        if headers.get_all(MCP_SESSION_ID).iter().any(is_own) {
            // A secret between Rejoin and its client.
            headers.remove(MCP_SESSION_ID);
        }
        let query = parts.uri.query().map(str::to_owned);
        let outgoing = Outgoing { method: parts.method.clone(), target, query, headers, body };
        tokio::select! {
            response = way.exchange(outgoing) => Ok((response?, seat)),
            () = self.stopping() => {
                Err(PassError::Stopped { upstream: self.upstream().name().to_owned() })
            }
        }
    }
}

/// True if the end of the gateway waits for the answer to a request of this method.
pub(crate) fn is_call(method: Option<&str>) -> bool {
    method != Some(LISTEN)
}

/// True if the body is a stream of server-sent events, readable as such.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media = media.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    media.eq_ignore_ascii_case(b"text/event-stream") && !headers.contains_key(CONTENT_ENCODING)
}
