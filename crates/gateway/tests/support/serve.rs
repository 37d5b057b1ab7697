//! A gateway on a socket of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::settings::Settings;
use rejoin_gateway::config::GatewayConfig;
use rejoin_gateway::gateway::Gateway;
use rejoin_gateway::listen::{self, ListenConfig};
use rejoin_gateway::upstream::Upstream;
use rejoin_store::{MemoryLimits, MemoryStore, Store};
use rejoin_testkit::failure::Failure;
use tokio::task::JoinHandle;

/// Time that connections get at the end of a test's gateway.
pub(crate) const CONNECTIONS_END: Duration = Duration::from_secs(5);

/// Starts a gateway in front of `upstream`; whoever aborts the task ends it at once.
pub(crate) async fn serve(
    upstream: Arc<dyn Upstream>,
    settings: Settings,
) -> Result<(Gateway, SocketAddr, JoinHandle<()>), Failure> {
    let config = ListenConfig::from(&settings.limits);
    serve_by(config, upstream, settings).await
}

/// As [`serve`], by a listener as chosen.
pub(crate) async fn serve_by(
    config: ListenConfig,
    upstream: Arc<dyn Upstream>,
    settings: Settings,
) -> Result<(Gateway, SocketAddr, JoinHandle<()>), Failure> {
    let store = Arc::new(MemoryStore::new(MemoryLimits::from(&settings.limits))?);
    serve_from(store, config, upstream, settings).await
}

/// As [`serve_by`], with a log of the test's choice.
pub(crate) async fn serve_from(
    store: Arc<dyn Store>,
    config: ListenConfig,
    upstream: Arc<dyn Upstream>,
    settings: Settings,
) -> Result<(Gateway, SocketAddr, JoinHandle<()>), Failure> {
    let gateway = Gateway::new(GatewayConfig::new(Arc::new(settings), upstream, store))?;
    let (listener, address) = listen::bind("127.0.0.1:0".parse()?).await?;
    let face = gateway.clone();
    let serving = tokio::spawn(async move {
        let stopping = face.clone();
        let handle = move |request| {
            let gateway = face.clone();
            async move { gateway.handle(request).await }
        };
        listen::serve(listener, config, handle, stopping.stopping(), CONNECTIONS_END).await;
    });
    Ok((gateway, address, serving))
}

/// The value of a metric on a page, by its name with labels.
pub(crate) fn value(page: &str, name: &str) -> Option<f64> {
    let values = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.filter_map(|value| value.parse().ok()).next()
}
