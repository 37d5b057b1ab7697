//! Gateways side by side: what one server announces never reaches into another's.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rejoin_core::settings::Settings;
use rejoin_gateway::gateway::Gateway;
use rejoin_gateway::upstream::http::{HttpOptions, HttpUpstream};
use rejoin_testkit::failure::{Failure, TestResult};

use crate::support::{Bench, bare, stream};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// A gateway of a second server, which is not there, at `/b/mcp`.
fn second(first: &Gateway) -> Result<Gateway, Failure> {
    let settings = Arc::new(Settings::default());
    let options = HttpOptions::new(Arc::new(settings.limits.clone()));
    let upstream = Arc::new(HttpUpstream::new("http://127.0.0.1:9/mcp", options)?);
    Ok(first.beside("/b/mcp".to_owned(), settings, upstream)?)
}

#[tokio::test]
async fn a_server_that_announces_the_endpoint_of_another_does_not_get_its_requests() -> TestResult {
    let bench = Bench::start().await?;
    let gateways = [bench.gateway.clone(), second(&bench.gateway)?];
    let mut listening = bench.client(&bare("GET", "/mcp", "")).await?;
    let mut peer = bench.peer().await?;
    let endpoint = "event: endpoint\ndata: https://elsewhere/b/mcp\n\n";
    peer.say(stream(endpoint)).await?;
    listening.sees(endpoint).await?;
    let request = Request::post("/b/mcp")
        .header("Host", "localhost")
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .body(Full::new(Bytes::from_static(LIST.as_bytes())))?;
    let answer = Gateway::handle_among(&gateways, request).await;
    assert_eq!(answer.status(), 502, "its own server is not there");
    assert!(bench.nothing_came().await);
    Ok(())
}
