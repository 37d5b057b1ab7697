//! HTTP/1.1 on a connection, with the evidence of its socket.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rejoin_core::limits::Limits;
use tokio::sync::watch;

use super::stopped;
use crate::passthrough::BoxError;
use crate::tap::Tap;

/// The smallest buffer that hyper takes; it panics on less.
const BUFFER_BYTES_MIN: usize = 8 * 1024;

/// What every HTTP/1.1 connection needs.
#[derive(Clone)]
pub(super) struct Settings {
    http: http1::Builder,
}

impl Settings {
    pub(super) fn new(limits: &Limits) -> Self {
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
        Self { http }
    }

    /// Serves one connection to its end. At `stop` it ends with the answer that it has.
    pub(super) async fn exchanges<S, F, B>(
        &self,
        tap: Tap,
        service: &S,
        stop: &mut watch::Receiver<bool>,
    ) -> hyper::Result<()>
    where
        S: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<B>>,
        B: Body<Data = Bytes> + 'static,
        B::Error: Into<BoxError>,
    {
        let wire = tap.wire();
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
