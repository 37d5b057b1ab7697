//! A claim of which nobody knows whether it is in the log: its POST is refused, and it is not taken
//! for a call that ran.

use std::sync::Arc;

use rejoin_core::settings::Settings;
use rejoin_store::fault::{Fault, FaultStore, Operation};
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use rejoin_testkit::call::Call;
use rejoin_testkit::failure::TestResult;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Bench, Greeting};

#[tokio::test]
async fn a_call_that_was_refused_runs_when_it_is_sent_again_though_its_claim_is_in_the_log()
-> TestResult {
    let directory = TempDir::new()?;
    let settings = Settings { upstream_is_stateless: true, ..Settings::default() };
    let options = SqliteOptions::new(Durability::Calls, &settings.limits);
    let log = Arc::new(FaultStore::new(Arc::new(SqliteStore::open(directory.path(), options)?)));
    let bench = Bench::start_from(log.clone(), Greeting::Agrees, settings).await?;
    let session = bench.session().await?;
    let calls = [("one", None), ("two", Some("t-2"))];
    for (id, (tool, token)) in (10..).step_by(10).zip(calls) {
        let mut call = Call::new(id, tool, json!({}));
        if let Some(token) = token {
            call = call.with_dedup_token(token);
        }
        // The claim is committed, and nobody is told so.
        log.inject(Operation::Commit, 1..=1, Fault::LoseAnswer);
        let refused = bench.ask(&session.post_request(&call.message())).await?;
        assert_eq!((refused.status(), refused.error().1), (503, json!(id)), "{refused:?}");
        assert_eq!(bench.server.runs(tool), 0);
        let answer = session.answer(&call.again(id + 1)).await?;
        assert!(answer.get("result").is_some(), "{answer}");
        assert_eq!(bench.server.runs(tool), 1);
    }
    Ok(())
}
