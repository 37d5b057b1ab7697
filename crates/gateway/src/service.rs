//! One HTTP request: let in or not, then to its method (spec EP-1, SEC-1 to SEC-3).

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;

use crate::cors;
use crate::gateway::Gateway;
use crate::respond::{self, AnswerBody};
use crate::tap::Wire;

impl Gateway {
    /// Answers one request to the MCP address. Its extensions may carry the [`Wire`] of its
    /// connection; without one, nothing is known about delivery but what clients say.
    ///
    /// If the returned future is dropped, its client is gone: a POST that was not admitted is
    /// withdrawn, a call that was admitted goes on.
    pub async fn handle<B: Body<Data = Bytes>>(&self, request: Request<B>) -> Response<AnswerBody> {
        self.count_connection(request.extensions().get::<Wire>());
        let path = request.uri().path();
        if path.strip_suffix('/').unwrap_or(path) != self.path() {
            return respond::no_such_path(self.path());
        }
        if let Err(error) = self.allowed().check(request.uri(), request.headers()) {
            if let Some(unlogged) = self.may_log_refusal() {
                tracing::info!(%error, unlogged, "a request was not let in");
            }
            return respond::not_let_in(&error);
        }
        let origin = cors::origin(request.headers());
        let mut response = self.answer(request).await;
        if let Some(origin) = origin {
            cors::expose(&mut response, origin);
        }
        response
    }

    async fn answer<B: Body<Data = Bytes>>(&self, request: Request<B>) -> Response<AnswerBody> {
        match *request.method() {
            Method::POST => self.post(request).await,
            Method::GET => self.get(&request.into_parts().0).await,
            Method::DELETE => self.delete(&request.into_parts().0).await,
            _ if cors::is_preflight(request.method(), request.headers()) => cors::preflight(),
            _ => respond::method_not_allowed(),
        }
    }

    /// Counts a TCP connection from its first request to its end.
    fn count_connection(&self, wire: Option<&Wire>) {
        let Some(wire) = wire.filter(|wire| wire.exchange() == 1) else { return };
        let (wire, connections) = (wire.clone(), self.metrics().connections.clone());
        connections.inc();
        tokio::spawn(async move {
            wire.ended().await;
            connections.dec();
        });
    }
}
