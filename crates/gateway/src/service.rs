//! One HTTP request: let in or not, then to its method (spec EP-1, SEC-1 to SEC-3).

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS,
};
use http::{Extensions, HeaderMap, Method, Request, Response};
use http_body::Body;

use crate::cors;
use crate::gateway::Gateway;
use crate::http2;
use crate::passthrough::{self, Target};
use crate::respond::{self, AnswerBody};
use crate::tap::{SharedWire, Wire};

impl Gateway {
    /// Answers one request to the MCP address. Its extensions may carry the [`Wire`] of its
    /// connection; without one, nothing is known about delivery but what clients say.
    ///
    /// If the returned future is dropped, its client is gone: a POST that was not admitted is
    /// withdrawn, a call that was admitted goes on.
    pub async fn handle<B: Body<Data = Bytes>>(
        &self,
        mut request: Request<B>,
    ) -> Response<AnswerBody> {
        self.count_connection(request.extensions());
        http2::as_of_http1(&mut request);
        let Some(target) = self.target(request.uri().path()) else {
            return respond::no_such_path(self.path());
        };
        if let Err(error) = self.allowed().check(request.uri(), request.headers()) {
            if let Some(unlogged) = self.may_log_refusal() {
                tracing::info!(%error, unlogged, "a request was not let in");
            }
            return respond::not_let_in(&error);
        }
        let origin = cors::origin(request.headers());
        let mut response = self.answer(request, target).await;
        // A server whose answer is passed through may have said itself who may read it.
        let is_said = response.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN);
        if let Some(origin) = origin
            && !is_said
        {
            cors::expose(&mut response, origin);
        }
        response
    }

    /// Answers one request to the address of gateways that stand side by side, as
    /// [`handle`](Self::handle) does: the first of them whose endpoint the request names.
    pub async fn handle_among<B: Body<Data = Bytes>>(
        gateways: &[Self],
        request: Request<B>,
    ) -> Response<AnswerBody> {
        let path = request.uri().path();
        // No server takes over another's endpoint, or a path that another announced, by
        // announcing it.
        let mut announcing = gateways.iter().filter(|gateway| gateway.target(path).is_some());
        let named = match gateways.iter().find(|gateway| gateway.is_endpoint(path)) {
            Some(gateway) => Some(gateway),
            None => announcing.next().filter(|_| announcing.next().is_none()),
        };
        match (named, gateways) {
            // One alone says where it is.
            (Some(gateway), _) | (None, [gateway]) => gateway.handle(request).await,
            (None, _) => {
                if let Some(gateway) = gateways.first() {
                    gateway.count_connection(request.extensions());
                }
                respond::no_such_path("/NAME/mcp, with the NAME of a configured server")
            }
        }
    }

    /// Where a request to this path goes; `None`: nowhere.
    fn target(&self, path: &str) -> Option<Target> {
        if self.is_endpoint(path) {
            return Some(Target::Endpoint);
        }
        self.passing().announced(path)
    }

    pub(crate) fn is_endpoint(&self, path: &str) -> bool {
        self.is_mounted() || path.strip_suffix('/').unwrap_or(path) == self.path()
    }

    async fn answer<B: Body<Data = Bytes>>(
        &self,
        request: Request<B>,
        target: Target,
    ) -> Response<AnswerBody> {
        let headers = request.headers();
        if cors::is_preflight(request.method(), headers) {
            return self.preflight(headers);
        }
        if let Some(way) = self.passthrough() {
            let is_passed = match (&target, request.method()) {
                (Target::Announced(_), method) => method == Method::POST,
                (Target::Endpoint, &Method::GET | &Method::DELETE) => {
                    passthrough::has_no_session(headers)
                }
                (Target::Endpoint, _) => false,
            };
            if is_passed {
                return self.pass_unread(way, request, target).await;
            }
        }
        if target != Target::Endpoint {
            return respond::method_not_allowed();
        }
        match *request.method() {
            Method::POST => self.post(request).await,
            Method::GET => self.get(&request.into_parts().0).await,
            Method::DELETE => self.delete(&request.into_parts().0).await,
            _ => respond::method_not_allowed(),
        }
    }

    /// What a browser may send. Requests that are passed through may have any header (spec 3.1).
    fn preflight(&self, headers: &HeaderMap) -> Response<AnswerBody> {
        let mut response = cors::preflight();
        if self.passthrough().is_some()
            && let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS)
        {
            response.headers_mut().insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        response
    }

    /// Counts a TCP connection from its first request to its end.
    fn count_connection(&self, extensions: &Extensions) {
        let (wire, exchange) = match (extensions.get::<Wire>(), extensions.get::<SharedWire>()) {
            (Some(wire), _) => (wire, wire.exchange()),
            (None, Some(shared)) => (shared.connection(), shared.exchange()),
            (None, None) => return,
        };
        if exchange != 1 {
            return;
        }
        let (wire, connections) = (wire.clone(), self.metrics().connections.clone());
        connections.inc();
        tokio::spawn(async move {
            wire.ended().await;
            connections.dec();
        });
    }
}
