//! SIGTERM while answers are on their way: they arrive before the gateway ends.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::process::Command;

use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::raw::Connection;
use rejoin_testkit::session::Session;
use serde_json::{Value, json};

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
/// More than sockets and frames buffer.
const ANSWER_BYTES: u64 = 12_000_000;

struct Draining {
    gateway: Server,
    session: Session,
    call: Connection,
}

/// A call with a large answer, whose gateway is told to end while it runs.
async fn told_to_end() -> Result<Draining, Failure> {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut gateway = Server::start(REJOIN, arguments)?;
    let session = Session::open(gateway.address("listens", WAIT).await?).await?;
    let arguments = json!({
        "amount": 1, "events": 2, "interval_ms": 400, "result_bytes": ANSWER_BYTES,
    });
    let mut call = session.call(&Call::new(1, "charge", arguments)).await?;
    call.messages(1).await?;
    let signal = Command::new("kill").args(["-TERM", &gateway.pid().to_string()]).status()?;
    assert!(signal.success());
    gateway.log_line("a second signal ends at once", WAIT).await?;
    Ok(Draining { gateway, session, call })
}

fn is_whole(answer: &Value) -> bool {
    answer["id"] == 1 && answer["result"].to_string().len() as u64 > ANSWER_BYTES
}

fn last_message(stream: &Connection) -> Value {
    stream.events().iter().rev().find_map(|event| event.message()).unwrap()
}

#[tokio::test]
async fn an_answer_that_a_living_client_reads_arrives_whole() -> TestResult {
    let Draining { mut gateway, mut call, .. } = told_to_end().await?;
    call.clean_rest().await?;
    assert!(is_whole(&last_message(&call)));
    assert_eq!(gateway.ended(WAIT).await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn an_owed_answer_is_kept_for_a_client_that_comes_back() -> TestResult {
    let Draining { mut gateway, session, call } = told_to_end().await?;
    let cursor = call.last_id().unwrap().to_owned();
    call.cut_rst()?;
    gateway.log_line("owed", WAIT).await?;
    let mut resumed = session.get(Some(&cursor)).await?;
    resumed.clean_rest().await?;
    assert!(is_whole(&last_message(&resumed)));
    assert_eq!(gateway.ended(WAIT).await?.code(), Some(0));
    Ok(())
}
