//! `rejoin serve --data --upstream URL`: the server outlives the gateway, and its calls go on.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::Command;

use rejoin_testkit::call::Call;
use rejoin_testkit::check::{Owed, complete, messages};
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};
use tempfile::TempDir;

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/restart_http_server.py");
/// What the gateway logs: every move, so that a test can wait for it.
const LOG: &str = "info,rejoin_gateway::telemetry=debug";

/// A gateway with a data directory, in front of a server over HTTP that outlives it.
struct Bench {
    folder: TempDir,
    count: CountFile,
    upstream: Server,
    place: SocketAddr,
    gateway: Server,
}

impl Bench {
    async fn start(of_server: &[&str]) -> Result<Self, Failure> {
        let folder = TempDir::new()?;
        let count = CountFile::at(folder.path().join("count"));
        let mut upstream = serve(&count, 0, of_server)?;
        let place = upstream.address("serves", WAIT).await?;
        let gateway = gateway(&folder, place)?;
        Ok(Self { folder, count, upstream, place, gateway })
    }

    async fn session(&mut self, identity: Identity) -> Result<Session, Failure> {
        Ok(Session::open_as(self.gateway.address("listens", WAIT).await?, identity).await?)
    }

    /// Ends the gateway with a signal.
    async fn end(&mut self, signal: &str) -> TestResult {
        let pid = self.gateway.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status()?.success());
        self.gateway.ended(WAIT).await?;
        Ok(())
    }

    /// Starts it again; the session at its new address.
    async fn start_again(&mut self, session: &Session) -> Result<Session, Failure> {
        self.gateway = gateway(&self.folder, self.place)?;
        Ok(session.by_way_of(self.gateway.address("listens", WAIT).await?))
    }

    async fn kill(&mut self, session: &Session) -> Result<Session, Failure> {
        self.end("-KILL").await?;
        self.start_again(session).await
    }

    /// A call that has `events` events, and waits behind the first `held_after` until it is let go.
    fn held(&self, id: u64, held_after: u64, events: u64) -> Call {
        let hold = self.folder.path().join("go");
        let arguments =
            json!({"amount": 7, "events": events, "held_after": held_after, "hold": hold});
        Call::new(id, "charge", arguments).with_progress_token(&format!("p{id}"))
    }

    fn let_go(&self) -> TestResult {
        Ok(std::fs::write(self.folder.path().join("go"), [])?)
    }

    fn charges(&self) -> Result<usize, Failure> {
        Ok(self.count.runs("charge")?)
    }
}

fn serve(count: &CountFile, port: u16, further: &[&str]) -> Result<Server, Failure> {
    let mut arguments: Vec<OsString> = vec![SERVER.into(), count.path().into()];
    arguments.extend([port.to_string(), "404".to_owned()].map(OsString::from));
    arguments.extend(further.iter().map(OsString::from));
    Ok(Server::start_tied("python3", arguments)?)
}

fn gateway(folder: &TempDir, upstream: SocketAddr) -> Result<Server, Failure> {
    let data = folder.path().join("data").display().to_string();
    let url = format!("http://{upstream}/mcp");
    let anywhere = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", LOG];
    let named = ["--data", &data, "--upstream", &url, "--limit", "drain_ms=200"];
    Ok(Server::start(REJOIN, [&["serve"][..], &anywhere, &named].concat())?)
}

fn owed(call: &Call, first: u64) -> Owed<'_> {
    let last = call.arguments["events"].as_u64().unwrap();
    Owed { progress_token: &call.progress_token, id: call.id, first, last }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or("no text")
}

/// The rest of a call behind a cursor, which is whole.
async fn resumed(session: &Session, cursor: &str, call: &Call, first: u64) -> TestResult {
    let mut stream = session.get(Some(cursor)).await?;
    assert_eq!(stream.head().await?.status, 200);
    stream.clean_rest().await?;
    let answer = complete(stream.events(), &owed(call, first))?;
    assert_eq!(text(&answer), "charged 7");
    Ok(())
}

#[tokio::test]
async fn a_call_goes_on_after_the_kill_and_every_event_of_it_arrives_once() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session(Identity::default()).await?;
    let call = bench.held(10, 5, 9);
    let mut stream = session.call(&call).await?;
    let origin = stream.event().await?.id.unwrap();
    let cursor = stream.messages(3).await?;
    stream.messages(2).await?;
    let session = bench.kill(&session).await?;
    let refusal = Refusal::read(&mut session.call(&call.again(11)).await?).await?;
    assert_eq!(refusal.reason, "request_in_flight", "{refusal:?}");
    bench.let_go()?;
    resumed(&session, &cursor, &call, 4).await?;
    resumed(&session, &origin, &call, 1).await?;
    assert_eq!(bench.charges()?, 1);
    let next = session.answer(&Call::new(12, "tenant", json!({}))).await?;
    assert!(next.get("result").is_some(), "its server has lost nothing: {next}");
    Ok(())
}

