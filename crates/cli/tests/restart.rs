//! `rejoin serve --data`: killed at any moment, and started again with the same directory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::ffi::OsString;
use std::path::Path;

use rejoin_testkit::call::Call;
use rejoin_testkit::check::{Owed, complete};
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::page::metric;
use rejoin_testkit::process::Server;
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};
use tempfile::TempDir;

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
/// What the gateway logs: every move, so that a test can wait for it.
const LOG: &str = "info,rejoin_gateway::telemetry=debug";
const RECORDED: &str = "dev.rejoin/recorded";

/// A gateway with a data directory, in front of the built-in server.
struct Bench {
    folder: TempDir,
    count: CountFile,
    gateway: Option<Server>,
    options: Vec<String>,
}

impl Bench {
    async fn start(options: &[&str]) -> Result<Self, Failure> {
        let folder = TempDir::new()?;
        let count = CountFile::at(folder.path().join("count"));
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut bench = Self { folder, count, gateway: None, options };
        bench.run()?;
        Ok(bench)
    }

    fn run(&mut self) -> Result<(), Failure> {
        let path = |path: &Path| OsString::from(path);
        let mut arguments: Vec<OsString> =
            ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", LOG, "--data"]
                .map(OsString::from)
                .into();
        arguments.push(path(&self.folder.path().join("data")));
        arguments.extend(self.options.iter().map(OsString::from));
        arguments.extend(["--", REJOIN, "tool-server", "--count-file"].map(OsString::from));
        arguments.push(path(self.count.path()));
        self.gateway = Some(Server::start(REJOIN, arguments)?);
        Ok(())
    }

    fn gateway(&mut self) -> &mut Server {
        self.gateway.as_mut().unwrap()
    }

    async fn session(&mut self) -> Result<Session, Failure> {
        let address = self.gateway().address("listens", WAIT).await?;
        Ok(Session::open_as(address, Identity::default()).await?)
    }

    /// Ends the gateway as nothing else does, and starts it again; the session at its new address.
    async fn kill(&mut self, session: &Session) -> Result<Session, Failure> {
        let killed = std::process::Command::new("kill")
            .args(["-KILL", &self.gateway().pid().to_string()])
            .status()?;
        assert!(killed.success());
        self.gateway().ended(WAIT).await?;
        self.run()?;
        let address = self.gateway().address("listens", WAIT).await?;
        Ok(session.by_way_of(address))
    }

    async fn metrics<const N: usize>(&mut self, names: [&str; N]) -> Result<[f64; N], Failure> {
        let admin = self.gateway().log_address("admin on ", WAIT).await?;
        let mut values = [0.0; N];
        for (value, name) in values.iter_mut().zip(names) {
            *value = metric(admin, name).await?.ok_or_else(|| Failure::new(name))?;
        }
        Ok(values)
    }

    fn charges(&self) -> Result<usize, Failure> {
        Ok(self.count.runs("charge")?)
    }
}

fn charge(id: u64, events: u64, interval_ms: u64) -> Call {
    let arguments = json!({"amount": 7, "events": events, "interval_ms": interval_ms});
    Call::new(id, "charge", arguments).with_progress_token(&format!("p{id}"))
}

fn owed(call: &Call, first: u64, last: u64) -> Owed<'_> {
    Owed { progress_token: &call.progress_token, id: call.id, first, last }
}

async fn answered(session: &Session, call: &Call) -> Result<Value, Failure> {
    Ok(session.answer(call).await?)
}

async fn refused(session: &Session, call: &Call) -> Result<Refusal, Failure> {
    Ok(Refusal::read(&mut session.call(call).await?).await?)
}

#[tokio::test]
async fn an_answer_that_was_lost_with_the_gateway_is_resumed_whole_from_the_next() -> TestResult {
    let mut bench = Bench::start(&["--stateless-upstream"]).await?;
    let session = bench.session().await?;
    let call = charge(10, 5, 0);
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(2).await?;
    // It ends, and is not read.
    bench.gateway().log_line("to=\"finished\"", WAIT).await?;
    let session = bench.kill(&session).await?;
    let mut resumed = session.get(Some(&cursor)).await?;
    resumed.clean_rest().await?;
    complete(resumed.events(), &owed(&call, 3, 5))?;
    assert_eq!(bench.charges()?, 1);
    let next = answered(&session, &Call::new(11, "get", json!({"key": "a"}))).await?;
    assert!(next.get("result").is_some(), "{next}");
    Ok(())
}

