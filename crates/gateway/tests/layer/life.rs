//! Sessions, mounts and the end of an application.

use http::Version;
use http::header::HOST;
use rejoin_testkit::check::{Owed, complete};
use rejoin_testkit::deadline::{WAIT, until, within};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::{Identity, Session};
use tower_service::Service as _;

use crate::support::{Bench, LISTENERS, Listener, charge, initialize, json_of, text};

#[tokio::test]
async fn a_deleted_session_is_gone_and_so_is_the_one_behind_it() -> TestResult {
    for listener in LISTENERS {
        let bench = Bench::start(listener).await?;
        let (session, other) = (bench.session().await?, bench.session().await?);
        assert_eq!(bench.sessions.sessions.read().await.len(), 2);
        assert_eq!(session.delete().await?, 204, "{listener:?}");
        assert_eq!(session.call(&charge(10, 1, 0, 0)).await?.head().await?.status, 404);
        until::<_, Failure>("the end of rmcp's session", WAIT, async || {
            Ok((bench.sessions.sessions.read().await.len() == 1).then_some(()))
        })
        .await?;
        assert_eq!(text(&other.answer(&charge(10, 1, 0, 0)).await?), "charge number 1");
    }
    Ok(())
}

#[tokio::test]
async fn a_slash_behind_the_mount_makes_no_difference() -> TestResult {
    let bench = Bench::start(Listener::Rejoin).await?;
    let session = Session::open_at(bench.address, "/mcp/", Identity::default()).await?;
    assert_eq!(text(&session.answer(&charge(10, 1, 0, 0)).await?), "charge number 1");
    Ok(())
}

#[tokio::test]
async fn at_the_end_running_calls_finish_and_nothing_new_begins() -> TestResult {
    for listener in LISTENERS {
        let mut bench = Bench::start(listener).await?;
        let session = bench.session().await?;
        let call = charge(10, 1, 20, 30);
        let mut running = session.call(&call).await?;
        running.messages(2).await?;
        bench.stop.take().unwrap().send(()).unwrap();
        until::<_, Failure>("the drain", WAIT, async || {
            Ok(bench.service.gateway().is_draining().then_some(()))
        })
        .await?;
        let mut late = session.call(&charge(11, 2, 0, 0)).await?;
        assert_eq!(late.head().await?.status, 503, "{listener:?}");
        drop(late);
        running.clean_rest().await?;
        let progress_token = &call.progress_token;
        complete(running.events(), &Owed { progress_token, id: 10, first: 1, last: 20 })?;
        drop(running);
        within("the end of the application", WAIT, &mut bench.serving).await?.unwrap();
        assert_eq!(bench.charges.executed(), 1, "{listener:?}");
        assert!(bench.sessions.sessions.read().await.is_empty(), "{listener:?}");
    }
    Ok(())
}

/// HTTP/2 has no `Host`: the host stands in the target, as a server of it hands requests over.
#[tokio::test]
async fn a_request_of_http_2_is_let_in_by_its_target_wherever_it_is_mounted() -> TestResult {
    let bench = Bench::start(Listener::Rejoin).await?;
    for (host, status) in [("localhost", 200), ("tools.example", 200), ("evil.example", 403)] {
        let mut request = initialize(host, Version::HTTP_2)?;
        request.headers_mut().remove(HOST);
        let response = bench.service.clone().call(request).await?;
        assert_eq!(response.status(), status, "{host}");
        if status == 200 {
            assert!(response.headers().contains_key("mcp-session-id"));
            let answer = json_of(response).await?;
            assert!(answer["result"]["capabilities"]["tools"].is_object(), "{answer}");
        }
    }
    Ok(())
}
