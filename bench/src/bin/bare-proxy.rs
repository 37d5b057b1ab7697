//! The limit of a hop: a reverse proxy on hyper that looks at nothing. `bare-proxy PORT UPSTREAM`,
//! the upstream as `127.0.0.1:PORT`.

use std::convert::Infallible;
use std::error::Error;

use http::uri::Authority;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

type Upstream = Client<HttpConnector, Incoming>;
type Answer = Response<Either<Incoming, Empty<Bytes>>>;

async fn pass(
    upstream: Upstream,
    authority: Authority,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let (mut parts, body) = request.into_parts();
    let mut uri = parts.uri.into_parts();
    uri.scheme = Some(http::uri::Scheme::HTTP);
    uri.authority = Some(authority);
    let Ok(uri) = Uri::from_parts(uri) else { return Ok(refused(StatusCode::BAD_REQUEST)) };
    parts.uri = uri;
    match upstream.request(Request::from_parts(parts, body)).await {
        Ok(answer) => Ok(answer.map(Either::Left)),
        Err(_) => Ok(refused(StatusCode::BAD_GATEWAY)),
    }
}

fn refused(status: StatusCode) -> Answer {
    let mut answer = Response::new(Either::Right(Empty::new()));
    *answer.status_mut() = status;
    answer
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: bare-proxy PORT UPSTREAM";
    let port: u16 = arguments.next().ok_or(usage)?.parse()?;
    let authority: Authority = arguments.next().ok_or(usage)?.parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let upstream: Upstream = Client::builder(TokioExecutor::new()).build(connector);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (upstream, authority) = (upstream.clone(), authority.clone());
        tokio::spawn(async move {
            let service =
                service_fn(move |request| pass(upstream.clone(), authority.clone(), request));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            // The generator says what it did not get.
            drop(served);
        });
    }
}
