//! MCP servers in this process: any service of HTTP requests, called and not connected to.
//!
//! Everything that an upstream at a URL does (`http`) is done here too, over calls of the service
//! in place of connections. What only a network has is absent: TLS, a pool, idle connections.
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::header::{CONTENT_LENGTH, HOST, HeaderName};
use ::http::uri::PathAndQuery;
use ::http::{HeaderValue, Request, Response, StatusCode, Uri};
use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use rejoin_core::limits::Limits;
use tower_service::Service;

use super::http::{
    Departure, Fault, HttpUpstream, HttpUpstreamError, Place, Transport, UpstreamAuth, forwarded,
};
use super::{OpenError, Opened, Opening, Resumed, Resumption, Upstream};
use crate::passthrough::{BoxError, Passthrough, UpstreamBody};

/// What the service is told to be: it is nobody's business under which names the gateway is known.
const LOCALHOST: &str = "localhost";

/// In one process there is nobody to hold a credential of the gateway's own against.
const AUTH: UpstreamAuth = UpstreamAuth::Forward;

/// The body of a request to the service.
pub type ServiceBody = Full<Bytes>;

/// What is chosen about a service in this process.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Its name, in logs, in messages to people, and in the scope of dedup tokens: two services
    /// that share a store need two.
    pub name: String,
    /// Headers of the client that the service sees, beside its `Authorization`.
    pub forward_headers: Vec<HeaderName>,
    /// True if the service only stands for a server elsewhere, whose sessions outlive this process:
    /// then they go on after a restart, as those of a server at a URL do.
    pub outlives_process: bool,
    /// The limits of the product.
    pub limits: Arc<Limits>,
}

impl ServiceOptions {
    /// A service named `service`, which ends with this process. The client's `Authorization` is
    /// forwarded, no other header.
    pub fn new(limits: Arc<Limits>) -> Self {
        let name = "service".to_owned();
        Self { name, forward_headers: Vec::new(), outlives_process: false, limits }
    }
}

/// Why a service cannot be an upstream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceUpstreamError {
    /// The path cannot be one.
    #[error("the service's path {path:?} cannot be used: write one that starts with a slash")]
    BadPath {
        /// The path.
        path: String,
    },
    /// A header that belongs to one connection or session, or is set by Rejoin.
    #[error("the header `{name}` cannot be forwarded: take it out of the list")]
    ReservedHeader {
        /// The header.
        name: HeaderName,
    },
}

/// Where a service is asked, and what it is told of its clients: checked, and not yet bound to one.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    uri: Uri,
    forwarded: Vec<HeaderName>,
}

impl Endpoint {
    pub(crate) fn new(
        path: &str,
        forward_headers: Vec<HeaderName>,
    ) -> Result<Self, ServiceUpstreamError> {
        let bad = || ServiceUpstreamError::BadPath { path: path.to_owned() };
        let parsed: PathAndQuery = path.parse().map_err(|_| bad())?;
        if !path.starts_with('/') {
            return Err(bad());
        }
        // With an origin, so that a redirect can stay on it.
        let uri = Uri::builder().scheme("http").authority(LOCALHOST).path_and_query(parsed);
        let uri = uri.build().map_err(|_| bad())?;
        let forwarded = forwarded(&AUTH, forward_headers).map_err(|error| match error {
            HttpUpstreamError::ReservedHeader { name } => {
                ServiceUpstreamError::ReservedHeader { name }
            }
            _ => bad(),
        })?;
        Ok(Self { uri, forwarded })
    }
}

/// A server in this process.
#[derive(Debug)]
pub struct ServiceUpstream {
    http: HttpUpstream,
}

impl ServiceUpstream {
    /// An upstream whose MCP endpoint is `path` of `service`. Nothing is called yet.
    ///
    /// The service is cloned for each request, and asked whether it is ready. From its call on a
    /// request counts as sent. A call that fails or panics is a connection that broke.
    ///
    /// # Errors
    ///
    /// See [`ServiceUpstreamError`].
    pub fn new<S, B>(
        service: S,
        path: &str,
        options: ServiceOptions,
    ) -> Result<Self, ServiceUpstreamError>
    where
        S: Service<Request<ServiceBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let ServiceOptions { name, forward_headers, outlives_process, limits } = options;
        let endpoint = Endpoint::new(path, forward_headers)?;
        Ok(Self::at(endpoint, service, name, outlives_process, limits))
    }

    pub(crate) fn at<S, B>(
        endpoint: Endpoint,
        service: S,
        name: String,
        outlives: bool,
        limits: Arc<Limits>,
    ) -> Self
    where
        S: Service<Request<ServiceBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Endpoint { uri, forwarded } = endpoint;
        let headers = ::http::HeaderMap::new();
        let place = Place { name, uri, auth: AUTH, forwarded, headers, outlives };
        Self { http: HttpUpstream::over(Calling(service), place, limits) }
    }
}