#[tokio::test]
async fn a_call_that_ran_when_the_gateway_was_killed_is_unknown_and_is_not_run_again() -> TestResult
{
    let mut bench = Bench::start(&["--stateless-upstream"]).await?;
    let session = bench.session().await?;
    let call = charge(10, 100, 50);
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(3).await?;
    let session = bench.kill(&session).await?;
    let refusal = refused(&session, &call.again(11)).await?;
    assert_eq!(refusal.reason, "outcome_unknown", "{refusal:?}");
    let mut resumed = session.get(Some(&cursor)).await?;
    resumed.clean_rest().await?;
    let messages = rejoin_testkit::check::messages(resumed.events())?;
    let last = messages.last().unwrap();
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(10), &json!(40_906)), "{last}");
    assert_eq!(bench.charges()?, 1);
    let next = answered(&session, &Call::new(12, "get", json!({"key": "a"}))).await?;
    assert!(next.get("result").is_some(), "{next}");
    Ok(())
}

#[tokio::test]
async fn what_is_owed_from_before_a_restart_is_in_the_metrics_at_once() -> TestResult {
    let mut bench = Bench::start(&["--stateless-upstream"]).await?;
    let session = bench.session().await?;
    let call = charge(10, 5, 100);
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(2).await?;
    stream.cut_rst()?;
    bench.gateway().log_line("to=\"owed\"", WAIT).await?;
    bench.gateway().log_line("to=\"finished\"", WAIT).await?;
    let names = ["rejoin_events_owed", "rejoin_streams{state=\"owed\"}"];
    let before = bench.metrics(names).await?;
    // Five of progress and the answer: none is confirmed.
    assert!(before[0] >= 6.0 && before[1] == 1.0, "{before:?}");
    let session = bench.kill(&session).await?;
    assert_eq!(bench.metrics(names).await?, before);
    let mut resumed = session.get(Some(&cursor)).await?;
    resumed.clean_rest().await?;
    assert_eq!(bench.metrics(names).await?, [0.0, 0.0]);
    assert_eq!(bench.metrics(["rejoin_events_replayed_total"]).await?, [4.0]);
    Ok(())
}

#[tokio::test]
async fn a_recorded_result_answers_the_repeat_of_a_token_after_the_restart() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1, 0).with_dedup_token("t-1");
    let first = answered(&session, &call).await?;
    assert_eq!(first["result"]["structuredContent"]["execution"], 1, "{first}");
    // Killed before the acknowledgement is seen, it would be owed: row 10, not row 5.
    bench.gateway().log_line("from=\"ending\"", WAIT).await?;
    let session = bench.kill(&session).await?;
    let record = answered(&session, &call.again(11)).await?;
    assert_eq!(record["result"]["structuredContent"]["execution"], 1, "{record}");
    assert!(!record["result"]["_meta"][RECORDED].is_null(), "{record}");
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn the_server_that_was_lost_with_the_gateway_is_told_once_as_state_lost() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    answered(&session, &charge(10, 1, 0)).await?;
    let session = bench.kill(&session).await?;
    let other = Call::new(11, "charge", json!({"amount": 8}));
    let refusal = refused(&session, &other).await?;
    assert_eq!(refusal.reason, "state_lost", "{refusal:?}");
    let answer = answered(&session, &other.again(12)).await?;
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(bench.charges()?, 2);
    Ok(())
}

#[tokio::test]
async fn a_thousand_finished_calls_hold_and_refuse_nothing_after_the_restart() -> TestResult {
    let mut bench = Bench::start(&["--stateless-upstream"]).await?;
    let session = bench.session().await?;
    for id in 1..=1_000 {
        let answer = answered(&session, &Call::new(id, "charge", json!({"amount": id}))).await?;
        assert!(answer.get("result").is_some(), "{answer}");
    }
    let session = bench.kill(&session).await?;
    let answer = answered(&session, &Call::new(2_000, "charge", json!({"amount": 0}))).await?;
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(bench.charges()?, 1_001);
    Ok(())
}

