//! How `rejoin serve` ends: nothing that it started outlives it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::Path;
use std::process::Command;

use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::session::Session;

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");

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
    let arguments =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--", "sh", "-c", &script];
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
