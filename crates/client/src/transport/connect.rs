//! Connections: TCP, TLS, and the proxies that the environment names.
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use rejoin_core::causes::told;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use super::{Config, Proxies};
use crate::limits::ClientLimits;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file of certificate authorities holds none, or cannot be read.
    #[error("the CA file `{path}` cannot be used: {what}; it must be PEM text that can be read")]
    CaFile {
        /// The file.
        path: String,
        /// What was wrong.
        what: String,
    },
    /// There are no certificate authorities.
    #[error("the system has no certificate authorities: install them, or name a CA file")]
    NoAuthorities,
    /// The TLS library refused its configuration.
    #[error("TLS cannot be set up: {source}")]
    Tls {
        /// What it said.
        source: rustls::Error,
    },
}

/// What carries bytes.
pub(super) trait Io: hyper::rt::Read + hyper::rt::Write + Unpin + Send {}

impl<T: hyper::rt::Read + hyper::rt::Write + Unpin + Send> Io for T {}

/// A connection, and what requests on it must say.
pub(super) struct Connected {
    pub(super) io: Box<dyn Io>,
    /// To a proxy that is asked for whole URLs, with this credential.
    pub(super) through: Option<Option<HeaderValue>>,
}

/// Makes connections.
pub(super) struct Connector {
    tls: ClientConfig,
    tcp: HttpConnector,
    proxies: Option<Matcher>,
    connect_max: Duration,
}

impl Connector {
    pub(super) fn new(config: &Config, secure: bool) -> Result<Self, TlsError> {
        let limits = &config.limits;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Tls { source })?
            .with_root_certificates(authorities(secure, config.ca_file.as_deref())?)
            .with_no_client_auth();
        let proxies = match &config.proxies {
            Proxies::Environment => Some(Matcher::from_env()),
            Proxies::Through(url) => Some(Matcher::builder().all(url.as_str()).build()),
            Proxies::None => None,
        };
        let connect_max = Duration::from_millis(limits.connect_max_ms);
        Ok(Self { tls, tcp: tcp(limits), proxies, connect_max })
    }

    /// A new connection to the server of `uri`.
    ///
    /// # Errors
    /// In words. Nothing of any request was written.
    pub(super) async fn connect(&self, uri: &Uri) -> Result<Connected, String> {
        let connecting = self.connect_unbounded(uri);
        match tokio::time::timeout(self.connect_max, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(format!("no connection within {} ms", self.connect_max.as_millis())),
        }
    }

    async fn connect_unbounded(&self, uri: &Uri) -> Result<Connected, String> {
        let proxy = self.proxies.as_ref().and_then(|proxies| proxies.intercept(uri));
        let Some(proxy) = proxy else {
            let io = dial(self.secured(self.tcp.clone()), uri.clone()).await?;
            return Ok(Connected { io, through: None });
        };
        let authorization = proxy.basic_auth().cloned();
        let hop = self.secured(self.tcp.clone());
        if uri.scheme_str() != Some("https") {
            let io =
                dial(hop, proxy.uri().clone()).await.map_err(|what| format!("proxy: {what}"))?;
            return Ok(Connected { io, through: Some(authorization) });
        }
        let mut tunnel = Tunnel::new(proxy.uri().clone(), hop);
        if let Some(authorization) = authorization {
            tunnel = tunnel.with_auth(authorization);
        }
        let io = dial(self.secured(tunnel), uri.clone())
            .await
            .map_err(|what| format!("proxy: {what}"))?;
        Ok(Connected { io, through: None })
    }

    fn secured<C>(&self, inner: C) -> HttpsConnector<C> {
        HttpsConnectorBuilder::new()
            .with_tls_config(self.tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(inner)
    }
}

async fn dial<C>(mut connector: C, uri: Uri) -> Result<Box<dyn Io>, String>
where
    C: Service<Uri>,
    C::Response: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let ready = std::future::poll_fn(|cx| connector.poll_ready(cx)).await;
    ready.map_err(|error| told(&*error.into()))?;
    let io = connector.call(uri).await.map_err(|error| told(&*error.into()))?;
    Ok(Box::new(io))
}

fn tcp(limits: &ClientLimits) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_millis(limits.tcp_keepalive_time_ms)));
    tcp.set_keepalive_interval(Some(Duration::from_millis(limits.tcp_keepalive_interval_ms)));
    tcp.set_keepalive_retries(Some(limits.tcp_keepalive_probes));
    tcp.set_tcp_user_timeout(Some(Duration::from_millis(limits.tcp_user_timeout_ms)));
    tcp
}

fn authorities(secure: bool, ca_file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let failed = |what: String| TlsError::CaFile { path: path.display().to_string(), what };
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
        if roots.is_empty() {
            return Err(TlsError::NoAuthorities);
        }
    }
    Ok(roots)
}
