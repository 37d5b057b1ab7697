//! `rejoin serve`: the options of a gateway, its start, its one line of output and its end.

mod limits;
mod options;
mod storage;
mod subjects;
pub(crate) mod upstream;

use std::error::Error;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::settings::Settings;
use rejoin_gateway::config::{self, GatewayConfig};
use rejoin_gateway::gateway::Gateway;
use rejoin_gateway::listen::{self, BindError, ListenConfig};
use rejoin_gateway::upstream::Upstream;
use rejoin_gateway::upstream::stdio::Children;
use rejoin_store::sqlite::OpenError;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::args::{RejectStatus, ServeArgs};
use crate::limit::{self, LimitArgument};
use crate::signals::Signals;
use limits::LimitOptionsError;
pub(crate) use options::{ServeOptions, Served};
use subjects::{Reread, SubjectsFileError};
use upstream::UpstreamError;

/// Why `rejoin serve` could not start, or ended badly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// A listener beyond loopback without any authentication.
    #[error(
        "{option} {address} can be reached from other machines, and no authentication is \
         configured. Listen on 127.0.0.1, or {remedy} to let anyone who reaches the port use the \
         tools"
    )]
    Unauthenticated {
        /// The option at fault.
        option: String,
        /// Its value.
        address: SocketAddr,
        /// How that is allowed where the option was set.
        remedy: &'static str,
    },
    /// Both listeners have the same address.
    #[error(
        "{listen} and {admin} are both {address}: give each a port of its own, as two listeners \
         cannot share one"
    )]
    SameAddress {
        /// The option of the MCP endpoint.
        listen: String,
        /// The option of the operator's address.
        admin: String,
        /// The address of the latter.
        address: SocketAddr,
    },
    /// The limits cannot be used.
    #[error(transparent)]
    Limits(#[from] LimitOptionsError),
    /// An address cannot be listened on.
    #[error("{option}")]
    Listen {
        /// The option that names it.
        option: String,
        /// Which, why, and what to do.
        source: BindError,
    },
    /// The data directory cannot be used.
    #[error("{option}")]
    Data {
        /// The option that names it.
        option: String,
        /// Which, why, and what to do.
        source: OpenError,
    },
    /// The MCP server cannot be used as it is named.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The operator's map of credentials cannot be used.
    #[error(transparent)]
    Subjects(#[from] SubjectsFileError),
    /// There is nothing to stand in front of.
    #[error("no MCP server is named: name one with --upstream, after `--`, or in a file")]
    NoServer,
    /// The runtime or the signal handlers could not be set up.
    #[error("cannot start")]
    Runtime(#[source] std::io::Error),
    /// The line with the URL could not be printed.
    #[error("cannot print the URL on standard output")]
    Announce(#[source] std::io::Error),
    /// The gateway could not start, or failed while it ran.
    #[error("the gateway failed")]
    Gateway(#[source] Box<dyn Error + Send + Sync>),
}

/// How a gateway ended.
type GatewayResult = Result<(), Box<dyn Error + Send + Sync>>;

/// A started gateway, as [`run`] needs it.
struct Running {
    /// The address that was bound, with its real port.
    address: SocketAddr,
    /// Asks for the graceful end: no new work, running calls may finish within `drain_ms`.
    stop: oneshot::Sender<()>,
    /// Ends when the gateway and all its children have. Dropping it ends the children at once.
    ended: Pin<Box<dyn Future<Output = GatewayResult> + Send>>,
}

/// Time that connections get, once their streams have ended, before they are cut.
const CONNECTIONS_END: Duration = Duration::from_secs(5);

/// Time that the runtime gets to drop its tasks, and with them what they started.
const RUNTIME_END: Duration = Duration::from_secs(1);

/// The one place where the command line meets the gateway.
async fn start_gateway(options: &ServeOptions) -> Result<Running, ServeError> {
    tracing::debug!(?options, "starting the gateway");
    let bytes_max = options.settings.limits.subjects_file_bytes_max;
    let subjects = options.subjects.clone();
    let reread = subjects.map(|path| Reread::install(path, bytes_max)).transpose();
    let reread = reread.map_err(ServeError::Runtime)?;
    let gateways = build(options)?;
    storage::recover(&gateways.all).await?;
    for missing in missing(options) {
        tracing::warn!("{missing}; until then every initialize fails");
    }
    let option = |setting, option| options.origins.name(setting, option);
    let (listener, address) = bind(option("listen", "--listen"), options.listen).await?;
    let (admin_listener, admin_address) = bind(option("admin", "--admin"), options.admin).await?;
    tracing::info!("admin on http://{admin_address}");
    let (stop, stopped) = oneshot::channel();
    let config = ListenConfig { limits: options.settings.limits.clone(), http2: options.http2 };
    if config.http2 {
        let presume_ms = config.limits.unobserved_presume_ms;
        tracing::info!(presume_ms, "HTTP/2 is on: what arrives there is not seen");
    }
    let ended = Box::pin(async move {
        let rereading = async {
            match reread {
                Some(reread) => reread.run(&gateways.first).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = serve_until(stopped, &gateways, config, listener, admin_listener) => {}
            () = rereading => {}
        }
        Ok(())
    });
    Ok(Running { address, stop, ended })
}

async fn bind(
    option: String,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), ServeError> {
    listen::bind(address).await.map_err(|source| ServeError::Listen { option, source })
}

fn failed(error: impl Error + Send + Sync + 'static) -> ServeError {
    ServeError::Gateway(error.into())
}

/// One gateway for each server.
struct Gateways {
    /// What it does for the end and the operator, it does for all.
    first: Gateway,
    all: Arc<[Gateway]>,
}

fn build(options: &ServeOptions) -> Result<Gateways, ServeError> {
    let limits = Arc::new(options.settings.limits.clone());
    let children = Children::new(&limits);
    let mut gateways: Vec<Gateway> = Vec::new();
    for server in &options.servers {
        let upstream = server.upstream.build(&limits, &children)?;
        let settings = Arc::new(server.settings(&options.settings));
        let gateway = match gateways.first() {
            Some(first) => first.beside(server.path.clone(), settings, upstream),
            None => Gateway::new(config(options, settings, upstream, &server.path)?),
        };
        gateways.push(gateway.map_err(failed)?);
    }
    if let Some(file) = &options.file_without_server {
        tracing::warn!(
            "-c {} names no MCP server, nor does the command line: the built-in tool server is \
             served, which is for demonstration only; set `command`, `upstream` or `servers`",
            file.display()
        );
    }
    let first = gateways.first().cloned().ok_or(ServeError::NoServer)?;
    Ok(Gateways { first, all: gateways.into() })
}

/// What sessions would need and is not there.
fn missing(options: &ServeOptions) -> impl Iterator<Item = UpstreamError> {
    let limits = Arc::new(options.settings.limits.clone());
    options.servers.iter().filter_map(move |server| server.upstream.find(&limits).err())
}

fn config(
    options: &ServeOptions,
    settings: Arc<Settings>,
    upstream: Arc<dyn Upstream>,
    path: &str,
) -> Result<GatewayConfig, ServeError> {
    let limits = &settings.limits;
    let store = storage::open(options, limits)?;
    let bytes_max = limits.subjects_file_bytes_max;
    let mut config = GatewayConfig::new(settings, upstream, store);
    path.clone_into(&mut config.path);
    config.allowed_hosts.clone_from(&options.allow_hosts);
    config.allowed_origins.clone_from(&options.allow_origins);
    if let Some(file) = &options.subjects {
        config.subjects = subjects::read(file, bytes_max)?;
    }
    config.reject_status = match options.reject_status {
        RejectStatus::Auto => config::RejectStatus::Auto,
        RejectStatus::Conflict => config::RejectStatus::Conflict,
        RejectStatus::Ok => config::RejectStatus::Ok,
    };
    Ok(config)
}

/// Serves both addresses until `stopped`, then ends everything in order. The admin address answers
/// to the end.
async fn serve_until(
    stopped: oneshot::Receiver<()>,
    gateways: &Gateways,
    config: ListenConfig,
    listener: TcpListener,
    admin_listener: TcpListener,
) {
    let gateway = &gateways.first;
    let faces = Arc::clone(&gateways.all);
    let handle = move |request| {
        let gateways = Arc::clone(&faces);
        async move { Gateway::handle_among(&gateways, request).await }
    };
    let operated = gateway.clone();
    let admin = move |request| {
        let gateway = operated.clone();
        async move { gateway.admin(request).await }
    };
    let admin_config = ListenConfig::from(&config.limits);
    let served = listen::serve(listener, config, handle, gateway.stopping(), CONNECTIONS_END);
    let ended = async {
        // Whoever could have told is gone: that means the same.
        let _told = stopped.await.is_ok();
        gateway.drain().await;
    };
    let working = async {
        let (cut, (), ()) = tokio::join!(served, ended, gateway.maintain());
        if cut > 0 {
            tracing::warn!(connections = cut, "connections were cut");
        }
    };
    let forever = std::future::pending();
    tokio::select! {
        () = working => {}
        _ = listen::serve(admin_listener, admin_config, admin, forever, CONNECTIONS_END) => {}
    }
}

/// `rejoin serve`, from its arguments to the exit status.
///
/// # Errors
/// See [`ServeError`].
pub(crate) fn run_from(args: ServeArgs) -> Result<ExitCode, ServeError> {
    if args.limits.contains(&LimitArgument::Help) {
        // Whoever reads it may have enough before its end.
        let _read = std::io::stdout().write_all(limit::table().as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let is_check = args.check;
    let options = ServeOptions::from_args(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?;
    let result =
        runtime.block_on(async { if is_check { check(&options) } else { run(options).await } });
    // Drops every task, which kills the servers that are still there. A blocking read that never
    // returns must not keep a finished process alive.
    runtime.shutdown_timeout(RUNTIME_END);
    result
}

/// Builds what would be served, and says so.
fn check(options: &ServeOptions) -> Result<ExitCode, ServeError> {
    let _built = build(options)?;
    let missing: Vec<String> = missing(options).map(|error| error.to_string()).collect();
    if !missing.is_empty() {
        return Err(UpstreamError::Missing { told: missing.join("\n") }.into());
    }
    let mut said = String::from("The options are valid. With them:\n");
    for server in &options.servers {
        said.push_str(&format!("{}\n", announcement(options.listen, server)));
    }
    said.push_str(&format!("Rejoin answers its operator on http://{}\n", options.admin));
    std::io::stdout().write_all(said.as_bytes()).map_err(ServeError::Announce)?;
    Ok(ExitCode::SUCCESS)
}

/// Serves until a signal ends it: the first gracefully, a second at once.
///
/// # Errors
/// See [`ServeError`].
pub(crate) async fn run(options: ServeOptions) -> Result<ExitCode, ServeError> {
    // With a file to read again, SIGHUP asks for that alone.
    let hangup_ends = options.subjects.is_none();
    let mut signals = Signals::install(hangup_ends).map_err(ServeError::Runtime)?;
    let Running { address, stop, mut ended } = start_gateway(&options).await?;
    announce(address, &options.servers).map_err(ServeError::Announce)?;
    let signal = tokio::select! {
        result = &mut ended => return finish(result),
        signal = signals.next() => signal,
    };
    let drain_ms = options.settings.limits.drain_ms;
    tracing::info!(?signal, drain_ms, "ending; a second signal ends at once");
    // The receiver is gone only if the gateway has ended already, and then `ended` says so.
    let _ = stop.send(());
    tokio::select! {
        result = &mut ended => finish(result),
        signal = signals.next_at_once() => {
            tracing::warn!(?signal, "ending at once");
            drop(ended);
            Ok(ExitCode::from(signal.exit_status()))
        }
    }
}

fn finish(result: GatewayResult) -> Result<ExitCode, ServeError> {
    result.map(|()| ExitCode::SUCCESS).map_err(ServeError::Gateway)
}

/// Prints a line for each server: the only ones that `serve` ever writes to standard output.
fn announce(address: SocketAddr, servers: &[Served]) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    for server in servers {
        writeln!(stdout, "{}", announcement(address, server))?;
    }
    stdout.flush()
}

fn announcement(address: SocketAddr, server: &Served) -> String {
    format!(
        "Rejoin listens on http://{address}{} in front of: {}",
        server.path,
        server.upstream.describe()
    )
}

#[cfg(test)]
mod tests;
