//! 409 or 200, 405, and what the headers of streams say.

use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::{Identity, Session};
use serde_json::json;

use crate::support::{Bench, request};

/// Posts a call that gets no answer, and loses its connection once it has begun; gives the cursor.
async fn lost(bench: &Bench, session: &Session) -> Result<String, Failure> {
    let mut stream = session.call(&hang(1)).await?;
    let cursor = stream.messages(1).await?;
    stream.cut_rst()?;
    until("the loss", WAIT, async || {
        let owed = bench.metric("rejoin_streams{state=\"owed\"}").await?;
        Ok::<_, Failure>((owed == Some(1.0)).then_some(()))
    })
    .await?;
    Ok(cursor)
}

fn hang(id: u64) -> Call {
    Call::new(id, "hang", json!({}))
}

#[tokio::test]
async fn a_repeat_is_refused_with_409_or_with_200_where_409_costs_the_session() -> TestResult {
    for (agent, status) in
        [("node", 409), ("python-httpx2/2.16.2", 409), ("python-httpx/0.28.1", 200)]
    {
        let bench = Bench::start().await?;
        let user_agent = Some(agent.to_owned());
        let session = bench.session_as(Identity { user_agent, ..Identity::default() }).await?;
        lost(&bench, &session).await?;
        let answer = bench.ask(&session.post_request(&hang(2).message())).await?;
        assert_eq!((answer.status(), answer.error()), (status, (40902, json!(2))), "{agent}");
        let header = |name| answer.head.header(name);
        assert_eq!(header("mcp-stream-resumable"), Some("true"));
        assert_eq!((header("cache-control"), header("retry-after")), (Some("no-store"), Some("2")));
        let cursor = &answer.json()["error"]["data"]["lastEventId"];
        assert_eq!(cursor.as_str(), header("last-event-id"));
        assert_eq!(bench.server.runs("hang"), 1);
        let refused = "rejoin_posts_total{verdict=\"reject\",reason=\"request_in_flight\"}";
        assert_eq!(bench.metric(refused).await?, Some(1.0));
        assert_eq!(bench.metric("rejoin_repeats_prevented_total").await?, Some(1.0));
    }
    Ok(())
}

#[tokio::test]
async fn streams_say_that_they_can_be_resumed_and_how_far_a_replay_goes() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let mut stream = session.call(&hang(1)).await?;
    let head = stream.head().await?;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("mcp-stream-resumable", "true"),
        ("mcp-session-id", session.id()),
    ] {
        assert_eq!(head.header(name), Some(value), "{name}");
    }
    assert_eq!(head.header("mcp-replay-until"), None);
    let origin = stream.event().await?.id.unwrap_or_default();
    let produced = stream.messages(1).await?;
    stream.cut_rst()?;
    let mut resumed = session.get(Some(&origin)).await?;
    let head = resumed.head().await?;
    assert_eq!((head.status, head.header("mcp-replay-until")), (200, Some(produced.as_str())));
    assert_eq!(bench.metric("rejoin_events_replayed_total").await?, Some(1.0));
    Ok(())
}

#[tokio::test]
async fn every_cursor_that_leads_nowhere_is_answered_with_the_same_bytes() -> TestResult {
    let bench = Bench::start().await?;
    let (session, other) = (bench.session().await?, bench.session().await?);
    let foreign = lost(&bench, &other).await?;
    let expected = bench.ask(&session.get_request(Some("garbage"))).await?.without_date();
    assert_eq!(
        (expected.status(), expected.head.header("allow")),
        (405, Some("GET, POST, DELETE"))
    );
    for cursor in [foreign.as_str(), "00000000-1-1", "-"] {
        let answer = bench.ask(&session.get_request(Some(cursor))).await?;
        assert_eq!(answer.without_date(), expected, "{cursor}");
    }
    Ok(())
}

#[tokio::test]
async fn an_acknowledgement_counts_on_any_request() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let cursor = lost(&bench, &session).await?;
    assert_eq!(bench.metric("rejoin_events_owed").await?, Some(1.0));
    let ping = session.post_request(&request(2, "ping"));
    let acknowledging = ping.header("Mcp-Stream-Ack", &format!("garbage, {cursor}"));
    assert_eq!(bench.ask(&acknowledging).await?.status(), 200);
    assert_eq!(bench.metric("rejoin_events_owed").await?, Some(0.0));
    Ok(())
}
