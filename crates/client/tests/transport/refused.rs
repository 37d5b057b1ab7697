//! Refusals whose body says nothing: their status counts.

use std::time::Duration;

use rejoin_testkit::deadline::within;
use rejoin_testkit::failure::Failure;

use super::{Act, Host, Played, config, is_call, opening, whole};

/// Far less than the client waits for an answer that is none.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_refusal_whose_body_cannot_be_had_is_one_by_its_status() -> Result<(), Failure> {
    let head = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\n";
    let cases = [
        ("compressed", Act::Say(whole("403 Forbidden", "Content-Encoding: gzip\r\n", "xyz"))),
        ("broken off", Act::SayAndClose(format!("{head}Content-Length: 100\r\n\r\n<html>"))),
        ("too large", Act::Say(whole("403 Forbidden", "", &"x".repeat(5_000)))),
        ("without end", Act::Say(format!("{head}Content-Length: 100\r\n\r\n<html>"))),
    ];
    for (what, refusal) in cases {
        let server =
            Played::start(move |_, request| opening(request).unwrap_or_else(|| refusal.clone()))
                .await?;
        let mut config = config(&server);
        config.limits.message_bytes_max = 4_000;
        config.limits.refusal_body_max_ms = 200;
        let mut host = Host::open(&config).await?;
        let error = within(what, SOON, host.call(1)).await??;
        assert_eq!(error["error"]["data"]["mayHaveRun"], false, "{what}: {error}");
        assert_eq!(error["error"]["data"]["status"], 403, "{what}: {error}");
        assert_eq!(server.requests(is_call).await.len(), 1, "{what}");
    }
    Ok(())
}

/// A Rejoin says in the body whether the call ran, and what to do.
#[tokio::test]
async fn a_refusal_that_says_more_in_its_body_is_none_if_that_broke_off() -> Result<(), Failure> {
    let head = "HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\n";
    let refusal = Act::SayAndClose(format!("{head}Content-Length: 100\r\n\r\n{{"));
    let server =
        Played::start(move |_, request| opening(request).unwrap_or_else(|| refusal.clone()))
            .await?;
    let mut host = Host::open(&config(&server)).await?;
    let error = within("an answer", SOON, host.call(1)).await??;
    assert_eq!(error["error"]["data"]["mayHaveRun"], true, "{error}");
    assert!(error["error"]["data"]["status"].is_null(), "{error}");
    Ok(())
}
