//! The listener for a whole application, of which the gateway is a part.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tower_service::Service;

use crate::listen::{self, ListenConfig, Listener};
use crate::passthrough::BoxError;

/// Serves an application over HTTP/1.1 until `shutdown` is ready, and then ends its connections.
///
/// Any tower service will do, an axum `Router` for instance. A [`RejoinLayer`](crate::RejoinLayer)
/// in it finds the socket of each request in the request's extensions
/// ([`Wire`](crate::tap::Wire)), and so knows what the peer's kernel has acknowledged and how the
/// connection ended. What stands between the two must pass bodies on frame by frame: a layer that
/// compresses or collects them makes its own bytes, and nothing is known of those.
///
/// Give it [`RejoinService::drain_on`](crate::RejoinService::drain_on) as `shutdown`: then streams
/// have ended in order before their connections are closed. Connections that are still open
/// `drain_ms` later are cut. Sockets are set up by the default limits; for others see
/// [`serve_with`]. Upgrades of a connection (WebSocket) are not offered.
pub async fn serve<S, B>(listener: impl Listener, app: S, shutdown: impl Future<Output = ()>)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    serve_with(listener, app, ListenConfig::default(), shutdown).await;
}

/// As [`serve`], by the operator's limits (`&Limits` will do), or with HTTP/2 beside HTTP/1.1.
pub async fn serve_with<S, B>(
    listener: impl Listener,
    app: S,
    config: impl Into<ListenConfig>,
    shutdown: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let answer = move |request| {
        let mut app = app.clone();
        async move {
            let ready = poll_fn(|context| app.poll_ready(context)).await;
            let answered = match ready {
                Ok(()) => app.call(request).await,
                Err(never) => Err(never),
            };
            answered.unwrap_or_else(|never| match never {})
        }
    };
    let config = config.into();
    let drain = Duration::from_millis(config.limits.drain_ms);
    let cut = listen::serve(listener, config, answer, shutdown, drain).await;
    if cut > 0 {
        tracing::warn!(connections = cut, "connections were cut");
    }
}
