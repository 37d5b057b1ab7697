//! The admin address, and the end of a gateway.

use std::sync::atomic::Ordering;

use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::{WAIT, until, within};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::Request;
use serde_json::json;

use crate::support::{Bench, Greeting, ask, initialize, request};

async fn admin(bench: &Bench, path: &str) -> Result<(u16, String), Failure> {
    let answer = ask(bench.admin, &Request::new("GET", path).header("Host", "localhost")).await?;
    Ok((answer.status(), answer.head.media_type()))
}

#[tokio::test]
async fn the_admin_address_tells_health_and_metrics_and_nothing_else() -> TestResult {
    let bench = Bench::start().await?;
    for (path, status, media_type) in [
        ("/healthz", 200, "text/plain"),
        ("/livez", 200, "text/plain"),
        ("/readyz", 200, "text/plain"),
        ("/metrics", 200, "application/openmetrics-text"),
        ("/mcp", 404, "text/plain"),
    ] {
        assert_eq!(admin(&bench, path).await?, (status, media_type.to_owned()), "{path}");
    }
    let post = Request::new("POST", "/metrics").header("Host", "localhost");
    assert_eq!(ask(bench.admin, &post).await?.status(), 405);
    assert_eq!(bench.ask(&bench.bare("GET")).await?.status(), 400);
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_stops_refuses_new_work_and_ends_streams_and_servers() -> TestResult {
    let bench = Bench::start_with(Greeting::Agrees, |limits| limits.drain_ms = 3_000).await?;
    let session = bench.session().await?;
    let mut running = session.call(&Call::new(1, "hang", json!({}))).await?;
    running.messages(1).await?;
    let mut standalone = session.get(None).await?;
    standalone.head().await?;
    let gateway = bench.gateway.clone();
    let draining = tokio::spawn(async move { gateway.drain().await });
    until("the drain", WAIT, async || {
        Ok::<_, Failure>((admin(&bench, "/readyz").await?.0 == 503).then_some(()))
    })
    .await?;
    assert_eq!(admin(&bench, "/healthz").await?.0, 200);
    let refused = bench.ask(&bench.post(initialize(&json!("own"), "2025-11-25"))).await?;
    assert_eq!((refused.status(), refused.error().1), (503, json!("own")));
    let refused = bench.ask(&session.post_request(&request(2, "tools/list"))).await?;
    assert_eq!((refused.status(), refused.head.header("retry-after")), (503, Some("1")));
    assert_eq!(session.notify("notifications/x", json!({})).await?, 202);
    for stream in [&mut running, &mut standalone] {
        stream.clean_rest().await?;
        assert_eq!(stream.events().last().and_then(|event| event.retry), Some(2_000));
    }
    within("the end of the drain", WAIT, draining).await??;
    assert_eq!(bench.server.ended.load(Ordering::SeqCst), 1);
    Ok(())
}

#[tokio::test]
async fn a_running_call_may_finish_before_its_gateway_stops() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let mut stream = session.call(&Call::new(1, "hang", json!({}))).await?;
    stream.messages(1).await?;
    let gateway = bench.gateway.clone();
    let draining = tokio::spawn(async move { gateway.drain().await });
    until("the drain", WAIT, async || {
        Ok::<_, Failure>((admin(&bench, "/readyz").await?.0 == 503).then_some(()))
    })
    .await?;
    assert!(!draining.is_finished());
    // The end of the last call is the end of the wait, long before `drain_ms`.
    assert_eq!(session.cancel(1).await?, 202);
    within("the end of the drain", WAIT, draining).await??;
    Ok(())
}
