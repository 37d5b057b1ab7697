//! The operator's side: is it alive, is it ready, what does it count. On a listener of its own.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;

use crate::gateway::Gateway;
use crate::metrics::Place;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

impl Gateway {
    /// Answers a request to the admin address: `/healthz` and `/livez` (the process answers),
    /// `/readyz` (new sessions are taken: it does not stop, and its log can be written), `/metrics`
    /// (OpenMetrics text), `/sessions` (what `rejoin sessions` shows).
    pub async fn admin<B>(&self, request: Request<B>) -> Response<Full<Bytes>> {
        let operated = self.operate(request.method(), request.uri(), request.headers()).await;
        if let Some(response) = operated {
            return response;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET is known here.\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/healthz" | "/livez" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.is_draining() => {
                text(StatusCode::SERVICE_UNAVAILABLE, "about to stop\n")
            }
            "/readyz" if !self.counted().is_writable().await => {
                text(StatusCode::SERVICE_UNAVAILABLE, "the log cannot be written\n")
            }
            "/readyz" => text(StatusCode::OK, "ready\n"),
            "/metrics" => self.metrics_page().await,
            _ => text(StatusCode::NOT_FOUND, "Known: /healthz /livez /readyz /metrics\n"),
        }
    }

    async fn metrics_page(&self) -> Response<Full<Bytes>> {
        self.sample().await;
        match self.metrics().text() {
            Ok(page) => {
                let mut response = answer(StatusCode::OK, page.into());
                response.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
                response
            }
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
        }
    }

    /// Sets the gauges that nobody keeps up to date in between.
    async fn sample(&self) {
        self.registry().sweep();
        let metrics = self.metrics();
        metrics.sessions.set(i64::try_from(self.registry().len()).unwrap_or(i64::MAX));
        match self.store().usage().await {
            Ok(usage) => {
                for (place, bytes) in [
                    ("counted", usage.bytes),
                    ("memory", usage.memory_bytes),
                    ("spilled", usage.spilled_bytes),
                ] {
                    metrics.log_bytes.get_or_create(&Place { place }).set(bytes);
                }
                metrics.tokens.set(usage.tokens);
            }
            Err(error) => tracing::warn!(%error, "the log's usage is not known"),
        }
    }
}

pub(crate) fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = answer(status, Bytes::copy_from_slice(text.as_bytes()));
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}

pub(crate) fn answer(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
