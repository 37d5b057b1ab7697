//! The HTTP/1.1 listener: accepts, sets up each socket, serves it, and ends it (design section 6).

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rejoin_core::limits::Limits;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use crate::tap::{Tap, Wire};

/// Pause after the system refused to accept, for instance because no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The smallest buffer that hyper takes; it panics on less.
const BUFFER_BYTES_MIN: usize = 8 * 1024;

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

/// Serves connections of `listener` until `shutdown` is ready, then ends them.
///
/// `service` answers each request; the request's extensions carry the [`Wire`] of its connection,
/// on which the request was already counted as started. It is called in the connection's task:
/// its future is dropped the moment the client goes, and so is the response body.
///
/// At `shutdown` nothing more is accepted and idle connections end. Running responses go on: the
/// caller ends them. Connections still open after `drain` are cut; their number is returned.
/// A connection that fails or panics ends alone. Dropping the future cuts every connection.
pub async fn serve<S, F, B>(
    listener: TcpListener,
    limits: &Limits,
    service: S,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) -> usize
where
    S: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = Arc::new(service);
    let (stop, _) = watch::channel(false);
    let settings = Settings::new(limits);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let has_room = connections.len() < limits.connections_max;
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
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _peer)) => return stream,
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
    http: http1::Builder,
    user_timeout: Duration,
    keepalive: TcpKeepalive,
    linger: Duration,
}

impl Settings {
    fn new(limits: &Limits) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(Duration::from_millis(limits.request_head_max_ms))
            .keep_alive(true)
            // A client that ends its side is gone: its response body is dropped at once.
            .half_close(false)
            .max_headers(limits.request_headers_max)
            .max_header_size(limits.request_head_bytes_max)
            // Of an answer it buffers as much, and at most one frame beyond that.
            .max_buf_size(limits.connection_buffer_bytes_max.max(BUFFER_BYTES_MIN));
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_millis(limits.tcp_keepalive_time_ms))
            .with_interval(Duration::from_millis(limits.tcp_keepalive_interval_ms))
            .with_retries(limits.tcp_keepalive_probes);
        Self {
            http,
            user_timeout: Duration::from_millis(limits.tcp_user_timeout_ms),
            keepalive,
            // After this long a reset no longer counts.
            linger: Duration::from_millis(limits.reset_window_ms),
        }
    }

    /// Small events leave at once (`TCP_NODELAY`), a path that went dead is noticed with bytes in
    /// flight (`TCP_USER_TIMEOUT`) and without (keep-alive probes).
    fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        socket.set_tcp_user_timeout(Some(self.user_timeout))?;
        socket.set_tcp_keepalive(&self.keepalive)
    }

    /// Serves one connection to its end, then watches how the peer takes the end.
    async fn converse<S, F, B>(
        self,
        stream: TcpStream,
        service: Arc<S>,
        mut stop: watch::Receiver<bool>,
    ) where
        S: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if let Err(error) = self.prepare(&stream) {
            tracing::debug!(%error, "a connection ended before it was set up");
            return;
        }
        let tap = Tap::new(stream);
        let (wire, linger) = (tap.wire(), tap.linger());
        tokio::select! {
            ended = self.exchanges(tap, &wire, &*service, &mut stop) => {
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

    async fn exchanges<S, F, B>(
        &self,
        tap: Tap,
        wire: &Wire,
        service: &S,
        stop: &mut watch::Receiver<bool>,
    ) -> hyper::Result<()>
    where
        S: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<B>>,
        B: Body<Data = Bytes> + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let answer = service_fn(|mut request: Request<Incoming>| {
            wire.start_exchange();
            request.extensions_mut().insert(wire.clone());
            let response = service(request);
            async move { Ok::<_, Infallible>(response.await) }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(tap), answer));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = stopped(stop) => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }
}

/// Waits until the listener was told to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender lives as long as this task; its absence would mean stop too.
    let _stop = stop.wait_for(|is_stopping| *is_stopping).await.is_ok();
}
