//! The listener: accepts, sets up each socket, serves HTTP/1.1 on it, or HTTP/2 where that is
//! switched on, and ends it (design section 6).

mod http1;
mod http2;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use rejoin_core::limits::Limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use crate::passthrough::BoxError;
use crate::tap::{Protocol, Tap, Transport, TransportOptions};

/// Pause after the system refused to accept, for instance because no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How a listener serves.
#[derive(Clone, Debug, Default)]
pub struct ListenConfig {
    /// What connections and requests may take.
    pub limits: Limits,
    /// HTTP/2 too, for clients that begin with it (prior knowledge, clear text). On its connections
    /// nothing is seen of delivery.
    pub http2: bool,
}

impl From<&Limits> for ListenConfig {
    /// HTTP/1.1 alone.
    fn from(limits: &Limits) -> Self {
        Self { limits: limits.clone(), http2: false }
    }
}

/// Why no listener could be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is in use, foreign or forbidden.
    #[error("cannot listen on {address}: {source}; choose another address or free this one")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// Listens on `address` and returns the address bound, which names the port if 0 was asked for.
pub async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let refused = |source| BindError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

/// Where connections come from.
pub trait Listener: Send {
    /// What they run over.
    type Transport: Transport;

    /// Accepts the next connection. A future that is dropped loses none.
    ///
    /// # Errors
    /// Of one connection (its client was gone already), or of the system, which may pass.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Transport>> + Send;
}

impl Listener for TcpListener {
    type Transport = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        Self::accept(self).await.map(|(stream, _peer)| stream)
    }
}

/// Serves connections of `listener` until `shutdown` is ready, then ends them.
///
/// `service` answers each request; its extensions carry the [`Wire`](crate::tap::Wire) of the
/// connection (of HTTP/2 a [`SharedWire`](crate::tap::SharedWire)), on which it was already counted
/// as started. Its future is dropped the moment the client goes, or resets that stream, and so is
/// the response body.
///
/// At `shutdown` nothing more is accepted and idle connections end, those of HTTP/2 are told to
/// (GOAWAY). Running responses go on: the caller ends them. Connections still open after `drain`
/// are cut; their number is returned.
/// A connection that fails or panics ends alone. Dropping the future cuts every connection.
pub async fn serve<L, S, F, B>(
    listener: L,
    config: impl Into<ListenConfig>,
    service: S,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) -> usize
where
    L: Listener,
    S: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = Arc::new(service);
    let (stop, _) = watch::channel(false);
    let config = config.into();
    let connections_max = config.limits.connections_max;
    let settings = Settings::new(&config);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let has_room = connections.len() < connections_max;
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => log_end(ended),
            stream = accept(&listener), if has_room => {
                let service = Arc::clone(&service);
                let connection = settings.clone().converse(stream, service, stop.subscribe());
                connections.spawn(connection);
            }
        }
    }
    drop(listener);
    stop.send_replace(true);
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            log_end(ended);
        }
    };
    // Either way the rest is counted and cut below.
    let _in_time = timeout(drain, all_ended).await.is_ok();
    let cut = connections.len();
    connections.shutdown().await;
    cut
}

/// Accepts the next connection; survives every error of the system.
async fn accept<L: Listener>(listener: &L) -> L::Transport {
    loop {
        match listener.accept().await {
            Ok(stream) => return stream,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::debug!(%error, "cannot accept connections, trying again");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The client was gone before its connection was accepted (accept(2)).
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted | Kind::ConnectionReset | Kind::ConnectionRefused
    )
}

fn log_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::debug!("a connection ended by a panic");
    }
}

/// What every connection needs.
#[derive(Clone)]
struct Settings {
    http1: http1::Settings,
    /// `None`: switched off.
    http2: Option<http2::Settings>,
    /// Time until a connection says something.
    silence: Duration,
    transport: TransportOptions,
    linger: Duration,
    /// True once a socket could not be set up: the next ones will fail in the same way.
    has_failed: Arc<AtomicBool>,
}

