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
    let piped = path("piped");
    std::fs::write(&piped, format!("{}  -\n", "5e".repeat(32)))?;
    let url = "https://tools.example/mcp";
    let no_file = format!("file:{absent}");
    let cases = [
        (vec!["--subjects", &absent], "No such file"),
        (vec!["--subjects", &bad], "line 1 "),
        (vec!["--subjects", &piped], "line 1 names no subject: write `<hash> <subject>`"),
        (vec!["--upstream", url, "--upstream-ca", &absent], "No such file"),
        (vec!["--upstream", url, "--upstream-ca", &absent], "--upstream-ca: the CA file `/"),
        (vec!["--upstream", url, "--upstream-ca", &bad], "-----BEGIN CERTIFICATE-----"),
        (vec!["--upstream", url, "--upstream-header", "host"], "--upstream-header: the header"),
        (vec!["--upstream", "banana?k=secret"], "--upstream banana: it is not a URL"),
        (vec!["--upstream", "http://me:secret@h/x"], "--upstream http://h/x: the URL holds a user"),
        (vec!["--upstream", "http:/me:secret@h/x"], "--upstream a URL that cannot be read: it"),
        (vec!["--upstream", "http://h/x#secret"], "--upstream http://h/x: the URL has a fragment"),
        (vec!["--upstream", url, "--upstream-auth", "env:NO_SUCH"], "variable `NO_SUCH` is not"),
        (vec!["--upstream", url, "--upstream-auth", &no_file], "--upstream-auth: the file `/"),
        (vec!["--upstream", url, "--upstream-auth", &no_file], "No such file"),
        (vec!["--limit", "session_streams_max=1"], "must be at least 2"),
        (vec!["--limit", "retry_ms=8000"], "must be at least 4 x retry_ms"),
        (vec!["--owed-grace", "20000", "--limit", "hold_max_ms=9"], "--owed-grace 20000, --limit"),
        (vec!["--owed-grace", "9000", "--limit", "owed_grace_ms=9000"], "leave one of them out"),
    ];
    for (arguments, cause) in cases {
        tells_once(&refusal(&arguments, &[])?, cause);
    }
    tells_once(&refusal(&[], &[("TMPDIR", &absent)])?, "No such file");
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?;
    let cause = TcpListener::bind(address).unwrap_err().to_string();
    for (option, other) in [("--listen", "--admin"), ("--admin", "--listen")] {
        let places = [option, &address.to_string(), other, "127.0.0.1:0"];
        let mut command = Command::new(REJOIN);
        let output = command.arg("serve").args(places).args(["--log", "error"]).output()?;
        let said = String::from_utf8(output.stderr)?;
        tells_once(&said, &cause);
        assert!(said.starts_with(&format!("rejoin serve: {option}: cannot listen on ")), "{said}");
    }
    Ok(())
}

#[test]
fn a_command_without_two_dashes_is_told_where_they_belong() -> TestResult {
    let hint = "put `--` before the command of an MCP server: -- npx";
    let said = refusal(&["npx", "-y", "server"], &[])?;
    assert!(said.contains(hint), "{said}");
    let said = refusal(&["http://127.0.0.1:3001/mcp"], &[])?;
    assert!(said.contains("--upstream http://127.0.0.1:3001/mcp"), "{said}");
    assert!(!said.contains("put `--`"), "{said}");
    let said = refusal(&["--nonsense"], &[])?;
    assert!(!said.contains("put `--`"), "{said}");
    Ok(())
}

#[test]
fn every_limit_is_listed_on_request() -> TestResult {
    let output = Command::new(REJOIN).args(["serve", "--limit", "help"]).output()?;
    assert!(output.status.success());
    let listed = String::from_utf8(output.stdout)?;
    let hold = listed.lines().find(|line| line.starts_with("hold_max_ms=10000 "));
    assert!(hold.is_some_and(|line| line.contains(" milliseconds ")), "{listed}");
    let said = refusal(&["--limit", "hold_max_ms=10s"], &[])?;
    assert!(said.contains("whole number of milliseconds"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_named_at_the_start_with_what_to_do() -> TestResult {
    let folder = tempfile::tempdir()?;
    let text = folder.path().join("README.md");
    std::fs::write(&text, "# Read me")?;
    let text = text.display().to_string();
    for (command, remedy) in
        [("no-such-server", "installed and on PATH"), (&text[..], "make it executable")]
    {
        let mut gateway = Server::start(REJOIN, [&ANYWHERE[..], &["--", command]].concat())?;
        gateway.address("listens", WAIT).await?;
        let told = gateway.log_line(&format!("cannot start `{command}`: "), WAIT).await?;
        assert!(told.contains("WARN") && told.contains(remedy), "{told}");
        // The cause comes first.
        assert!(told.ends_with("; until then every initialize fails"), "{told}");
    }
    let mut gateway = Server::start(REJOIN, [&ANYWHERE[..], &["--", "sh"]].concat())?;
    gateway.address("listens", WAIT).await?;
    assert_eq!(gateway.log_count(&["WARN"]), 0);
    Ok(())
}

#[tokio::test]
async fn limits_that_follow_the_grace_are_told_at_the_start() -> TestResult {
    let mut gateway = Server::start(REJOIN, [&ANYWHERE[..], &["--owed-grace", "20000"]].concat())?;
    gateway.address("listens", WAIT).await?;
    let told = gateway.log_line("hold_max_ms=22000 goes with owed_grace_ms=20000", WAIT).await?;
    assert!(told.contains("INFO"), "{told}");
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
