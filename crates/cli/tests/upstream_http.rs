//! `rejoin serve --upstream`: the promises of the gateway in front of a server over HTTP.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::ffi::OsStr;
use std::net::SocketAddr;

use rejoin_testkit::call::Call;
use rejoin_testkit::check::{Owed, complete};
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::raw::{Connection, Request};
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::Session;
use serde_json::{Value, json};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream_http_server.py");

/// A gateway, and the server behind it.
struct Bench {
    gateway: Server,
    address: SocketAddr,
    upstream: Server,
    place: SocketAddr,
    count: CountFile,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn start() -> Result<Self, Failure> {
        Self::start_with(&[], &[]).await
    }

    /// With further arguments of the server and of the gateway.
    async fn start_with(of_server: &[&str], of_gateway: &[&str]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let count = CountFile::at(folder.path().join("count"));
        let mut server = vec![SERVER.as_ref(), count.path().as_os_str()];
        server.extend(of_server.iter().map(OsStr::new));
        let mut upstream = Server::start_tied("python3", server)?;
        let place = upstream.address("serves", WAIT).await?;
        let url = format!("http://{place}/mcp?key=secret");
        let anywhere = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let named = ["--upstream", &url, "--upstream-header", "X-Tenant"];
        let log = ["--log", "info,rejoin_gateway::telemetry=debug"];
        let arguments = [&["serve"][..], &anywhere, &named, &log, of_gateway].concat();
        let mut gateway = Server::start(env!("CARGO_BIN_EXE_rejoin"), arguments)?;
        let address = gateway.address("listens", WAIT).await?;
        Ok(Self { gateway, address, upstream, place, count, _folder: folder })
    }

    /// Kills the server and starts it again, as one that answers this to sessions it does not know.
    async fn restart(&mut self, unknown: &str) -> TestResult {
        self.upstream.kill()?;
        let port = self.place.port().to_string();
        let file = self.count.path().display().to_string();
        self.upstream = Server::start_tied("python3", [SERVER, &file, &port, unknown, "close"])?;
        self.upstream.address("serves", WAIT).await?;
        Ok(())
    }

    async fn session(&self) -> Result<Session, Failure> {
        Ok(Session::open(self.address).await?)
    }

    /// Reads some messages of a call, then cuts its connection; gives the cursor, once the gateway
    /// knows of the loss.
    async fn cut(&self, session: &Session, call: &Call, seen: usize) -> Result<String, Failure> {
        let mut stream = session.call(call).await?;
        let cursor = stream.messages(seen).await?;
        stream.cut_rst()?;
        self.gateway.log_line("to=\"owed\"", WAIT).await?;
        Ok(cursor)
    }

    async fn post(&self, post: &Request) -> Result<Value, Failure> {
        let mut connection = Connection::open(self.address).await?;
        connection.request(post).await?;
        Ok(connection.response().await?)
    }
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
    let bench = Bench::start().await?;
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
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let call = charge(1, 20);
    let cursor = bench.cut(&session, &call, 5).await?;
    resume(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.count.runs("charge")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_blind_retry_is_refused_and_the_call_ran_once() -> TestResult {
    let bench = Bench::start().await?;
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
    let bench = Bench::start().await?;
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
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let call = charge(1, 2).with_dedup_token("pay-7");
    let refused = session.post_request(&call.message()).header("X-Tenant", "nobody");
    let answer = bench.post(&refused).await?;
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
    let bench = Bench::start().await?;
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
    let bench = Bench::start().await?;
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
    let mut bench = Bench::start_with(&["0", "404", "close"], &[]).await?;
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
async fn a_server_that_is_away_is_a_bad_gateway_for_new_sessions() -> TestResult {
    let mut bench = Bench::start().await?;
    bench.upstream.kill()?;
    let error = Session::open(bench.address).await.unwrap_err().to_string();
    assert!(error.contains("502") && error.contains("cannot be reached"), "{error}");
    assert!(error.contains("\"id\":\"initialize\"") && !error.contains("secret"), "{error}");
    Ok(())
}
