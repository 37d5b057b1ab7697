//! How `rejoin serve` ends: nothing that it started outlives it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::session::Session;
use serde_json::json;

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
/// For `env`: Rejoin as it is outside of nohup, under which these tests may run.
const HEARS_HANGUPS: [&str; 2] = ["--default-signal=HUP", REJOIN];
const ANYWHERE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// True once a process has exited, reaped or not.
fn is_dead(id: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(id).join("stat"));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
        || !Path::new("/proc").join(id).exists()
}

#[tokio::test]
async fn a_second_signal_ends_at_once_even_a_server_that_ignores_the_first() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("pid");
    let script = format!(
        "trap '' TERM INT; echo $$ > {}; {REJOIN} tool-server; while :; do sleep 1; done",
        file.display()
    );
    let arguments = [&ANYWHERE[..], &["--", "sh", "-c", &script]].concat();
    let mut gateway = Server::start(REJOIN, arguments)?;
    let address = gateway.address("listens", WAIT).await?;
    Session::open(address).await?;
    let server = std::fs::read_to_string(&file)?.trim().to_owned();
    assert!(!is_dead(&server));
    let first = Command::new("kill").args(["-TERM", &gateway.pid().to_string()]).status()?;
    assert!(first.success());
    gateway.log_line("a second signal ends at once", WAIT).await?;
    let status = gateway.end(WAIT).await?;
    assert_eq!(status.code(), Some(143));
    until("the end of the server", WAIT, async || Ok::<_, Failure>(is_dead(&server).then_some(())))
        .await
}

fn signal(name: &str, id: u32) -> TestResult {
    assert!(Command::new("kill").args([name, &id.to_string()]).status()?.success());
    Ok(())
}

/// Reads the line with the URL, and closes whatever else could be read, as a terminal that goes.
fn start_and_close_the_log(mut command: Command) -> Result<Child, Failure> {
    let mut gateway = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(gateway.stdout.take().unwrap()).read_line(&mut line)?;
    assert!(line.contains("listens"), "{line}");
    drop(gateway.stderr.take());
    Ok(gateway)
}

async fn status_of(mut gateway: Child) -> Result<ExitStatus, Failure> {
    until("the end of the gateway", WAIT, async || Ok::<_, Failure>(gateway.try_wait()?)).await
}

#[tokio::test]
async fn a_closed_terminal_ends_the_gateway_gracefully() -> TestResult {
    let mut command = Command::new("env");
    command.args(HEARS_HANGUPS).args(ANYWHERE);
    let gateway = start_and_close_the_log(command)?;
    signal("-HUP", gateway.id())?;
    assert_eq!(status_of(gateway).await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn a_second_hangup_is_no_order_to_end_at_once() -> TestResult {
    let mut gateway = Server::start("env", [&HEARS_HANGUPS[..], &ANYWHERE].concat())?;
    let session = Session::open(gateway.address("listens", WAIT).await?).await?;
    let arguments = json!({"amount": 1, "events": 3, "interval_ms": 200});
    let mut running = session.call(&Call::new(1, "charge", arguments)).await?;
    running.messages(1).await?;
    signal("-HUP", gateway.pid())?;
    gateway.log_line("a second signal ends at once", WAIT).await?;
    signal("-HUP", gateway.pid())?;
    assert_eq!(running.response().await?["result"]["structuredContent"]["amount"], 1);
    assert_eq!(gateway.ended(WAIT).await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn a_hangup_that_was_ignored_at_the_start_stays_so_and_with_subjects_rereads() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("subjects");
    std::fs::write(&file, "# nobody yet\n")?;
    let line = format!("trap '' HUP; exec {REJOIN} {}", ANYWHERE.join(" "));
    let mut nohup = Server::start("sh", ["-c", &line])?;
    let with = ["--subjects", &file.display().to_string()];
    let mut mapped = Server::start(REJOIN, [&ANYWHERE[..], &with].concat())?;
    for gateway in [&mut nohup, &mut mapped] {
        let address = gateway.address("listens", WAIT).await?;
        signal("-HUP", gateway.pid())?;
        Session::open(address).await?;
    }
    mapped.log_line("the subjects were read again", WAIT).await?;
    assert_eq!(nohup.end(WAIT).await?.code(), Some(0));
    assert_eq!(nohup.log_count(&["signal=Hangup"]), 0);
    assert_eq!(mapped.end(WAIT).await?.code(), Some(0));
    Ok(())
}
