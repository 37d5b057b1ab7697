//! Errors speak of the layer and of the application's own code, not of a command line or a URL.

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use http::header::HOST;
use http::{Request, StatusCode, Version};
use rejoin_gateway::{LayerConfig, RejoinLayer, RejoinService};
use rejoin_testkit::failure::{Failure, TestResult};
use tower_service::Service as _;

use crate::support::{Bench, Listener, Log, charge, initialize, json_of, layer, refused};

/// Status and message of the answer to `initialize`.
async fn told(service: &RejoinService, host: &str) -> Result<(u16, String), Failure> {
    let response = service.clone().call(initialize(host, Version::HTTP_11)?).await?;
    let status = response.status().as_u16();
    let answer = json_of(response).await?;
    Ok((status, answer["error"]["message"].as_str().unwrap_or_default().to_owned()))
}

#[tokio::test]
async fn a_router_whose_route_is_not_the_layers_path_is_told_by_the_field_to_set() -> TestResult {
    let _logging = Log::start();
    let elsewhere = Router::new().route("/mcp", post(async || "well"));
    let (status, message) = told(&layer()?.layer(elsewhere), "localhost").await?;
    assert_eq!(status, 502);
    assert!(message.contains("404") && message.contains("set that to the path"), "{message}");
    assert!(message.contains("LayerConfig::path") && !message.contains("URL"), "{message}");
    let failing = Router::new().route("/", post(async || StatusCode::BAD_GATEWAY));
    let (_, message) = told(&layer()?.layer(failing), "localhost").await?;
    assert!(message.contains("502 Bad Gateway: it says why in its own log"), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_service_that_panics_is_told_as_that_and_not_as_unreachable() -> TestResult {
    let _logging = Log::start();
    let panicking = Router::new().route("/", post(panic));
    let (status, message) = told(&layer()?.layer(panicking), "localhost").await?;
    assert_eq!(status, 502);
    assert!(message.contains("the service panicked; a panic is told on the"), "{message}");
    assert!(!message.contains("URL") && !message.contains("reached"), "{message}");
    Ok(())
}

/// docs/embedding.md, "Where it belongs".
#[tokio::test]
async fn around_a_whole_application_every_path_is_the_endpoint() -> TestResult {
    let _logging = Log::start();
    let health = || Router::new().route("/health", get(async || "well"));
    let request = || {
        let request = Request::get("/health").header(HOST, "localhost");
        request.body(Body::empty())
    };
    let around_everything = layer()?.layer(health().route("/mcp", post(panic)));
    let response = around_everything.clone().call(request()?).await?;
    assert_eq!(response.status(), 404, "what the application has at the layer's path");
    let mcp = layer()?.layer(Router::new().route("/", post(panic)));
    let mut around_the_endpoint = health().nest_service("/mcp", mcp);
    assert_eq!(around_the_endpoint.call(request()?).await?.status(), 200);
    Ok(())
}

async fn panic() -> &'static str {
    panic!("as it was told")
}

#[tokio::test]
async fn a_host_that_is_not_let_in_is_named_with_the_field_to_add_it_to() -> TestResult {
    let _logging = Log::start();
    let service = layer()?.layer(Router::new().route("/", post(async || "well")));
    let (status, message) = told(&service, "evil.example").await?;
    assert_eq!(status, 403);
    assert!(message.starts_with("`evil.example` is not an allowed Host"), "{message}");
    assert!(message.ends_with("add it to LayerConfig::allowed_hosts."), "{message}");
    Ok(())
}

#[test]
fn a_host_or_origin_that_would_let_nobody_in_makes_no_layer() {
    let error = |hosts: &[&str], origins: &[&str]| {
        let owned = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
        let (allowed_hosts, allowed_origins) = (owned(hosts), owned(origins));
        let config = LayerConfig { allowed_hosts, allowed_origins, ..LayerConfig::default() };
        RejoinLayer::with(config).err().map(|error| error.to_string())
    };
    for host in ["http://a.example", "*", ""] {
        let error = error(&[host], &[]).unwrap_or_default();
        let said = format!("LayerConfig::allowed_hosts holds {host:?}: expected a host");
        assert!(error.starts_with(&said), "{error}");
    }
    let error = error(&["a.example:8443"], &["https://b.example", "a.example"]).unwrap_or_default();
    let said = "LayerConfig::allowed_origins holds \"a.example\": expected an origin";
    assert!(error.starts_with(said), "{error}");
}

#[tokio::test]
async fn the_log_names_the_server_of_a_session_and_the_tool_of_a_refusal() -> TestResult {
    let bench = Bench::start(Listener::Rejoin).await?;
    let session = bench.session().await?;
    bench.log.more(0, &["a session was opened", "server=\"service\""]).await?;
    let call = charge(10, 1, 20, 50);
    bench.drop_after(&session, &call, 3).await?;
    refused(&session, &call.again(11)).await?;
    let line = ["decided", "server=\"service\"", "verdict=\"reject\"", "tool=\"charge\""];
    assert_eq!(bench.log.count(&line), 1);
    let moved = ["a stream moved", "server=\"service\"", "to=\"owed\""];
    assert_eq!(bench.log.count(&moved), 1);

    let failing = layer()?.layer(Router::new().route("/mcp", post(async || "well")));
    told(&failing, "localhost").await?;
    assert_eq!(bench.log.count(&["no session was opened", "server=\"service\""]), 1);
    Ok(())
}
