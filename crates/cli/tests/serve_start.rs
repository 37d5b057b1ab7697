//! How `rejoin serve` refuses to start, and what it says of what it refuses later.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::net::TcpListener;
use std::process::Command;

use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::session::Session;
use serde_json::json;

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
const ANYWHERE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// What `rejoin serve` says on standard error when it does not start.
fn refusal(arguments: &[&str], variables: &[(&str, &str)]) -> Result<String, Failure> {
    let mut command = Command::new(REJOIN);
    command.args(ANYWHERE).args(["--log", "error"]).args(arguments);
    let output = command.envs(variables.iter().copied()).output()?;
    assert!(!output.status.success(), "{arguments:?}");
    Ok(String::from_utf8(output.stderr)?)
}

fn tells_once(said: &str, cause: &str) {
    assert_eq!(said.matches(cause).count(), 1, "{cause}: {said}");
    assert!(said.starts_with("rejoin serve: ") && said.lines().count() == 1, "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn every_start_error_tells_its_cause_once() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (absent, bad) = (path("absent"), path("bad"));
    std::fs::write(&bad, "Bearer secret\n")?;
    let url = "https://tools.example/mcp";
    let cases = [
        (vec!["--subjects", &absent], "No such file"),
        (vec!["--subjects", &bad], "line 1 "),
        (vec!["--upstream", url, "--upstream-ca", &absent], "No such file"),
        (vec!["--upstream", url, "--upstream-header", "host"], "cannot be forwarded"),
        (vec!["--limit", "session_streams_max=1"], "must be at least 2"),
        (vec!["--limit", "retry_ms=8000"], "must be at least 4 x retry_ms"),
        (vec!["--owed-grace", "20000"], "must be more than owed_grace_ms"),
    ];
    for (arguments, cause) in cases {
        tells_once(&refusal(&arguments, &[])?, cause);
    }
    tells_once(&refusal(&[], &[("TMPDIR", &absent)])?, "No such file");
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?;
    let cause = TcpListener::bind(address).unwrap_err().to_string();
    let log = ["--log", "error", "--admin", "127.0.0.1:0"];
    let mut command = Command::new(REJOIN);
    let output = command.args(["serve", "--listen", &address.to_string()]).args(log).output()?;
    tells_once(&String::from_utf8(output.stderr)?, &cause);
    Ok(())
}

#[test]
fn what_is_no_origin_is_refused_with_an_example_of_one() -> TestResult {
    for origin in ["x", "app.example", "https://"] {
        let said = refusal(&["--allow-origin", origin], &[])?;
        assert!(said.contains("--allow-origin") && said.contains("https://app.example"), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_for_room_names_the_limit_in_the_log() -> TestResult {
    let few = "session_streams_max=2 request_bodies_bytes_max=1 sessions_max=1";
    let few: Vec<&str> = few.split(' ').flat_map(|limit| ["--limit", limit]).collect();
    let mut gateway = Server::start(REJOIN, [&ANYWHERE[..], &few].concat())?;
    let session = Session::open(gateway.address("listens", WAIT).await?).await?;
    let charge = |id, amount: u64| {
        Call::new(id, "charge", json!({"amount": amount, "events": 100, "interval_ms": 100}))
    };
    let mut running = session.call(&charge(1, 1)).await?;
    running.messages(1).await?;
    let refused = session.answer(&charge(2, 2)).await?;
    assert_eq!(refused["error"]["code"], 40909, "{refused}");
    let large = Call::new(3, "charge", json!({"amount": 3, "note": "x".repeat(200_000)}));
    let refused = session.call(&large).await?.head().await?;
    assert_eq!(refused.status, 503);
    let address = session.address();
    assert!(Session::open(address).await.is_err());
    for limit in ["session_streams_max", "request_bodies_bytes_max", "sessions_max"] {
        let warned = gateway.log_line(&format!("`--limit {limit}=`"), WAIT).await?;
        assert!(warned.contains("WARN"), "{warned}");
    }
    Ok(())
}

#[tokio::test]
async fn the_end_of_an_idle_session_is_logged() -> TestResult {
    let short = ["--limit", "session_idle_ms=100"];
    let mut gateway = Server::start(REJOIN, [&ANYWHERE[..], &short].concat())?;
    Session::open(gateway.address("listens", WAIT).await?).await?;
    let told = gateway.log_line("a session ends: its client was idle", WAIT).await?;
    assert!(told.contains("INFO"), "{told}");
    Ok(())
}
