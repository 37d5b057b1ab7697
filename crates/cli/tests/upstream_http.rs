//! `rejoin serve --upstream`: the promises of the gateway in front of a server over HTTP.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "upstream_http/bench.rs"]
mod bench;

use std::process::Command;

use rejoin_testkit::call::Call;
use rejoin_testkit::check::{Owed, complete};
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Connection, Request};
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::{Identity, Session};
use serde_json::json;

use bench::{Bench, SMALL};

async fn start() -> Result<Bench, Failure> {
    Bench::start(SMALL, &[], &[]).await
}

fn charge(id: u64, events: u64) -> Call {
    Call::new(id, "charge", json!({"amount": 7, "events": events, "interval_ms": 25}))
}

fn owed(call: &Call, first: u64) -> Owed<'_> {
    let last = call.arguments["events"].as_u64().unwrap();
    Owed { progress_token: &call.progress_token, id: call.id, first, last }
}

async fn resume(session: &Session, cursor: &str, call: &Call, first: u64) -> TestResult {
    let mut resumed = session.get(Some(cursor)).await?;
    assert_eq!(resumed.head().await?.status, 200);
    resumed.clean_rest().await?;
    let answer = complete(resumed.events(), &owed(call, first))?;
    assert_eq!(answer["result"]["content"][0]["text"], "charged 7");
    Ok(())
}