impl Settings {
    fn new(config: &ListenConfig) -> Self {
        let ListenConfig { limits, http2 } = config;
        Self {
            http1: http1::Settings::new(limits),
            http2: http2.then(|| http2::Settings::new(limits)),
            silence: Duration::from_millis(limits.request_head_max_ms),
            transport: TransportOptions::new(limits),
            // After this long a reset no longer counts.
            linger: Duration::from_millis(limits.reset_window_ms),
            has_failed: Arc::default(),
        }
    }

    /// Serves one connection to its end, then watches how the peer takes the end.
    async fn converse<S, F, B>(
        self,
        stream: impl Transport,
        service: Arc<S>,
        mut stop: watch::Receiver<bool>,
    ) where
        S: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if let Err(error) = stream.prepare(&self.transport) {
            // A client that has left already fails so too, but what every socket refuses is news.
            if self.has_failed.swap(true, Ordering::Relaxed) {
                tracing::debug!(%error, "a connection ended before it was set up");
            } else {
                tracing::warn!(%error, "a connection ended before it was set up (told once)");
            }
            return;
        }
        let tap = Tap::new(stream);
        let (wire, linger) = (tap.wire(), tap.linger());
        tokio::select! {
            ended = self.exchanges(tap, &*service, &mut stop) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended in the middle of an exchange");
                }
            }
            () = linger.abandoned() => tracing::debug!("a client left, with a request unread"),
            () = wire.to_be_cut() => {
                tracing::debug!("a connection is cut: its client did not take the stream's end");
                return linger.cut();
            }
        }
        let longest = self.linger;
        tokio::select! {
            () = linger.watch(longest) => {}
            // Nobody is left to judge a reset, but the last bytes still have to arrive.
            () = stopped(&mut stop) => { let _ = timeout(longest, linger.acked()).await; }
        }
    }

    /// What the peer begins with; `None`: nothing yet, and the listener stops.
    async fn protocol(
        &self,
        tap: &mut Tap,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Option<Protocol>, BoxError> {
        tokio::select! {
            protocol = timeout(self.silence, tap.protocol()) => Ok(Some(protocol??)),
            () = stopped(stop) => Ok(None),
        }
    }

    async fn exchanges<S, F, B>(
        &self,
        mut tap: Tap,
        service: &S,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), BoxError>
    where
        S: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Some(protocol) = self.protocol(&mut tap, stop).await? else { return Ok(()) };
        match (protocol, &self.http2) {
            (Protocol::Http1, _) => self.http1.exchanges(tap, service, stop).await?,
            (Protocol::Http2, Some(http2)) => http2.exchanges(tap, service, stop).await?,
            (Protocol::Http2, None) => http2::refuse(tap).await?,
        }
        Ok(())
    }
}

/// Waits until the listener was told to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender lives as long as this task; its absence would mean stop too.
    let _stop = stop.wait_for(|is_stopping| *is_stopping).await.is_ok();
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Mutex, PoisonError};

    use http_body_util::Full;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// What is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_setting_that_every_socket_refuses_is_told_once() {
        let log = Log::default();
        let writer = log.clone();
        let logging = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let _logging = tracing::subscriber::set_default(logging);
        // What `Limits::check` would have refused.
        let mut limits = Limits::default();
        limits.tcp_keepalive_probes = 200;
        let (listener, address) = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let service = |_| async { Response::new(Full::new(Bytes::new())) };
        let clients = async {
            for _ in 0..3 {
                let mut client = TcpStream::connect(address).await.unwrap();
                let read =
                    timeout(Duration::from_secs(10), client.read(&mut [0; 1])).await.unwrap();
                assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
            }
        };
        serve(listener, &limits, service, clients, Duration::from_secs(10)).await;
        let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(logged.matches("WARN").count(), 1, "{logged}");
        assert!(logged.contains("ended before it was set up (told once)"), "{logged}");
    }
}
