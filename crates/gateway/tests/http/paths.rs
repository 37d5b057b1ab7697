//! The endpoint with and without a slash at its end: one endpoint.

use rejoin_testkit::call::Call;
use rejoin_testkit::failure::TestResult;
use rejoin_testkit::session::{Identity, Session};
use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn a_session_of_one_path_goes_on_at_the_other() -> TestResult {
    let bench = Bench::start().await?;
    let session = Session::open_at(bench.address, "/mcp/", Identity::default()).await?;
    let answer = session.answer(&Call::new(1, "echo", json!({"n": 1}))).await?;
    assert_eq!(answer["result"]["echo"]["n"], 1, "{answer}");
    let mut lost = session.call(&Call::new(2, "hang", json!({}))).await?;
    let cursor = lost.messages(1).await?;
    lost.cut_rst()?;
    let resuming =
        bench.bare("GET").header("Mcp-Session-Id", session.id()).header("Last-Event-ID", &cursor);
    let mut resumed = session.send(&resuming).await?;
    assert_eq!(resumed.head().await?.status, 200);
    // The first event of a resumed stream repeats the cursor.
    assert_eq!(resumed.event().await?.id, Some(cursor));
    Ok(())
}
