//! Inside a Rust server: a layer around the service that speaks MCP.
//!
//! ```no_run
//! # use rejoin_gateway::RejoinLayer;
//! # async fn example<S, B>(service: S) -> Result<(), Box<dyn std::error::Error>>
//! # where
//! #     S: tower_service::Service<
//! #             http::Request<http_body_util::Full<bytes::Bytes>>,
//! #             Response = http::Response<B>,
//! #             Error = std::convert::Infallible,
//! #         > + Clone + Send + Sync + 'static,
//! #     S::Future: Send,
//! #     B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
//! #     B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
//! # {
//! let mcp = RejoinLayer::new()?.layer(service);
//! let shutdown = mcp.drain_on(async { drop(tokio::signal::ctrl_c().await) });
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! rejoin_gateway::serve(listener, mcp, shutdown).await;
//! # Ok(())
//! # }
//! ```

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HeaderName;
use http::{Request, Response};
use http_body::Body;
use rejoin_core::limits::LimitsError;
use rejoin_core::settings::Settings;
use rejoin_store::{MemoryLimits, MemoryStore, OpenError, Store};
use tokio::task::AbortHandle;
use tower_layer::Layer;
use tower_service::Service;

use crate::config::{GatewayConfig, RejectStatus};
use crate::gateway::{self, AnswerBody, Gateway};
use crate::headers::{AllowError, check_host, check_origin};
use crate::passthrough::BoxError;
use crate::subjects::Subjects;
use crate::tap::Wire;
use crate::upstream::service::{
    Endpoint, ServiceBody, ServiceOptions, ServiceUpstream, ServiceUpstreamError,
};

/// What can be chosen about a [`RejoinLayer`].
#[derive(Clone)]
pub struct LayerConfig {
    /// What shapes decisions, with all limits.
    pub settings: Settings,
    /// The log and the ledger. `None`: one in memory, which this process does not outlive.
    pub store: Option<Arc<dyn Store>>,
    /// The path that the service is asked for, whatever path clients ask for.
    pub path: String,
    /// The service's name, in logs, in messages to people, and in the scope of dedup tokens and
    /// repeats: with a `store` of your own, name it, and no two services in that store alike. A
    /// service that the same layer is put around later has a number behind it.
    pub name: String,
    /// Headers of the client that the service sees, beside its `Authorization`. In a session, the
    /// service sees requests of Rejoin: other headers, and the extensions, are not passed on.
    pub forward_headers: Vec<HeaderName>,
    /// `Host` values accepted beside the loopback names; without a port, any port is accepted.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values accepted beside the loopback origins.
    pub allowed_origins: Vec<String>,
    /// HTTP status of refusals.
    pub reject_status: RejectStatus,
    /// Which credentials belong to one subject; see also [`Gateway::set_subjects`].
    pub subjects: Subjects,
}

impl Default for LayerConfig {
    /// For loopback clients, of a service whose endpoint is `/`; in memory.
    fn default() -> Self {
        let settings = Settings::default();
        let ServiceOptions { name, forward_headers, .. } =
            ServiceOptions::new(Arc::new(settings.limits.clone()));
        Self {
            settings,
            store: None,
            path: "/".to_owned(),
            name,
            forward_headers,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            reject_status: RejectStatus::default(),
            subjects: Subjects::default(),
        }
    }
}

/// Why a layer cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// Limits that contradict each other.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The log in memory needs a file to spill to.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// A store that others may share, and no name to tell its services apart by.
    #[error(
        "a layer with a store of its own needs a name: set LayerConfig::name, to another one for \
         each service in that store"
    )]
    Unnamed,
    /// The path of the service, or a header that it is to see.
    #[error(transparent)]
    Service(#[from] ServiceUpstreamError),
    /// A value that can be no `Host`, or no `Origin`: it would let nobody in.
    #[error("LayerConfig::{field} holds {value:?}: {error}")]
    Allowed {
        /// `allowed_hosts` or `allowed_origins`.
        field: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        error: AllowError,
    },
    /// The system has no random bytes.
    #[error("the system gives no random bytes: {0}")]
    NoRandomness(getrandom::Error),
}

fn check_allowed(
    field: &'static str,
    values: &[String],
    check: fn(&str) -> Result<String, AllowError>,
) -> Result<(), LayerError> {
    values.iter().try_for_each(|value| match check(value) {
        Ok(_) => Ok(()),
        Err(error) => Err(LayerError::Allowed { field, value: value.clone(), error }),
    })
}

/// Puts a gateway around a service that speaks MCP over HTTP.
///
/// One gateway holds all sessions of its service, so the layer belongs around the whole service,
/// and what comes of it is mounted. It is not `Clone` on purpose: axum's `Router::layer` would put
/// one around each route and each method, and no two of them would know the same sessions.
///
/// ```compile_fail
/// fn is_clone<T: Clone>() {}
/// is_clone::<rejoin_gateway::RejoinLayer>();
/// ```
pub struct RejoinLayer {
    config: LayerConfig,
    store: Arc<dyn Store>,
    endpoint: Endpoint,
    ledger_epoch: u64,
    /// Services it was put around.
    services: AtomicU64,
}

