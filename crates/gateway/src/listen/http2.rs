//! HTTP/2 on a connection that began with it (RFC 9113), in clear text.
//!
//! Nothing is seen of its delivery: a request carries a [`SharedWire`] in place of a
//! [`Wire`](crate::tap::Wire), so that its stream moves by the client's own word and by its clean
//! end alone (design section 3).

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rejoin_core::limits::Limits;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::time::timeout;

use super::stopped;
use crate::passthrough::BoxError;
use crate::tap::{SharedWire, Tap};

/// The largest window (RFC 9113 section 6.9.1).
const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
/// What a client is told that speaks HTTP/2 where it is off.
const OFF: &[u8] = b"HTTP/2 is not switched on at this address. Use HTTP/1.1, or for MCP clients \
    start Rejoin with HTTP/2 switched on (rejoin serve --http2).";
/// `HTTP_1_1_REQUIRED` (RFC 9113 section 7).
const HTTP_1_1_REQUIRED: u32 = 0x0d;

/// What every HTTP/2 connection needs.
#[derive(Clone)]
pub(super) struct Settings {
    http: http2::Builder<TokioExecutor>,
    headers_max: usize,
    idle: Duration,
}

impl Settings {
    pub(super) fn new(limits: &Limits) -> Self {
        let window_bytes = limits.http2.unread_bytes_max.min(WINDOW_BYTES_MAX);
        let u32_of = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .max_concurrent_streams(limits.http2.streams_max)
            .max_header_list_size(u32_of(limits.request_head_bytes_max))
            .initial_stream_window_size(window_bytes)
            .initial_connection_window_size(window_bytes)
            // Beyond the client's window a stream has this, and at most one frame more.
            .max_send_buf_size(u32_of(limits.connection_buffer_bytes_max) as usize)
            .max_pending_accept_reset_streams(limits.http2.early_resets_max)
            .max_local_error_reset_streams(limits.http2.refused_max)
            .keep_alive_interval(Duration::from_millis(limits.http2.ping_ms))
            .keep_alive_timeout(Duration::from_millis(limits.http2.ping_answer_ms));
        Self {
            http,
            headers_max: limits.request_headers_max,
            idle: Duration::from_millis(limits.request_head_max_ms),
        }
    }

    /// Serves one connection to its end. It is told to end (GOAWAY) at `stop`, and when it was idle
    /// for too long; streams that it has then go on.
    pub(super) async fn exchanges<S, F, B>(
        &self,
        tap: Tap,
        service: &S,
        stop: &mut watch::Receiver<bool>,
    ) -> hyper::Result<()>
    where
        S: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let wire = tap.wire();
        let open = Open::default();
        let answer = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(SharedWire::start_exchange(&wire));
            let has_too_many = request.headers().len() > self.headers_max;
            let response = (!has_too_many).then(|| service(request));
            let stream = open.stream();
            async move {
                let (head, body) = match response {
                    Some(response) => {
                        let (head, body) = response.await.into_parts();
                        (head, Some(Box::pin(body)))
                    }
                    None => (too_many_headers(), None),
                };
                Ok::<_, Infallible>(Response::from_parts(head, StreamBody { body, _open: stream }))
            }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(tap), answer));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = stopped(stop) => {}
            () = open.idle(self.idle) => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    }
}

fn too_many_headers() -> http::response::Parts {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    response.into_parts().0
}

/// Says, in frames, that only HTTP/1.1 is spoken here: an empty SETTINGS, and a GOAWAY of no stream
/// with the reason (RFC 9113 sections 3.4 and 6.8).
pub(super) async fn refuse(mut tap: Tap) -> io::Result<()> {
    let mut frames = Vec::with_capacity(9 + 9 + 8 + OFF.len());
    frames.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let [.., high, low] = (8 + OFF.len()).to_be_bytes();
    frames.extend_from_slice(&[0, high, low, 7, 0, 0, 0, 0, 0]);
    frames.extend_from_slice(&0_u32.to_be_bytes());
    frames.extend_from_slice(&HTTP_1_1_REQUIRED.to_be_bytes());
    frames.extend_from_slice(OFF);
    tap.write_all(&frames).await
}

/// How many requests a connection has open.
#[derive(Default)]
struct Open(watch::Sender<usize>);

impl Open {
    /// One more, until the guard is dropped.
    fn stream(&self) -> OpenStream {
        self.0.send_modify(|open| *open += 1);
        OpenStream(self.0.clone())
    }

    /// Waits until none was open for so long.
    async fn idle(&self, longest: Duration) {
        let mut open = self.0.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _none = open.wait_for(|open| *open == 0).await.is_ok();
            if timeout(longest, open.wait_for(|open| *open > 0)).await.is_err() {
                return;
            }
        }
    }
}

struct OpenStream(watch::Sender<usize>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// The body of an answer, with the word that its request is open.
struct StreamBody<B> {
    /// `None`: there is none.
    body: Option<Pin<Box<B>>>,
    _open: OpenStream,
}

impl<B: Body> Body for StreamBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match &mut self.body {
            Some(body) => body.as_mut().poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}
