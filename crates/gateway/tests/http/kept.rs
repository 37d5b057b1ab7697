//! A log that outlives the process, on a disk that fails for a while.

use std::io::ErrorKind;
use std::sync::Arc;

use rejoin_core::settings::Settings;
use rejoin_store::fault::{Fault, FaultStore, Operation};
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Bench, Greeting};

#[tokio::test]
async fn a_session_whose_log_failed_goes_on_once_it_can_be_written() -> TestResult {
    let directory = TempDir::new()?;
    let settings = Settings { upstream_is_stateless: true, ..Settings::default() };
    let options = SqliteOptions::new(Durability::Calls, &settings.limits);
    let log = Arc::new(FaultStore::new(Arc::new(SqliteStore::open(directory.path(), options)?)));
    let bench = Bench::start_from(log.clone(), Greeting::Agrees, settings).await?;
    let session = bench.session().await?;
    let mut first = session.call(&Call::new(1, "one", json!({}))).await?;
    first.clean_rest().await?;
    let origin = first.events()[0].id.clone().unwrap();

    log.inject(Operation::Commit, 1.., Fault::Fail(ErrorKind::StorageFull));
    let call = Call::new(2, "two", json!({}));
    let refused = bench.ask(&session.post_request(&call.message())).await?;
    assert_eq!((refused.status(), refused.error().1), (503, json!(2)), "{refused:?}");
    assert_eq!(session.notify("notifications/x", json!({})).await?, 503, "it is not gone");
    assert_eq!(bench.server.runs("two"), 0, "nothing is sent that is not in the log");

    log.clear();
    until("the session", WAIT, async || {
        let taken = session.notify("notifications/x", json!({})).await?;
        Ok::<_, Failure>((taken == 202).then_some(()))
    })
    .await?;
    let answer = session.answer(&call.again(3)).await?;
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(bench.server.runs("two"), 1);
    let mut again = session.get(Some(&origin)).await?;
    again.clean_rest().await?;
    assert_eq!(again.events().last().and_then(|event| event.message()).unwrap()["id"], 1);
    Ok(())
}
