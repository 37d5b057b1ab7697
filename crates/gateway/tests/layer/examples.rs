//! The examples, as they are built: they run, and keep the promise.

use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::session::Session;
use serde_json::json;

use crate::support::{charge, refused, resume_complete, text};

/// An example's program: cargo puts it beside the folder of the test's own.
fn program(name: &str) -> Result<String, Failure> {
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).map(|folder| folder.join("examples"));
    let program: PathBuf = folder.unwrap_or_default().join(name);
    if !program.is_file() {
        let what = format!("{} is not built: run cargo build --examples", program.display());
        return Err(Failure::new(what));
    }
    Ok(program.display().to_string())
}

async fn executed(session: &Session, id: u64) -> Result<String, Failure> {
    Ok(text(&session.answer(&Call::new(id, "count", json!({}))).await?).to_owned())
}

/// Ends the example as a person does, and gives whether it ended well.
async fn interrupt(mut server: Server) -> Result<bool, Failure> {
    kill(Pid::from_raw(i32::try_from(server.pid())?), Signal::SIGINT)?;
    Ok(server.ended(WAIT).await?.success())
}

#[tokio::test]
async fn the_rmcp_example_keeps_its_promise() -> TestResult {
    let mut server = Server::start(&program("rmcp")?, ["127.0.0.1:0"])?;
    let session = Session::open(server.address("listening", WAIT).await?).await?;
    let call = charge(10, 1, 40, 50);
    let mut connection = session.call(&call).await?;
    let cursor = connection.messages(5).await?;
    connection.cut_rst()?;
    // From here on its stream is known to have lost the connection.
    let answer = resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(text(&answer), "charge number 1");
    assert_eq!(executed(&session, 11).await?, "1");
    assert!(interrupt(server).await?);
    Ok(())
}

#[tokio::test]
async fn the_axum_example_gives_a_plain_answer_as_a_stream_that_can_be_resumed() -> TestResult {
    let mut server = Server::start(&program("axum")?, ["127.0.0.1:0"])?;
    let address = server.address("listening", WAIT).await?;
    let session = Session::open(address).await?;
    let call = charge(10, 1, 0, 1_500);
    let mut connection = session.call(&call).await?;
    let cursor = connection.event().await?.id.ok_or_else(|| Failure::new("no origin"))?;
    connection.cut_rst()?;
    let mut resumed = session.get(Some(&cursor)).await?;
    resumed.head().await?;
    let refusal = refused(&session, &call.again(11)).await?;
    assert_eq!(refusal.reason, "request_in_flight");
    assert_eq!(text(&resumed.response().await?), "charge number 1");
    assert_eq!(executed(&session, 12).await?, "1");
    assert!(interrupt(server).await?);
    Ok(())
}
