//! Requests that are passed through: one client request, one request to the server.
use std::sync::Arc;

use async_trait::async_trait;
use http::header::{AUTHORIZATION, LOCATION};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};

use super::departure::Departure;
use super::target::{Redirect, redirect};
use super::wire::REDIRECTS_MAX;
use super::{HttpUpstream, Origin};
use crate::passthrough::{ExchangeError, Outgoing, Passthrough, Target, UpstreamBody};

#[async_trait]
impl Passthrough for HttpUpstream {
    /// A redirect with 307 or 308 to the same origin is followed, as in a session: its client would
    /// leave the gateway. Every other one is passed back.
    async fn exchange(
        &self,
        mut outgoing: Outgoing,
    ) -> Result<Response<UpstreamBody>, ExchangeError> {
        let origin = &*self.origin;
        authorize(origin, &mut outgoing).await?;
        let mut uri = uri(&origin.uri, &outgoing.target, outgoing.query.as_deref());
        let departure = Departure::new();
        let mut redirects_left = REDIRECTS_MAX;
        loop {
            let response = send(origin, &outgoing, &uri, &departure).await?;
            let status = response.status();
            if status.is_informational() {
                return Err(ExchangeError::Interim { upstream: origin.name.clone(), status });
            }
            if status == StatusCode::UNAUTHORIZED {
                origin.credential.forget().await;
            }
            match followed(&uri, &response) {
                Some(target) if redirects_left > 0 => {
                    redirects_left -= 1;
                    uri = target;
                }
                _ => return Ok(response),
            }
        }
    }

    fn path(&self) -> &str {
        self.origin.uri.path()
    }
}

async fn send(
    origin: &Origin,
    outgoing: &Outgoing,
    uri: &Uri,
    departure: &Arc<Departure>,
) -> Result<Response<UpstreamBody>, ExchangeError> {
    let Outgoing { method, headers, body, .. } = outgoing;
    let mut request = Request::new(body.clone());
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers.clone();
    origin.wire.send(request, departure).await.map_err(|fault| {
        let (upstream, what) = (origin.name.clone(), fault.to_string());
        // Without a body nothing tells whether the request left; for a GET it does not matter.
        let is_told = !body.is_empty() || *method == Method::GET;
        if departure.revoke() && is_told {
            ExchangeError::Unreachable { upstream, what }
        } else {
            ExchangeError::Lost { upstream, what }
        }
    })
}

/// As in a session: the client's own `Authorization`, unless the operator chose another or none.
async fn authorize(origin: &Origin, outgoing: &mut Outgoing) -> Result<(), ExchangeError> {
    if !origin.forwarded.contains(&AUTHORIZATION) {
        outgoing.headers.remove(AUTHORIZATION);
    }
    let credential = origin.credential.value().await.map_err(|error| {
        let (upstream, what) = (origin.name.clone(), error.to_string());
        ExchangeError::Credential { upstream, what }
    })?;
    if let Some(credential) = credential {
        outgoing.headers.insert(AUTHORIZATION, credential);
    }
    Ok(())
}

/// The server's URL for a target, with its own query before the client's.
fn uri(endpoint: &Uri, target: &Target, query: Option<&str>) -> Uri {
    let (path, own) = match target {
        Target::Endpoint => (endpoint.path(), endpoint.query()),
        Target::Announced(path) => (path.as_str(), None),
    };
    let queries: Vec<&str> = own.into_iter().chain(query).collect();
    let text =
        if queries.is_empty() { path.to_owned() } else { format!("{path}?{}", queries.join("&")) };
    let mut parts = endpoint.clone().into_parts();
    // Both come from URLs that were parsed, so this cannot fail; the endpoint would say what is
    // wrong with the request.
    if let Ok(path_and_query) = text.parse::<PathAndQuery>() {
        parts.path_and_query = Some(path_and_query);
    }
    Uri::from_parts(parts).unwrap_or_else(|_| endpoint.clone())
}

/// Where a redirect leads that is followed.
fn followed<B>(from: &Uri, response: &Response<B>) -> Option<Uri> {
    if !matches!(response.status().as_u16(), 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    match redirect(from, location) {
        Redirect::Same(target) => Some(target),
        Redirect::Other(_) | Redirect::Unreadable => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_the_client_comes_after_the_one_of_the_operator() {
        let endpoint: Uri = "http://host:1/mcp?key=1".parse().unwrap();
        let at = |target: Target, query| uri(&endpoint, &target, query).to_string();
        assert_eq!(at(Target::Endpoint, None), "http://host:1/mcp?key=1");
        assert_eq!(at(Target::Endpoint, Some("a=%20&b")), "http://host:1/mcp?key=1&a=%20&b");
        let announced = Target::Announced("/messages/".into());
        assert_eq!(at(announced, Some("s=1")), "http://host:1/messages/?s=1");
        let bare: Uri = "http://host:1".parse().unwrap();
        assert_eq!(uri(&bare, &Target::Endpoint, Some("a")).to_string(), "http://host:1/?a");
    }
}