#[async_trait]
impl Upstream for ServiceUpstream {
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError> {
        self.http.open(opening).await.map_err(of_this_process)
    }

    fn resume(&self, resumption: Resumption) -> Option<Resumed> {
        self.http.resume(resumption)
    }

    fn name(&self) -> &str {
        self.http.name()
    }

    fn forwarded_headers(&self) -> &[HeaderName] {
        self.http.forwarded_headers()
    }

    fn passthrough(&self) -> Option<&dyn Passthrough> {
        self.http.passthrough()
    }
}

/// The same error, told to whoever has the service in their own code: there is no URL to check.
fn of_this_process(error: OpenError) -> OpenError {
    match error {
        OpenError::Refused { upstream, status, headers, body, .. } => {
            let remedy = match status {
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                    "its MCP endpoint is not at LayerConfig::path: set that to the path of its \
                     route, such as /mcp"
                }
                _ => "it says why in its own log, if at all",
            };
            OpenError::Refused { upstream, remedy, status, headers, body }
        }
        OpenError::Unreachable { upstream, what } => {
            let remedy = "a panic is told on the standard error of this process";
            OpenError::Broken { upstream, what, remedy }
        }
        OpenError::TimedOut { upstream, limit_ms, .. } => {
            OpenError::TimedOut { upstream, limit_ms, log: "its own log" }
        }
        other => other,
    }
}

/// Requests are calls of a service.
struct Calling<S>(S);

#[async_trait]
impl<S, B> Transport for Calling<S>
where
    S: Service<Request<ServiceBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn send(
        &self,
        request: Request<Bytes>,
        departure: &Arc<Departure>,
    ) -> Result<Response<UpstreamBody>, Fault> {
        let mut service = self.0.clone();
        let called = to_the_end(async {
            poll_fn(|context| service.poll_ready(context)).await.map_err(failed)?;
            if !departure.leave() {
                return Err(Fault::Broken { what: "the request was revoked".to_owned() });
            }
            service.call(as_received(request)).await.map_err(failed)
        });
        let response = called.await.unwrap_or_else(|panicked| Err(failed(panicked)))?;
        Ok(response.map(|body| ServedBody(Some(Box::pin(body))).boxed_unsync()))
    }
}

fn failed(error: impl Into<BoxError>) -> Fault {
    Fault::Broken { what: error.into().to_string() }
}

/// The request as an HTTP/1.1 listener would hand it over.
fn as_received(request: Request<Bytes>) -> Request<ServiceBody> {
    let (mut head, body) = request.into_parts();
    if let Some(target) = head.uri.path_and_query() {
        head.uri = Uri::from(target.clone());
    }
    head.headers.insert(HOST, HeaderValue::from_static(LOCALHOST));
    if !body.is_empty() {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    Request::from_parts(head, Full::new(body))
}

/// The service's own code panicked. Its tasks are its own, but its futures run in ours, which have
/// to tell what becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the service panicked")]
struct Panicked;

/// Runs a future of foreign code to its end, or to its panic.
async fn to_the_end<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|context| guarded(|| future.as_mut().poll(context))).await
}

/// Polls foreign code, which must not be polled again after a panic.
fn guarded<T>(poll: impl FnOnce() -> Poll<T>) -> Poll<Result<T, Panicked>> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(polled) => polled.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    }
}

/// The body of the service's answer. `None` after a panic.
struct ServedBody<B>(Option<Pin<Box<B>>>);

impl<B> Body for ServedBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(body) = self.0.as_mut() else { return Poll::Ready(None) };
        match ready!(guarded(|| body.as_mut().poll_frame(context))) {
            Ok(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            Err(panicked) => {
                self.0 = None;
                Poll::Ready(Some(Err(panicked.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(|body| body.size_hint()).unwrap_or_default()
    }
}
