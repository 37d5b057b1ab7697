//! Connections to the server: TCP, and TLS over it.

use std::path::Path;
use std::sync::Arc;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rejoin_core::causes::told;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service as _;

use super::WireError;
use crate::limits::{CONNECT_MAX_MS, QUOTED_CHARS_MAX, ms};
use crate::run::shown;
use crate::visible::beginning;

/// A connection: its bytes as they are in clear text.
pub(super) type Io = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;

/// Why nothing can be sent to a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// Not `http://HOST...` or `https://HOST...`.
    #[error(
        "`{url}` is no URL of an MCP server: it must begin with http:// or https:// and a host"
    )]
    Url {
        /// What was given, without what may be secret in it.
        url: String,
    },
    /// The file of certificate authorities cannot be used.
    #[error("the CA file `{path}` cannot be used: {what}; it must be PEM text that can be read")]
    Authorities {
        /// The file.
        path: String,
        /// What was wrong.
        what: String,
    },
    /// The TLS library refused its configuration.
    #[error("TLS cannot be set up: {source}")]
    Tls {
        /// What it said.
        #[from]
        source: rustls::Error,
    },
}

/// Opens connections to one server.
#[derive(Clone, Debug)]
pub struct Dialer {
    uri: Uri,
    tls: ClientConfig,
}

impl Dialer {
    /// For the server of this URL, trusting these authorities beside those of the system.
    ///
    /// # Errors
    /// See [`SetUpError`].
    pub fn new(url: &str, ca_file: Option<&Path>) -> Result<Self, SetUpError> {
        let refused = || SetUpError::Url { url: beginning(&shown(url), QUOTED_CHARS_MAX) };
        let uri: Uri = url.parse().map_err(|_| refused())?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_host = uri.authority().is_some_and(|authority| !authority.host().is_empty());
        if !is_web || !has_host {
            return Err(refused());
        }
        let roots = authorities(uri.scheme_str() == Some("https"), ca_file)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { uri, tls })
    }

    /// Host and port, as the `Host` header has them.
    pub fn host(&self) -> &str {
        let authority = self.uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        authority.rsplit('@').next().unwrap_or_default()
    }

    /// Whether the server is reached by a name or an address of this machine's loopback.
    pub fn is_loopback(&self) -> bool {
        let host = self.uri.host().unwrap_or_default();
        host == "localhost" || host == "[::1]" || host.starts_with("127.")
    }

    /// Path and query of the endpoint.
    pub fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
    }

    /// A new connection, whose receive buffer in the kernel is made this small.
    pub(super) async fn connect(&self, receive_bytes: Option<usize>) -> Result<Io, WireError> {
        let refused = |what: String| WireError::Connect { server: self.host().to_owned(), what };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_recv_buffer_size(receive_bytes);
        let mut connector: HttpsConnector<HttpConnector> = HttpsConnectorBuilder::new()
            .with_tls_config(self.tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        match timeout(ms(CONNECT_MAX_MS), connector.call(self.uri.clone())).await {
            Ok(Ok(stream)) => Ok(TokioIo::new(stream)),
            Ok(Err(error)) => Err(refused(advised(told(&*error)))),
            Err(_) => Err(refused(format!("no connection within {CONNECT_MAX_MS} ms"))),
        }
    }
}

/// The socket below.
pub(super) fn socket(io: &Io) -> &TcpStream {
    match io.inner() {
        MaybeHttpsStream::Http(tcp) => tcp.inner(),
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
    }
}

/// What failed, and what to do if it is the TLS.
fn advised(what: String) -> String {
    if what.contains("certificate") {
        return format!("{what}; an authority of your own is named with --ca");
    }
    if what.contains("corrupt message") {
        return format!(
            "{what}; does it speak TLS at this port? If not, the URL begins with http:"
        );
    }
    what
}

fn authorities(secure: bool, ca_file: Option<&Path>) -> Result<RootCertStore, SetUpError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let failed =
            |what: String| SetUpError::Authorities { path: path.display().to_string(), what };
        let found: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        for authority in found.map_err(|error| failed(error.to_string()))? {
            roots.add(authority).map_err(|error| failed(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(failed("there is no certificate in it".to_owned()));
        }
    }
    if secure {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    Ok(roots)
}