#[tokio::test]
async fn what_the_server_did_while_nobody_listened_is_fetched() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session(Identity::default()).await?;
    let call = bench.held(10, 2, 6);
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(2).await?;
    bench.end("-KILL").await?;
    bench.let_go()?;
    bench.count.wait("finished", 1, WAIT).await?;
    let session = bench.start_again(&session).await?;
    // Whether or not its client comes back for it.
    bench.gateway.log_line("to=\"finished\"", WAIT).await?;
    resumed(&session, &cursor, &call, 3).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_call_is_killed_again_and_again_and_ends_whole() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let mut session = bench.session(Identity::default()).await?;
    let arguments = json!({"amount": 7, "events": 120, "interval_ms": 20});
    let call = Call::new(10, "charge", arguments).with_progress_token("p");
    let mut stream = session.call(&call).await?;
    let origin = stream.event().await?.id.unwrap();
    let mut cursor = stream.messages(1).await?;
    for round in 1..=4 {
        session = bench.kill(&session).await?;
        let mut stream = session.get(Some(&cursor)).await?;
        cursor = stream.messages(3 + round).await?;
    }
    let mut stream = session.get(Some(&origin)).await?;
    stream.clean_rest().await?;
    complete(stream.events(), &owed(&call, 1))?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn without_event_ids_the_outcome_is_unknown_and_the_server_s_state_is_not_lost() -> TestResult
{
    let mut bench = Bench::start(&["no-ids"]).await?;
    let session = bench.session(Identity::default()).await?;
    let call = bench.held(10, 2, 6);
    let cursor = session.call(&call).await?.messages(2).await?;
    let session = bench.kill(&session).await?;
    let mut stream = session.get(Some(&cursor)).await?;
    stream.clean_rest().await?;
    let last = messages(stream.events())?.pop().unwrap();
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(10), &json!(40_906)), "{last}");
    let refusal = Refusal::read(&mut session.call(&call.again(11)).await?).await?;
    assert_eq!(refusal.reason, "outcome_unknown", "{refusal:?}");
    let next = session.answer(&Call::new(12, "tenant", json!({}))).await?;
    assert!(next.get("result").is_some(), "{next}");
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_graceful_end_leaves_the_server_its_session_and_a_delete_ends_it() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session(Identity::default()).await?;
    let call = bench.held(10, 2, 4);
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(2).await?;
    bench.end("-TERM").await?;
    let session = bench.start_again(&session).await?;
    bench.let_go()?;
    resumed(&session, &cursor, &call, 3).await?;
    assert_eq!((bench.charges()?, bench.count.runs("delete")?), (1, 0));
    assert_eq!(session.delete().await?, 204);
    bench.count.wait("delete", 1, WAIT).await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_was_started_again_too_has_lost_its_state_and_the_outcome() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session(Identity::default()).await?;
    let call = bench.held(10, 2, 4);
    let cursor = session.call(&call).await?.messages(2).await?;
    bench.end("-KILL").await?;
    bench.upstream.kill()?;
    bench.upstream = serve(&bench.count, bench.place.port(), &[])?;
    bench.upstream.address("serves", WAIT).await?;
    let session = bench.start_again(&session).await?;
    let mut stream = session.get(Some(&cursor)).await?;
    stream.clean_rest().await?;
    let last = messages(stream.events())?.pop().unwrap();
    assert_eq!(last["error"]["code"], 40_906, "{last}");
    bench.gateway.log_line("the server is gone", WAIT).await?;
    let other = Call::new(11, "charge", json!({"amount": 8, "events": 0}));
    let refusal = Refusal::read(&mut session.call(&other).await?).await?;
    assert_eq!(refusal.reason, "state_lost", "{refusal:?}");
    let answer = session.answer(&other.again(12)).await?;
    assert_eq!(text(&answer), "charged 8");
    assert_eq!(bench.charges()?, 2);
    Ok(())
}

#[tokio::test]
async fn the_credential_that_the_server_needs_is_taken_from_the_client_that_comes_back()
-> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session(Identity::authorized("Bearer good")).await?;
    let call = bench.held(10, 2, 4);
    let cursor = session.call(&call).await?.messages(2).await?;
    let session = bench.kill(&session).await?;
    bench.let_go()?;
    resumed(&session, &cursor, &call, 3).await?;
    assert_eq!(bench.charges()?, 1);
    assert_eq!(session.delete().await?, 204);
    bench.count.wait("delete", 1, WAIT).await?;
    let file = std::fs::read(bench.folder.path().join("data/rejoin.db-wal"))?;
    let file = [file, std::fs::read(bench.folder.path().join("data/rejoin.db"))?].concat();
    let holds = |text: &[u8]| file.windows(text.len()).any(|part| part == text);
    assert!(!holds(b"Bearer good"), "no credential is written down");
    Ok(())
}

#[tokio::test]
async fn a_question_that_was_open_at_the_kill_is_answered_after_it() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session(Identity::default()).await?;
    let arguments = json!({"amount": 7, "events": 1, "ask": true});
    let call = Call::new(10, "charge", arguments).with_progress_token("p");
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(1).await?;
    let question = stream.message().await?.message().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let session = bench.kill(&session).await?;
    let mut stream = session.get(Some(&cursor)).await?;
    let again = stream.message().await?.message().unwrap();
    assert_eq!(again["id"], question["id"]);
    let yes = json!({"action": "accept", "content": {"answer": "both"}});
    assert_eq!(session.respond(&question["id"], yes).await?, 202);
    let answer = stream.response().await?;
    assert_eq!(text(&answer), "charged both");
    assert_eq!(bench.charges()?, 1);
    Ok(())
}
