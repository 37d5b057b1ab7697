//! The stock server, without a gateway: it does what the other cases take for granted.

use rejoin_testkit::check;
use rejoin_testkit::count::CountFile;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::{Identity, Session};

use crate::server::{Kind, Need, Upstream, needs};
use crate::support::{assert_result, charge_with, get};

/// A session with the chosen server itself.
struct Direct {
    session: Session,
    count: CountFile,
    upstream: Upstream,
    _folder: tempfile::TempDir,
}

impl Direct {
    async fn start() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let count = CountFile::at(folder.path().join("count"));
        let upstream = Upstream::start(&count, false).await?;
        let place = upstream.place.clone();
        let (address, path) = place.ok_or_else(|| Failure::new("no address"))?;
        let session = Session::open_at(address, &path, Identity::default()).await?;
        Ok(Self { session, count, upstream, _folder: folder })
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.upstream.show_log();
    }
}

#[tokio::test]
async fn the_stock_server_sends_progress_and_a_result_that_names_its_call() -> TestResult {
    needs!(Address);
    let direct = Direct::start().await?;
    let call = charge_with(10, 7, 4, 20);
    let mut stream = direct.session.call(&call).await?;
    let response = stream.response().await?;
    assert_eq!(check::progress(stream.events(), &call.progress_token)?, [1, 2, 3, 4]);
    assert_result(&response, 10, 1);
    assert_eq!(Kind::chosen().amount(&response), Some(7));
    assert_eq!(direct.count.runs("charge")?, 1);
    assert_eq!(direct.count.runs_with("charge", "amount", &7.into())?, 1);
    assert!(direct.session.answer(&get(11)).await?.get("result").is_some());
    assert_eq!(direct.count.runs("get")?, 1);
    Ok(())
}

#[tokio::test]
async fn the_stock_server_runs_the_same_call_again() -> TestResult {
    needs!(Address);
    let direct = Direct::start().await?;
    for id in 1..=3 {
        assert_result(&direct.session.answer(&charge_with(id, 1, 0, 0)).await?, id, id);
    }
    let mut failing = charge_with(10, 1, 0, 0);
    Kind::chosen().fail(&mut failing);
    let response = direct.session.answer(&failing).await?;
    assert_eq!(response["result"]["isError"], true, "{response}");
    assert_eq!(direct.count.runs("charge")?, 4);
    Ok(())
}

#[tokio::test]
async fn the_stock_server_asks_its_client_on_the_stream_of_the_call() -> TestResult {
    needs!(Address);
    let direct = Direct::start().await?;
    let mut stream = direct.session.call(&Kind::chosen().ask(10)).await?;
    let question = stream.message().await?.message().unwrap_or_default();
    assert_eq!(question["method"], "elicitation/create");
    let status = direct.session.respond(&question["id"], Kind::chosen().yes()).await?;
    assert_eq!(status, 202);
    let response = stream.response().await?;
    assert!(Kind::chosen().says_yes(&response), "{response}");
    assert_eq!(direct.count.runs("ask")?, 1);
    Ok(())
}

#[tokio::test]
async fn the_stock_server_answers_a_session_it_does_not_know_as_assumed() -> TestResult {
    needs!(Address);
    let direct = Direct::start().await?;
    let call = direct.session.post_request(&get(10).message());
    let unknown = call.header("Mcp-Session-Id", "0123456789abcdef0123456789abcdef");
    let status = direct.session.send(&unknown).await?.head().await?.status;
    let lacks = Kind::chosen().lacks(Need::NotFound).is_some();
    assert_eq!(status, if lacks { 400 } else { 404 });
    Ok(())
}
