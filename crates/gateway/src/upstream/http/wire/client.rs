//! Requests over TCP and TLS: hyper's client with its pool of connections.
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rejoin_core::limits::Limits;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};

use super::{Fault, Transport};
use crate::passthrough::UpstreamBody;
use crate::upstream::http::departure::{Departure, RequestBody};

/// The smallest buffer that hyper takes; it panics on less.
const BUFFER_BYTES_MIN: usize = 8 * 1024;
/// A longer body has its connection for itself: a server may refuse it unread and end the
/// connection, on which the next request would then be lost. That the body was written tells
/// nothing, since the kernel takes megabytes.
const SHARED_BODY_BYTES_MAX: usize = 32 * 1024;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The file of certificate authorities cannot be read.
    #[error("the CA file `{path}` cannot be read: {source}; check its path and permissions")]
    NoCaFile {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file of certificate authorities holds something else.
    #[error(
        "the CA file `{path}` holds no usable certificates: {what}; it must be PEM text, with \
         -----BEGIN CERTIFICATE----- before each"
    )]
    CaFile {
        /// The file.
        path: String,
        /// What was wrong.
        what: String,
    },
    /// The system has no certificate authorities, and no file was given.
    #[error("the system has no certificate authorities: install them, or name a CA file")]
    NoAuthorities,
    /// The TLS library refused its configuration.
    #[error("TLS cannot be set up: {source}")]
    Tls {
        /// What it said.
        source: rustls::Error,
    },
}

/// One HTTP client for all sessions of an upstream.
#[derive(Debug)]
pub(in crate::upstream::http) struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, RequestBody>,
}

impl HttpClient {
    /// A client. `secure`: the URL is an `https` one, so that authorities are needed.
    pub(in crate::upstream::http) fn new(
        secure: bool,
        ca_file: Option<&Path>,
        limits: &Limits,
    ) -> Result<Self, WireError> {
        let roots = roots(secure, ca_file)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| WireError::Tls { source })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(Duration::from_millis(limits.upstream.connect_max_ms)));
        tcp.set_keepalive(Some(Duration::from_millis(limits.tcp_keepalive_time_ms)));
        tcp.set_keepalive_interval(Some(Duration::from_millis(limits.tcp_keepalive_interval_ms)));
        tcp.set_keepalive_retries(Some(limits.tcp_keepalive_probes));
        tcp.set_tcp_user_timeout(Some(Duration::from_millis(limits.tcp_user_timeout_ms)));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            // A call must never be sent twice, not even where a library believes it safe.
            .retry_canceled_requests(false)
            .pool_idle_timeout(Duration::from_millis(limits.upstream.pool_idle_max_ms))
            .pool_timer(TokioTimer::new())
            // It grows to what a server sends faster than its reader takes it.
            .http1_max_buf_size(limits.connection_buffer_bytes_max.max(BUFFER_BYTES_MIN))
            .build(connector);
        Ok(Self { client })
    }
}

#[async_trait]
impl Transport for HttpClient {
    async fn send(
        &self,
        mut request: Request<Bytes>,
        departure: &Arc<Departure>,
    ) -> Result<Response<UpstreamBody>, Fault> {
        if request.body().len() > SHARED_BODY_BYTES_MAX {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let request = request.map(|bytes| RequestBody::new(bytes, Arc::clone(departure)));
        let response = self.client.request(request).await.map_err(|error| broken(&error))?;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}

fn broken(error: &hyper_util::client::legacy::Error) -> Fault {
    let mut what = error.to_string();
    let mut source = error.source();
    let mut speaks_tls = true;
    while let Some(error) = source {
        what = format!("{what}: {error}");
        speaks_tls &= !is_no_tls(error);
        source = error.source();
    }
    if !speaks_tls {
        what = "it does not speak TLS, its URL may begin with http:".to_owned();
    }
    Fault::Broken { what }
}

/// True if what came first on a connection was not the begin of TLS.
fn is_no_tls(error: &(dyn Error + 'static)) -> bool {
    if let Some(rustls::Error::InvalidMessage(_)) = error.downcast_ref() {
        return true;
    }
    // The source of an error of the system is that of what it holds, not this itself.
    let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    held.is_some_and(|held| is_no_tls(held))
}

fn roots(secure: bool, ca_file: Option<&Path>) -> Result<RootCertStore, WireError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let failed = |what: String| WireError::CaFile { path: path.display().to_string(), what };
        let authorities = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let authorities: Vec<CertificateDer<'static>> =
            authorities.map_err(|error| match error {
                pem::Error::Io(source) => {
                    WireError::NoCaFile { path: path.display().to_string(), source }
                }
                other => failed(other.to_string()),
            })?;
        for authority in authorities {
            roots.add(authority).map_err(|error| failed(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(failed("there is none".to_owned()));
        }
    }
    if secure {
        let system = rustls_native_certs::load_native_certs();
        for error in &system.errors {
            tracing::warn!(%error, "some certificate authorities of the system cannot be read");
        }
        roots.add_parsable_certificates(system.certs);
        if roots.is_empty() {
            return Err(WireError::NoAuthorities);
        }
    }
    Ok(roots)
}