#[tokio::test]
async fn a_call_is_answered_with_its_progress_and_the_url_is_shown_without_its_query() -> TestResult
{
    let bench = start().await?;
    let said = bench.gateway.lines(true);
    assert!(said[0].contains(" in front of: http://127.0.0.1:"), "{said:?}");
    assert!(said[0].ends_with("/mcp") && said.len() == 1, "{said:?}");
    let session = bench.session().await?;
    let call = charge(1, 5);
    let mut stream = session.call(&call).await?;
    stream.clean_rest().await?;
    complete(stream.events(), &owed(&call, 1))?;
    assert_eq!(bench.count.runs("charge")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_cut_call_goes_on_and_is_resumed_where_its_client_stopped() -> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    let call = charge(1, 20);
    let cursor = bench.cut(&session, &call, 5).await?;
    resume(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.count.runs("charge")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_blind_retry_is_refused_and_the_call_ran_once() -> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    let call = charge(1, 40);
    let cursor = bench.cut(&session, &call, 5).await?;
    let refusal = Refusal::read(&mut session.call(&call.again(2)).await?).await?;
    assert_eq!((refusal.head.status, refusal.code), (409, 40902), "{refusal:?}");
    assert_eq!(refusal.id, 2);
    resume(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.count.runs("charge")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_challenge_to_initialize_reaches_the_client_unchanged() -> TestResult {
    let bench = start().await?;
    let message = json!({"jsonrpc": "2.0", "id": "own", "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }});
    let post = Request::new("POST", "/mcp")
        .header("Host", &bench.address.to_string())
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .body(message.to_string());
    for (authorization, status) in [("Bearer bad", 401), ("Bearer good", 200)] {
        let mut connection = Connection::open(bench.address).await?;
        let post = post.clone().header("Authorization", authorization);
        connection.request(&post).await?;
        let head = connection.head().await?;
        assert_eq!(head.status, status, "{authorization}");
        if status == 401 {
            assert_eq!(head.header("www-authenticate"), Some("Bearer realm=\"tools\""));
            assert_eq!(connection.plain_body().await?, b"who are you?");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_call_that_the_server_refuses_says_so_and_may_be_sent_again() -> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    let call = charge(1, 2).with_dedup_token("pay-7");
    let refused = session.post_request(&call.message()).header("X-Tenant", "nobody");
    let mut connection = Connection::open(session.address()).await?;
    connection.request(&refused).await?;
    let head = connection.head().await?;
    let challenge = head.header("www-authenticate").map(str::to_owned);
    assert_eq!((head.status, challenge.as_deref()), (401, Some("Bearer realm=\"tools\"")));
    let answer = connection.response().await?;
    let error = &answer["error"];
    assert_eq!((&answer["id"], &error["data"]["status"]), (&json!(1), &json!(401)), "{answer}");
    assert_eq!(error["data"]["wwwAuthenticate"], "Bearer realm=\"tools\"");
    assert!(error["message"].as_str().unwrap().starts_with("Not run."), "{answer}");
    let again = session.post_request(&call.again(2).message()).header("X-Tenant", "somebody");
    assert_eq!(bench.post(&again).await?["result"]["content"][0]["text"], "charged 7");
    assert_eq!(bench.count.runs("charge")?, 1);
    Ok(())
}

#[tokio::test]
async fn the_server_sees_the_newest_value_of_an_allowed_header() -> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    for (id, tenant) in [(1, "one"), (2, "two")] {
        let call = Call::new(id, "tenant", json!({"number": id}));
        let post = session.post_request(&call.message()).header("X-Tenant", tenant);
        assert_eq!(bench.post(&post).await?["result"]["content"][0]["text"], tenant);
    }
    Ok(())
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_told_once_as_lost_state_and_then_works() -> TestResult
{
    let bench = start().await?;
    let session = bench.session().await?;
    session.answer(&Call::new(1, "forget", json!({}))).await?;
    let mut codes = Vec::new();
    let answer = until("an answer after the loss", WAIT, async || {
        let call = charge(10 + codes.len() as u64, 2);
        let answer = session.answer(&call).await?;
        if answer.get("result").is_some() {
            return Ok::<_, Failure>(Some(answer));
        }
        codes.push(answer["error"]["code"].as_i64().unwrap());
        Ok(None)
    })
    .await?;
    assert_eq!(answer["result"]["content"][0]["text"], "charged 7");
    assert_eq!(codes.iter().filter(|code| **code == 40907).count(), 1, "{codes:?}");
    assert_eq!(bench.count.runs("charge")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_call_that_meets_a_restarted_server_is_told_that_state_was_lost_and_did_not_run()
-> TestResult {
    // Connections are not kept, so that no call is sent into one of the killed server.
    let mut bench = Bench::start(SMALL, &["0", "404", "close"], &[]).await?;
    for (id, unknown) in [(10, "400"), (20, "404")] {
        let session = bench.session().await?;
        session.answer(&charge(id, 2)).await?;
        bench.restart(unknown).await?;
        let refused = session.answer(&charge(id + 1, 2)).await?;
        assert_eq!(refused["error"]["code"], 40907, "{unknown}: {refused}");
        let answer = session.answer(&charge(id + 2, 2)).await?;
        assert_eq!(answer["result"]["content"][0]["text"], "charged 7", "{unknown}");
    }
    assert_eq!(bench.count.runs("charge")?, 4);
    Ok(())
}

#[tokio::test]
async fn a_refreshed_credential_continues_a_session_once_the_operator_says_whose_it_is()
-> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("subjects");
    // `printf %s "Bearer good" | sha256sum`, and the same of "Bearer new".
    let first = "60d5a5c98d0b73cbfaddbaae960575011c8c0a81e4c817686999eb2f155e9800 alice\n";
    let both = format!(
        "{first}# refreshed\n\
         b0bf70506b67ea5aa33f87dfe5a85b18c9f45c597a3d09152971e3dcef298376 alice\n"
    );
    std::fs::write(&file, first)?;
    let path = file.display().to_string();
    let bench = Bench::start(SMALL, &[], &["--subjects", &path]).await?;
    let good = Identity::authorized("Bearer good");
    let session = Session::open_as(bench.address, good).await?;
    let refreshed = session.presented_as(Identity::authorized("Bearer new"));
    let call = Call::new(1, "tenant", json!({}));
    assert_eq!(refreshed.call(&call).await?.head().await?.status, 404);
    std::fs::write(&file, both)?;
    let told = Command::new("kill").args(["-HUP", &bench.gateway.pid().to_string()]).status()?;
    assert!(told.success());
    bench.gateway.log_line("the subjects were read again credentials=2", WAIT).await?;
    assert!(refreshed.answer(&call).await?.get("result").is_some());
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_away_is_a_bad_gateway_for_new_sessions() -> TestResult {
    let mut bench = start().await?;
    bench.upstream.kill()?;
    let error = Session::open(bench.address).await.unwrap_err().to_string();
    assert!(error.contains("502") && error.contains("cannot be reached"), "{error}");
    assert!(error.contains("\"id\":\"initialize\"") && !error.contains("secret"), "{error}");
    Ok(())
}
