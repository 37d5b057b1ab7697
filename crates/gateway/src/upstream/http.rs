//! MCP servers at a URL: Streamable HTTP, one upstream session per client session (design
//! sections 4 to 6; spec 1.1).
//!
//! Each request is its own POST in its own task (`call`), whose stream is read to its end whatever
//! the client does (spec SSE-8) and resumed where it can be. Beside them a session has four tasks,
//! each with one wait of its own: the intake (`intake`) takes commands, the notes (`notes`) send
//! notifications in order, the standalone stream (`standalone`) is kept open, and the check
//! (`check`) finds out whether a server that failed still knows the session.
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::HeaderName;
use http::{HeaderMap, Uri};
use rejoin_core::limits::Limits;

use self::credential::Credential;
pub(super) use self::credential::forwarded;
pub use self::credential::{CredentialError, UpstreamAuth};
pub(super) use self::departure::Departure;
pub use self::wire::WireError;
pub(super) use self::wire::{Fault, Transport};
use self::wire::{HttpClient, Wire};
use super::{OpenError, Opened, Opening, Resumed, Resumption, Upstream};
use crate::headers::is_reserved;
use crate::passthrough::Passthrough;
use crate::throttle::SharedThrottle;

mod answer;
mod backoff;
mod call;
mod calls;
mod check;
mod continued;
mod credential;
mod cursor;
mod departure;
mod intake;
mod notes;
mod open;
mod pass;
mod pump;
mod reply;
mod resume;
mod session;
mod standalone;
mod target;
mod wire;

/// What an operator chooses about an upstream at a URL.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Whose `Authorization` the server sees.
    pub auth: UpstreamAuth,
    /// A PEM file of certificate authorities that are trusted beside those of the system.
    pub ca_file: Option<PathBuf>,
    /// Headers of the client that are forwarded, beside its `Authorization`.
    pub forward_headers: Vec<HeaderName>,
    /// Headers of the operator that every request carries. Values may be secrets: they are to be
    /// marked as sensitive.
    pub headers: HeaderMap,
    /// The upstream's name; `None`: origin and path of its URL. Two servers may have the same.
    pub name: Option<String>,
    /// The limits of the product.
    pub limits: Arc<Limits>,
}

impl HttpOptions {
    /// The client's `Authorization` is forwarded, no other header; the system's authorities.
    pub fn new(limits: Arc<Limits>) -> Self {
        Self {
            auth: UpstreamAuth::Forward,
            ca_file: None,
            forward_headers: Vec::new(),
            headers: HeaderMap::new(),
            name: None,
            limits,
        }
    }
}

/// Why an upstream at a URL cannot be used. No message holds the URL: it may hold a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpUpstreamError {
    /// Not an absolute URL of the kinds there are.
    #[error("it is not a URL of a server: write http://HOST/PATH or https://HOST/PATH")]
    BadUrl,
    /// A user name or password in the URL.
    #[error(
        "the URL holds a user name: take it out, and name the source of the whole Authorization \
         value with --upstream-auth (in a file: upstream_auth)"
    )]
    UserInUrl,
    /// A fragment, which no server is ever sent (RFC 9110 section 7.1).
    #[error("the URL has a fragment, which no server would see: take out the # and what follows")]
    Fragment,
    /// A header that belongs to one connection or session, or is set by Rejoin.
    #[error("the header `{name}` cannot be forwarded or set: take it out of the list")]
    ReservedHeader {
        /// The header.
        name: HeaderName,
    },
    /// Rejoin's own credential cannot be had.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// TLS could not be set up.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// A server at a URL.
#[derive(Debug)]
pub struct HttpUpstream {
    origin: Arc<Origin>,
}

/// Where a server is, and what it is told of its clients.
pub(super) struct Place {
    pub(super) name: String,
    pub(super) uri: Uri,
    pub(super) auth: UpstreamAuth,
    /// From [`forwarded`].
    pub(super) forwarded: Vec<HeaderName>,
    /// The operator's own.
    pub(super) headers: HeaderMap,
    /// True if its sessions can outlive this process.
    pub(super) outlives: bool,
}

/// What all sessions of one upstream share.
#[derive(Debug)]
struct Origin {
    name: String,
    uri: Uri,
    wire: Wire,
    credential: Credential,
    forwarded: Vec<HeaderName>,
    outlives: bool,
    limits: Arc<Limits>,
    /// Of lost messages, of which clients and servers can send any number.
    losses: SharedThrottle,
}

impl Origin {
    /// Logs, now and then, what became of a message that is lost to somebody.
    fn warn(&self, what: &str, why: &str) {
        if let Some(unlogged) = self.losses.admit() {
            tracing::warn!(upstream = %self.name, why, unlogged, "{what}");
        }
    }
}

impl HttpUpstream {
    /// An upstream at `url`. Nothing is connected and no command is run yet.
    ///
    /// # Errors
    ///
    /// See [`HttpUpstreamError`].
    pub fn new(url: &str, options: HttpOptions) -> Result<Self, HttpUpstreamError> {
        let (uri, derived) = target::parse(url)?;
        let HttpOptions { auth, ca_file, forward_headers, headers, name, limits } = options;
        let name = name.unwrap_or(derived);
        if let Some(name) = headers.keys().find(|name| is_reserved(name)) {
            return Err(HttpUpstreamError::ReservedHeader { name: name.clone() });
        }
        let forwarded = forwarded(&auth, forward_headers)?;
        auth.check()?;
        let secure = uri.scheme_str() == Some("https");
        let client = HttpClient::new(secure, ca_file.as_deref(), &limits)?;
        let place = Place { name, uri, auth, forwarded, headers, outlives: true };
        Ok(Self::over(client, place, limits))
    }

    /// An upstream that is reached over `transport`.
    pub(super) fn over(transport: impl Transport, place: Place, limits: Arc<Limits>) -> Self {
        let Place { name, uri, auth, forwarded, headers, outlives } = place;
        let (wire, credential) = (Wire::new(transport, headers), Credential::new(auth));
        let losses = SharedThrottle::default();
        let origin = Origin { name, uri, wire, credential, forwarded, outlives, limits, losses };
        Self { origin: Arc::new(origin) }
    }
}

#[async_trait]
impl Upstream for HttpUpstream {
    /// A session that the server opens although the future was dropped is ended by DELETE.
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError> {
        let origin = Arc::clone(&self.origin);
        // A task of its own: if the caller goes, what it opens is dropped, which ends it.
        let opened = tokio::spawn(open::open(origin, opening)).await;
        opened.unwrap_or_else(|_| {
            let upstream = self.origin.name.clone();
            Err(OpenError::BadAnswer { upstream, what: "was not opened: its task failed" })
        })
    }

    fn resume(&self, resumption: Resumption) -> Option<Resumed> {
        continued::resume(&self.origin, resumption)
    }

    fn name(&self) -> &str {
        &self.origin.name
    }

    fn forwarded_headers(&self) -> &[HeaderName] {
        &self.origin.forwarded
    }

    fn passthrough(&self) -> Option<&dyn Passthrough> {
        Some(self)
    }
}
