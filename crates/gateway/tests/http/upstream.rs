//! What a server behind a URL is told of its client, and what its client is told of it.

use std::sync::atomic::Ordering;

use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use serde_json::json;

use crate::support::{Bench, Greeting, initialize, request};

#[tokio::test]
async fn a_challenge_of_the_server_reaches_its_client_unchanged() -> TestResult {
    for status in [401, 403] {
        let bench = Bench::start_with(Greeting::Challenges(status), |_| {}).await?;
        let post = bench.post(initialize(&json!("own"), "2025-11-25"));
        // Softened, it would tell nobody to sign in.
        for agent in ["node", "python-httpx/0.28.1"] {
            let answer = bench.ask(&post.clone().header("User-Agent", agent)).await?;
            assert_eq!((answer.status(), &answer.body[..]), (status, &b"who are you?"[..]));
            assert_eq!(answer.head.media_type(), "text/plain");
            assert_eq!(
                answer.head.header("www-authenticate"),
                Some("Bearer resource_metadata=\"https://tools.example/meta\"")
            );
        }
        assert_eq!(bench.metric("rejoin_sessions").await?, Some(0.0));
    }
    Ok(())
}

#[tokio::test]
async fn any_other_refusal_and_an_unreachable_server_are_a_bad_gateway() -> TestResult {
    for greeting in [Greeting::Challenges(429), Greeting::IsAway] {
        let bench = Bench::start_with(greeting, |_| {}).await?;
        let post = bench.post(initialize(&json!("own"), "2025-11-25"));
        for (agent, status) in [("node", 502), ("python-httpx/0.28.1", 200)] {
            let answer = bench.ask(&post.clone().header("User-Agent", agent)).await?;
            let expected = (status, (-32603, json!("own")));
            assert_eq!((answer.status(), answer.error()), expected, "{greeting:?}");
            let message = answer.json()["error"]["message"].to_string();
            assert!(message.contains("check"), "{message}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn headers_of_the_client_go_with_the_opening_and_again_only_when_they_change() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    assert_eq!(bench.server.told("x-tenant"), [None]);
    let mut told = vec![None];
    for (id, tenant) in [(1, None), (2, Some("a")), (3, Some("a")), (4, Some("b")), (5, Some("b"))]
    {
        let mut post = session.post_request(&request(id, "ping"));
        if let Some(tenant) = tenant {
            post = post.header("X-Tenant", tenant);
        }
        assert_eq!(bench.ask(&post).await?.status(), 200);
        let tenant = tenant.map(str::to_owned);
        if told.last() != Some(&tenant) {
            told.push(tenant);
        }
        assert_eq!(bench.server.told("x-tenant"), told);
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_opened_again_is_told_the_clients_headers_again() -> TestResult {
    let bench = Bench::start_with(Greeting::Dies, |_| {}).await?;
    let post = bench.post(initialize(&json!(0), "2025-11-25")).header("Authorization", "Bearer a");
    let answer = bench.ask(&post).await?;
    let id = answer.head.header("mcp-session-id").unwrap_or_default();
    until("a second opening", WAIT, async || {
        let ping = bench.post(request(1, "ping").to_string()).header("Mcp-Session-Id", id);
        bench.ask(&ping.header("Authorization", "Bearer a")).await?;
        let is_second = bench.server.opened.load(Ordering::SeqCst) > 1;
        Ok::<_, Failure>(is_second.then_some(()))
    })
    .await?;
    let told = bench.server.told("authorization");
    assert!(told.iter().all(|value| value.as_deref() == Some("Bearer a")), "{told:?}");
    Ok(())
}