#[tokio::test]
async fn sessions_survive_the_graceful_end_and_are_nobody_elses() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    answered(&session, &charge(10, 1, 0)).await?;
    let signal = std::process::Command::new("kill")
        .args(["-TERM", &bench.gateway().pid().to_string()])
        .status()?;
    assert!(signal.success());
    assert_eq!(bench.gateway().ended(WAIT).await?.code(), Some(0));
    bench.run()?;
    let session = session.by_way_of(bench.gateway().address("listens", WAIT).await?);
    let stranger = session.presented_as(Identity::authorized("Bearer of another"));
    assert_eq!(stranger.notify("notifications/x", json!({})).await?, 404);
    assert_eq!(session.notify("notifications/x", json!({})).await?, 202);
    assert_eq!(session.delete().await?, 204);
    assert_eq!(session.notify("notifications/x", json!({})).await?, 404);
    bench.kill(&session).await?;
    let session = session.by_way_of(bench.gateway().address("listens", WAIT).await?);
    assert_eq!(session.notify("notifications/x", json!({})).await?, 404, "it was deleted");
    Ok(())
}

#[tokio::test]
async fn a_session_that_was_deleted_does_not_come_back_however_soon_the_kill() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    // Its server takes its time to end, and so does the removal of the log.
    let arguments = json!({"amount": 7, "events": 100, "interval_ms": 50, "ignore_cancel": true});
    session.call(&Call::new(10, "charge", arguments)).await?.messages(1).await?;
    assert_eq!(session.delete().await?, 204);
    let session = bench.kill(&session).await?;
    assert_eq!(session.notify("notifications/x", json!({})).await?, 404);
    Ok(())
}

#[tokio::test]
async fn a_second_gateway_on_the_same_directory_does_not_start() -> TestResult {
    let mut bench = Bench::start(&[]).await?;
    bench.gateway().address("listens", WAIT).await?;
    let data = bench.folder.path().join("data");
    let second = std::process::Command::new(REJOIN)
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"])
        .arg(&data)
        .output()?;
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains(data.to_str().unwrap()) && said.contains("another"), "{said}");
    Ok(())
}

#[tokio::test]
async fn killed_again_and_again_in_the_midst_of_calls_it_runs_none_twice() -> TestResult {
    let mut bench = Bench::start(&[
        "--stateless-upstream",
        "--owed-grace",
        "1000",
        "--limit",
        "retry_ms=250",
        "--limit",
        "hold_max_ms=1500",
    ])
    .await?;
    let mut session = bench.session().await?;
    for round in 0..8_u64 {
        let call = Call::new(round + 1, "charge", json!({"amount": 1_000 + round, "events": 3}))
            .with_progress_token(&format!("r{round}"));
        let has_token = round % 2 == 1;
        let call = if has_token { call.with_dedup_token(&format!("t{round}")) } else { call };
        let mut stream = session.call(&call).await?;
        let mut cursor = None;
        for _ in 0..round % 4 {
            cursor = Some(stream.messages(1).await?);
        }
        session = bench.kill(&session).await?;
        // A blind repeat: a record, a refusal, or a first execution. With a token once more.
        for attempt in 0..1 + u64::from(has_token) {
            let repeat = call.again(100 + 2 * round + attempt);
            until("an answer", WAIT, async || {
                let answer = session.answer(&repeat).await?;
                let code = answer["error"]["code"].as_i64();
                Ok::<_, Failure>((code != Some(40_901) && code != Some(40_902)).then_some(answer))
            })
            .await?;
        }
        if let Some(cursor) = cursor {
            let head = session.get(Some(&cursor)).await?.head().await?.status;
            assert!(matches!(head, 200 | 405), "{head}");
        }
        let runs = bench.count.runs_with("charge", "amount", &json!(1_000 + round))?;
        assert!(runs <= 1, "round {round} ran {runs} times");
    }
    Ok(())
}

