//! An MCP server at a URL, as its operator named it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use hyper::header::HeaderName;
use hyper::{HeaderMap, Uri};
use rejoin_core::limits::Limits;
use rejoin_gateway::upstream::http::{
    HttpOptions, HttpUpstream, HttpUpstreamError, UpstreamAuth, WireError,
};

use super::{UpstreamError, show_word};
use crate::config::Origins;

/// The URL of an MCP server over Streamable HTTP.
#[derive(Clone)]
pub(crate) struct UpstreamUrl {
    /// It may hold secrets in its query.
    url: String,
    auth: UpstreamAuth,
    /// Authorities beside those of the system.
    pub(crate) ca_file: Option<PathBuf>,
    /// Headers of clients that are passed on.
    pub(crate) forward_headers: Vec<HeaderName>,
    /// Headers of its own; secrets.
    pub(crate) headers: HeaderMap,
    /// `None`: origin and path of the URL.
    pub(crate) name: Option<String>,
    origins: Origins,
}

impl UpstreamUrl {
    /// A URL whose settings were made there.
    pub(crate) fn new(url: String, auth: UpstreamAuth, origins: Origins) -> Self {
        let (forward_headers, headers) = (Vec::new(), HeaderMap::new());
        Self { url, auth, ca_file: None, forward_headers, headers, name: None, origins }
    }

    /// The place where sessions with it are opened.
    pub(super) fn build(&self, limits: Arc<Limits>) -> Result<HttpUpstream, UpstreamError> {
        let upstream = HttpUpstream::new(&self.url, self.options(limits));
        upstream.map_err(|source| UpstreamError::Url { option: self.option_of(&source), source })
    }

    fn options(&self, limits: Arc<Limits>) -> HttpOptions {
        let mut options = HttpOptions::new(limits);
        options.auth = self.auth.clone();
        options.ca_file.clone_from(&self.ca_file);
        options.forward_headers.clone_from(&self.forward_headers);
        options.headers.clone_from(&self.headers);
        options.name.clone_from(&self.name);
        options
    }

    /// The setting that an error is about.
    fn option_of(&self, error: &HttpUpstreamError) -> String {
        let named = |setting, option| self.origins.name(setting, option);
        match error {
            HttpUpstreamError::ReservedHeader { name } if self.headers.contains_key(name) => {
                named("headers", "headers")
            }
            HttpUpstreamError::ReservedHeader { .. } => {
                named("upstream_headers", "--upstream-header")
            }
            HttpUpstreamError::Credential(_) => named("upstream_auth", "--upstream-auth"),
            HttpUpstreamError::Wire(WireError::CaFile { .. } | WireError::NoCaFile { .. }) => {
                named("upstream_ca", "--upstream-ca")
            }
            _ => self.option(),
        }
    }

    /// The setting that names the URL, and the URL without secrets.
    fn option(&self) -> String {
        format!("{} {}", self.origins.name("upstream", "--upstream"), self.describe())
    }

    /// Checks that it is not the address of this listener of Rejoin. No name but `localhost` is
    /// looked up.
    ///
    /// # Errors
    /// [`UpstreamError::Itself`].
    pub(in crate::serve) fn differs_from(
        &self,
        listener: &str,
        address: SocketAddr,
    ) -> Result<(), UpstreamError> {
        let Ok(uri) = self.url.parse::<Uri>() else { return Ok(()) };
        let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let is_same = uri.port_u16().unwrap_or(default_port) == address.port()
            && uri.host().is_some_and(|host| reaches(host, address.ip()));
        if is_same {
            let (option, listener) = (self.option(), format!("{listener} {address}"));
            return Err(UpstreamError::Itself { option, listener });
        }
        Ok(())
    }

    /// Scheme, host, port and path: user names and queries can be secrets.
    pub(super) fn describe(&self) -> String {
        let uri = self.url.parse::<Uri>().ok();
        let shown = uri.as_ref().and_then(|uri| {
            let host = uri.host()?;
            let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
            Some(format!("{}://{host}{port}{}", uri.scheme_str()?, uri.path()))
        });
        shown.unwrap_or_else(|| {
            let readable = self.url.split(['?', '#']).next().unwrap_or_default();
            let hides = self.url.contains('@') || self.origins.hides("upstream");
            if hides { "a URL that cannot be read".to_owned() } else { show_word(readable) }
        })
    }
}

/// True if a host of a URL is an address on which `own` listens, as far as the two tell.
fn reaches(host: &str, own: IpAddr) -> bool {
    let own = own.to_canonical();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>().map(|host| host.to_canonical()) {
        Ok(host) if own.is_unspecified() => host.is_loopback() || host.is_unspecified(),
        // Whoever connects to no address in particular gets to the loopback.
        Ok(host) => host == own || (host.is_unspecified() && own.is_loopback()),
        Err(_) => {
            bare.eq_ignore_ascii_case("localhost") && (own.is_loopback() || own.is_unspecified())
        }
    }
}

impl fmt::Debug for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamUrl")
            .field("url", &self.describe())
            .field("ca_file", &self.ca_file)
            .field("forward_headers", &self.forward_headers)
            .finish_non_exhaustive()
    }
}
