//! Single exchanges with a server, whatever carries them, and redirects.
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};

use super::credential::CredentialError;
use super::departure::Departure;
use super::target::{Redirect, redirect};
use crate::passthrough::UpstreamBody;

mod client;

pub(super) use client::HttpClient;
pub use client::WireError;

/// Redirects followed for one request.
pub(super) const REDIRECTS_MAX: usize = 3;

/// Why an exchange has no response.
#[derive(Debug, thiserror::Error)]
pub(in crate::upstream) enum Fault {
    /// No connection, or it broke. Whether the request left, its [`Departure`] tells.
    #[error("{what}")]
    Broken { what: String },
    /// A redirect that is not followed. The request was not processed (RFC 9110 section 15.4).
    #[error("{what}")]
    Redirected { status: StatusCode, what: String },
    /// The request could not be authorized; it was not sent.
    #[error("the credential cannot be read: {0}")]
    Credential(#[from] CredentialError),
}

/// What carries requests to a server: a network, or a call in this process.
#[async_trait]
pub(in crate::upstream) trait Transport: Send + Sync + 'static {
    /// Sends one request, once, and waits for the head of its response, whatever that is and
    /// however long it takes. Whoever drops the future, or the body, gives the exchange up.
    ///
    /// `departure` says at any moment whether the request may have left: the transport asks it for
    /// leave before that, and sends nothing that was revoked. A request without a body may leave
    /// unasked.
    async fn send(
        &self,
        request: Request<Bytes>,
        departure: &Arc<Departure>,
    ) -> Result<Response<UpstreamBody>, Fault>;
}

/// The way to one server, for all sessions of an upstream.
pub(super) struct Wire {
    transport: Box<dyn Transport>,
    headers: HeaderMap,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl Wire {
    /// Every request carries `headers`, in place of others of the same name.
    pub(super) fn new(transport: impl Transport, headers: HeaderMap) -> Self {
        Self { transport: Box::new(transport), headers }
    }

    /// Sends one request and waits for the head of its response, whatever that is.
    pub(super) async fn send(
        &self,
        mut request: Request<Bytes>,
        departure: &Arc<Departure>,
    ) -> Result<Response<UpstreamBody>, Fault> {
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        self.transport.send(request, departure).await
    }

    /// Sends one request and waits for the head of its response. Follows 307 and 308 to the same
    /// origin, body and all. Returns the response with the URL it came from.
    pub(super) async fn exchange(
        &self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
        departure: &Arc<Departure>,
    ) -> Result<(Response<UpstreamBody>, Uri), Fault> {
        let mut uri = uri.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = Request::new(body.clone());
            *request.method_mut() = method.clone();
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            let response = self.send(request, departure).await?;
            let status = response.status();
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((response, uri));
            }
            let location = response.headers().get(LOCATION);
            let location = location.and_then(|value| value.to_str().ok());
            let what = match location.map(|location| redirect(&uri, location)) {
                Some(Redirect::Same(target)) if matches!(status.as_u16(), 307 | 308) => {
                    uri = target;
                    continue;
                }
                Some(Redirect::Same(_)) => {
                    format!("answers with HTTP status {status}, under which a POST loses its body")
                }
                Some(Redirect::Other(target)) => {
                    format!("redirects to {target}, where Rejoin does not follow")
                }
                Some(Redirect::Unreadable) | None => {
                    format!("answers with HTTP status {status} and no Location that can be read")
                }
            };
            return Err(Fault::Redirected { status, what });
        }
        let what = format!("redirects more than {REDIRECTS_MAX} times");
        Err(Fault::Redirected { status: StatusCode::LOOP_DETECTED, what })
    }
}