fn rejoin(arguments: &[&str]) -> Result<(Option<i32>, String), Failure> {
    let output = std::process::Command::new(REJOIN).args(arguments).output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((output.status.code(), said))
}

#[tokio::test]
async fn an_operator_sees_sessions_while_rejoin_runs_and_while_it_does_not() -> TestResult {
    let mut bench = Bench::start(&["--stateless-upstream"]).await?;
    let session = bench.session().await?;
    let call = charge(10, 2, 0);
    let mut stream = session.call(&call).await?;
    stream.clean_rest().await?;
    let admin = bench.gateway().log_line("admin on http://", WAIT).await?;
    let admin = admin.rsplit("http://").next().unwrap().trim().to_owned();
    let tag = rejoin_core::id::SessionId::new(session.id()).tag();
    let (status, listed) = rejoin(&["sessions", "--admin", &admin, "list"])?;
    assert_eq!(status, Some(0), "{listed}");
    assert!(listed.contains(&tag) && listed.contains("1 finished"), "{listed}");
    assert!(!listed.contains(session.id()), "{listed}");
    let (status, shown) = rejoin(&["sessions", "--admin", &admin, "show", &tag])?;
    assert!(status == Some(0) && shown.contains("presumed"), "{shown}");
    let (status, calls) = rejoin(&["sessions", "--admin", &admin, "--json", "calls", &tag])?;
    let calls: Value = serde_json::from_str(&calls)?;
    assert_eq!((status, &calls["calls"][0]["tool"]), (Some(0), &json!("charge")), "{calls}");
    let (status, none) = rejoin(&["sessions", "--admin", &admin, "show", "00"])?;
    assert!(status == Some(1) && none.contains("no such session"), "{none}");
    let (status, refused) = rejoin(&["sessions", "--admin", &admin, "export", &tag])?;
    assert!(status == Some(1) && refused.contains("--data"), "{refused}");
    let data = bench.folder.path().join("data");
    let data = data.to_str().unwrap();
    let (status, used) = rejoin(&["sessions", "--data", data, "list"])?;
    assert!(status == Some(1) && used.contains("another"), "{used}");
    bench.gateway().kill()?;
    let (status, stopped) = rejoin(&["sessions", "--data", data, "list"])?;
    assert!(status == Some(0) && stopped.contains(&tag), "{stopped}");
    let (status, events) = rejoin(&["sessions", "--data", data, "export", &tag])?;
    let events: Vec<Value> = events.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!((status, events.len()), (Some(0), 3), "{events:?}");
    assert_eq!(events[2]["message"]["id"], 10, "{events:?}");
    let (status, nothing) = rejoin(&["sessions", "--data", "/nonexistent", "list"])?;
    assert!(status == Some(1) && nothing.contains("/nonexistent"), "{nothing}");
    Ok(())
}

#[tokio::test]
async fn a_call_that_an_operator_releases_refuses_nothing_any_more() -> TestResult {
    let mut bench = Bench::start(&["--stateless-upstream"]).await?;
    let session = bench.session().await?;
    let call = charge(10, 100, 50);
    session.call(&call).await?.messages(1).await?;
    let session = bench.kill(&session).await?;
    assert_eq!(refused(&session, &call.again(11)).await?.reason, "outcome_unknown");
    let admin = bench.gateway().log_line("admin on http://", WAIT).await?;
    let admin = admin.rsplit("http://").next().unwrap().trim().to_owned();
    let tag = rejoin_core::id::SessionId::new(session.id()).tag();
    let (_, calls) = rejoin(&["sessions", "--admin", &admin, "--json", "calls", &tag])?;
    let calls: Value = serde_json::from_str(&calls)?;
    let number = calls["calls"][0]["id"].to_string();
    let (status, said) = rejoin(&["sessions", "--admin", &admin, "release", &tag, &number])?;
    assert_eq!(status, Some(0), "{said}");
    let again = Call { arguments: json!({"amount": 7, "events": 1}), ..call.again(12) };
    assert!(answered(&session, &again).await?.get("result").is_some());
    let mut repeat = session.call(&call.again(13)).await?;
    repeat.messages(1).await?;
    assert_eq!(bench.charges()?, 3, "it runs again: the operator said so");
    Ok(())
}
