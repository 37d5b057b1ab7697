//! A log that outlives the process, on a disk that fails for a while.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rejoin_core::settings::Settings;
use rejoin_gateway::Recovered;
use rejoin_gateway::gateway::Gateway;
use rejoin_store::Store;
use rejoin_store::fault::{Fault, FaultStore, Operation};
use rejoin_store::sqlite::{Durability, SqliteOptions, SqliteStore};
use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::{WAIT, pause, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::Session;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::support::{Bench, Greeting};

/// A gateway whose log is in a file, and can be made to fail.
struct Failing {
    bench: Bench,
    log: Arc<FaultStore>,
    _directory: TempDir,
}

impl Failing {
    async fn start() -> Result<Self, Failure> {
        Self::start_for(Settings::default().limits.sessions_max).await
    }

    async fn start_for(sessions_max: usize) -> Result<Self, Failure> {
        let directory = TempDir::new()?;
        let mut settings = Settings { upstream_is_stateless: true, ..Settings::default() };
        settings.limits.sessions_max = sessions_max;
        let options = SqliteOptions::new(Durability::Calls, &settings.limits);
        let store = Arc::new(SqliteStore::open(directory.path(), options)?);
        let log = Arc::new(FaultStore::new(store));
        let bench = Bench::start_from(log.clone(), Greeting::Agrees, settings).await?;
        Ok(Self { bench, log, _directory: directory })
    }

    /// Waits until nothing is stored of any session.
    async fn until_empty(&self) -> TestResult {
        until("an empty log", WAIT, async || {
            let sessions = self.log.usage().await?.sessions;
            Ok::<_, Failure>((sessions == 0).then_some(()))
        })
        .await
    }
}

#[tokio::test]
async fn a_session_whose_log_failed_goes_on_once_it_can_be_written() -> TestResult {
    let Failing { bench, log, _directory } = Failing::start().await?;
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
async fn a_session_that_could_not_be_deleted_stays_until_it_can() -> TestResult {
    let failing = Failing::start().await?;
    let session = failing.bench.session().await?;
    failing.log.inject(Operation::Commit, 1.., Fault::Fail(ErrorKind::StorageFull));
    assert_eq!(session.delete().await?, 503);
    assert_eq!(session.delete().await?, 503, "it is not gone");
    failing.log.clear();
    until("the deletion", WAIT, async || {
        let status = session.delete().await?;
        assert!(matches!(status, 204 | 503), "{status}");
        Ok::<_, Failure>((status == 204).then_some(()))
    })
    .await?;
    assert_eq!(session.notify("notifications/x", json!({})).await?, 404);
    failing.until_empty().await
}

#[tokio::test]
async fn a_session_that_was_deleted_without_word_of_it_is_gone_when_asked_for_again() -> TestResult
{
    let failing = Failing::start().await?;
    let session = failing.bench.session().await?;
    assert_eq!(session.notify("notifications/x", json!({})).await?, 202);
    failing.log.inject(Operation::Commit, 1..=1, Fault::LoseAnswer);
    assert_eq!(session.delete().await?, 503, "nobody knows");
    assert_eq!(session.delete().await?, 404);
    failing.until_empty().await
}

#[tokio::test]
async fn a_session_that_goes_on_has_the_place_that_it_had_whoever_asks_for_it() -> TestResult {
    let failing = Failing::start_for(1).await?;
    let session = failing.bench.session().await?;
    failing.log.inject(Operation::Commit, 1.., Fault::Fail(ErrorKind::StorageFull));
    assert_eq!(session.delete().await?, 503);
    let gate = Arc::new(Semaphore::new(0));
    failing.log.clear();
    failing.log.inject(Operation::Load, 1..=1, Fault::Hold(Arc::clone(&gate)));
    let both = async || {
        // The second waits while the first has it driven again.
        let second = async {
            until("the first", WAIT, async || {
                let loads = failing.log.calls(Operation::Load);
                Ok::<_, Failure>((loads > 0).then_some(()))
            })
            .await?;
            let asked = session.notify("notifications/x", json!({}));
            let released = async {
                pause(Duration::from_millis(100)).await;
                gate.add_permits(1);
            };
            let (asked, ()) = tokio::join!(asked, released);
            Ok::<_, Failure>(asked?)
        };
        let first = async { Ok::<_, Failure>(session.notify("notifications/x", json!({})).await?) };
        tokio::try_join!(first, second)
    };
    assert_eq!(both().await?, (202, 202));
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

/// What a session's next message gets at a gateway, which may be another than the one that opened
/// it.
async fn told(bench: &Bench, session: &Session) -> Result<u16, Failure> {
    Ok(session.by_way_of(bench.address).notify("notifications/x", json!({})).await?)
}

#[tokio::test]
async fn a_session_that_could_not_be_read_at_the_start_is_refused_until_it_can_be() -> TestResult {
    let Failing { bench, log, _directory } = Failing::start().await?;
    let session = bench.session().await?;
    assert_eq!(told(&bench, &session).await?, 202);
    bench.gateway.drain().await;

    let again = Bench::start_from(log.clone(), Greeting::Agrees, Settings::default()).await?;
    // The first lists the sessions.
    log.inject(Operation::Load, 2.., Fault::Fail(ErrorKind::InvalidData));
    let recovered = Gateway::recover(std::slice::from_ref(&again.gateway)).await?;
    assert_eq!(recovered, Recovered { sessions: 0, left: 1 });
    for _ in 0..2 {
        assert_eq!(told(&again, &session).await?, 503, "it is not gone");
    }
    log.clear();
    assert_eq!(told(&again, &session).await?, 202);
    Ok(())
}

#[tokio::test]
async fn a_session_beyond_the_cap_is_refused_until_there_is_a_place() -> TestResult {
    let Failing { bench, log, _directory } = Failing::start().await?;
    let sessions = [bench.session().await?, bench.session().await?];
    for session in &sessions {
        assert_eq!(told(&bench, session).await?, 202);
    }
    bench.gateway.drain().await;

    let mut settings = Settings::default();
    settings.limits.sessions_max = 1;
    let again = Bench::start_from(log.clone(), Greeting::Agrees, settings).await?;
    let recovered = Gateway::recover(std::slice::from_ref(&again.gateway)).await?;
    assert_eq!(recovered, Recovered { sessions: 1, left: 1 });
    let statuses = [told(&again, &sessions[0]).await?, told(&again, &sessions[1]).await?];
    assert!(matches!(statuses, [202, 503] | [503, 202]), "{statuses:?}");
    let (served, beyond) = match statuses {
        [202, _] => (&sessions[0], &sessions[1]),
        _ => (&sessions[1], &sessions[0]),
    };
    assert_eq!(served.by_way_of(again.address).delete().await?, 204);
    until("a place", WAIT, async || {
        let status = told(&again, beyond).await?;
        assert!(matches!(status, 202 | 503), "{status}");
        Ok::<_, Failure>((status == 202).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_session_whose_log_failed_is_driven_again_without_its_client_and_idles_out() -> TestResult
{
    let failing = Failing::start().await?;
    let session = failing.bench.session().await?;
    failing.log.inject(Operation::Commit, 1.., Fault::Fail(ErrorKind::StorageFull));
    assert_eq!(session.delete().await?, 503);
    failing.log.clear();
    let gateway = failing.bench.gateway.clone();
    let maintained = tokio::spawn(async move { gateway.maintain().await });
    for _ in 0..200 {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(30)).await;
        tokio::time::resume();
        pause(Duration::from_millis(20)).await;
        if failing.log.usage().await?.sessions == 0 {
            break;
        }
    }
    maintained.abort();
    assert!(failing.log.calls(Operation::Load) > 0, "it was driven again");
    assert_eq!(failing.log.usage().await?.sessions, 0, "and ended by its own timers");
    Ok(())
}

#[tokio::test]
async fn a_clock_that_was_put_back_before_a_restart_does_not_stretch_what_is_timed() -> TestResult {
    let Failing { bench, log, _directory } = Failing::start().await?;
    let session = bench.session().await?;
    let call = Call::new(1, "one", json!({}));
    let mut first = session.call(&call).await?;
    first.clean_rest().await?;
    // A stream that was resumed has no twins until its answer is delivered for `owed_grace_ms`.
    let id = |place: usize| first.events()[place].id.clone();
    session.get(id(0).as_deref()).await?.clean_rest().await?;
    assert_eq!(
        session.get(id(first.events().len() - 1).as_deref()).await?.head().await?.status,
        405
    );
    bench.gateway.drain().await;

    let mut settings = Settings { upstream_is_stateless: true, ..Settings::default() };
    settings.limits.retry_ms = 50;
    settings.limits.owed_grace_ms = Some(200);
    let again = Bench::start_from(log.clone(), Greeting::Agrees, settings).await?;
    log.put_clock_back(3_600_000);
    let recovered = Gateway::recover(std::slice::from_ref(&again.gateway)).await?;
    assert_eq!(recovered, Recovered { sessions: 1, left: 0 });
    let session = session.by_way_of(again.address);
    until("the same call as a new one", WAIT, async || {
        let answer = session.answer(&call.again(2)).await?;
        let is_refused = answer["error"]["data"]["reason"] == "request_in_flight";
        assert!(is_refused || answer.get("result").is_some(), "{answer}");
        Ok::<_, Failure>((!is_refused).then_some(()))
    })
    .await?;
    assert_eq!(again.server.runs("one"), 1, "at this gateway");
    Ok(())
}