impl fmt::Debug for RejoinLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RejoinLayer").field("name", &self.config.name).finish_non_exhaustive()
    }
}

impl RejoinLayer {
    /// A layer with the defaults of [`LayerConfig`].
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn new() -> Result<Self, LayerError> {
        Self::with(LayerConfig::default())
    }

    /// A layer as chosen.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn with(config: LayerConfig) -> Result<Self, LayerError> {
        let limits = &config.settings.limits;
        limits.check()?;
        check_allowed("allowed_hosts", &config.allowed_hosts, check_host)?;
        check_allowed("allowed_origins", &config.allowed_origins, check_origin)?;
        if config.store.is_some() && config.name == LayerConfig::default().name {
            return Err(LayerError::Unnamed);
        }
        let store = match &config.store {
            Some(store) => Arc::clone(store),
            None => Arc::new(MemoryStore::new(MemoryLimits::from(limits))?),
        };
        let endpoint = Endpoint::new(&config.path, config.forward_headers.clone())?;
        let ledger_epoch = gateway::new_ledger_epoch().map_err(LayerError::NoRandomness)?;
        Ok(Self { config, store, endpoint, ledger_epoch, services: AtomicU64::new(0) })
    }

    /// Puts a gateway around `service`: the MCP service or a router of its own, never a whole
    /// application, of which every path would be the endpoint.
    pub fn layer<S, B>(&self, service: S) -> RejoinService
    where
        S: Service<Request<ServiceBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let settings = Arc::new(self.config.settings.clone());
        let limits = Arc::new(settings.limits.clone());
        let (endpoint, name) = (self.endpoint.clone(), self.name());
        let upstream = ServiceUpstream::at(endpoint, service, name, false, limits);
        let mut config = GatewayConfig::new(settings, Arc::new(upstream), Arc::clone(&self.store));
        config.allowed_hosts.clone_from(&self.config.allowed_hosts);
        config.allowed_origins.clone_from(&self.config.allowed_origins);
        config.reject_status = self.config.reject_status;
        config.subjects = self.config.subjects.clone();
        RejoinService::new(Gateway::mounted(config, self.ledger_epoch))
    }

    /// The next service's name.
    fn name(&self) -> String {
        let name = &self.config.name;
        match self.services.fetch_add(1, Ordering::Relaxed) {
            0 => name.clone(),
            earlier => format!("{name}-{}", earlier + 1),
        }
    }
}

impl<S, B> Layer<S> for RejoinLayer
where
    S: Service<Request<ServiceBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Service = RejoinService;

    fn layer(&self, service: S) -> RejoinService {
        Self::layer(self, service)
    }
}

/// An MCP service whose conversations are kept whole. Clones are the same service.
///
/// It can be mounted anywhere, and be called by any server. One that puts the [`Wire`] of a
/// connection into the request's extensions, as [`serve`](crate::serve) does, lets it see what
/// arrives. Under any other an answer counts as delivered `unobserved_presume_ms` after its
/// connection ended in order (design section 3), which it says once in the log.
#[derive(Clone)]
pub struct RejoinService {
    mounted: Arc<Mounted>,
}

struct Mounted {
    gateway: Gateway,
    /// Housekeeping, from the first request on.
    upkeep: OnceLock<AbortHandle>,
    /// That no socket can be seen is said once.
    blindness: Once,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(upkeep) = self.upkeep.get() {
            upkeep.abort();
        }
    }
}

impl fmt::Debug for RejoinService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RejoinService").finish_non_exhaustive()
    }
}

impl RejoinService {
    fn new(gateway: Gateway) -> Self {
        let (upkeep, blindness) = (OnceLock::new(), Once::new());
        Self { mounted: Arc::new(Mounted { gateway, upkeep, blindness }) }
    }

    /// The gateway in it: to drain it, to watch it, to operate it.
    pub fn gateway(&self) -> &Gateway {
        &self.mounted.gateway
    }

    /// Waits for `signal`, and then drains the gateway: what a server waits for before it stops.
    pub fn drain_on(
        &self,
        signal: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let gateway = self.gateway().clone();
        async move {
            signal.await;
            gateway.drain().await;
        }
    }
}

impl Mounted {
    async fn answer<B: Body<Data = Bytes>>(&self, request: Request<B>) -> Response<AnswerBody> {
        self.upkeep.get_or_init(|| {
            let gateway = self.gateway.clone();
            tokio::spawn(async move { gateway.maintain().await }).abort_handle()
        });
        if request.extensions().get::<Wire>().is_none() {
            self.blindness.call_once(|| {
                let presume_ms = self.gateway.settings().limits.unobserved_presume_ms;
                tracing::info!(
                    presume_ms,
                    "no sockets are seen: an answer counts as delivered {presume_ms} ms after its \
                     stream ended, and a call whose answer was lost may run again when it is \
                     repeated without a token; serve the application over HTTP/1.1 with \
                     rejoin_gateway::serve to see them"
                );
            });
        }
        self.gateway.handle(request).await
    }
}

impl<B> Service<Request<B>> for RejoinService
where
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mounted = Arc::clone(&self.mounted);
        Box::pin(async move { Ok(mounted.answer(request).await) })
    }
}
