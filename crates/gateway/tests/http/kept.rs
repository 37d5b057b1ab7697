//! A log that outlives the process, on a disk that fails for a while.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

#[tokio::test]
async fn a_call_that_runs_while_the_log_fails_goes_on_once_it_can_be_written() -> TestResult {
    let directory = TempDir::new()?;
    let settings = Settings::default();
    let options = SqliteOptions::new(Durability::Calls, &settings.limits);
    let log = Arc::new(FaultStore::new(Arc::new(SqliteStore::open(directory.path(), options)?)));
    let bench = Bench::start_from(log.clone(), Greeting::Continues, settings).await?;
    let session = bench.session().await?;
    let call = Call::new(1, "hang", json!({})).with_progress_token("p");
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(1).await?;

    log.inject(Operation::Commit, 1.., Fault::Fail(ErrorKind::StorageFull));
    let other = Call::new(2, "two", json!({}));
    let refused = bench.ask(&session.post_request(&other.message())).await?;
    assert_eq!(refused.status(), 503, "{refused:?}");
    until("the server to be left", WAIT, async || {
        Ok::<_, Failure>((bench.server.left.load(Ordering::SeqCst) == 1).then_some(()))
    })
    .await?;

    log.clear();
    let mut again = until("the session", WAIT, async || {
        let mut again = session.get(Some(&cursor)).await?;
        Ok::<_, Failure>((again.head().await?.status == 200).then_some(again))
    })
    .await?;
    assert_eq!(again.response().await?["result"]["picked"], "up");
    assert_eq!(*bench.server.picked_up.lock().unwrap(), ["at 1".into()]);
    assert_eq!(bench.server.runs("hang"), 1, "nothing was sent again");
    let next = session.answer(&other.again(3)).await?;
    assert!(next.get("result").is_some(), "its server has lost nothing: {next}");
    Ok(())
}
