//! C, G, H, K: a client resumes a stream with GET and the last event id it read.

use std::time::Duration;

use rejoin_testkit::check::{self, complete};
use rejoin_testkit::deadline::pause;
use rejoin_testkit::failure::TestResult;
use rejoin_testkit::raw::{Connection, End};

use crate::support::{
    Bench, answered, assert_result, charge, charge_with, cut, drop_after, end_unseen, get,
    is_record, owed, resume, resume_complete, short_charge,
};

/// The answers of K that lie unread in the kernel fit in this many bytes.
const UNREAD_BYTES_MAX: usize = 1024 * 1024;

#[tokio::test]
async fn a_call_stream_starts_with_priming_and_ends_with_its_last_chunk() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 3, 10);
    let mut stream = session.call(&call).await?;
    let head = stream.head().await?;
    assert_eq!((head.status, head.media_type().as_str()), (200, "text/event-stream"));
    assert_eq!(head.header("mcp-stream-resumable"), Some("true"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    assert_eq!(head.header("cache-control"), Some("no-cache, no-transform"));
    let priming = stream.event().await?;
    assert_eq!((priming.retry, priming.data.as_deref()), (Some(500), Some("")));
    let origin = priming.id.ok_or_else(|| rejoin_testkit::failure::Failure::new("no origin"))?;
    assert_eq!(check::seq(&origin), Some(0), "{origin}");
    assert_eq!(stream.clean_rest().await?, End::LastChunk);
    complete(stream.events(), &owed(&call, 1))?;
    assert!(stream.events().iter().all(|event| event.name.is_none()));
    Ok(())
}

#[tokio::test]
async fn c_a_resumed_stream_repeats_the_cursor_replays_the_tail_and_goes_on_live() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    pause(Duration::from_millis(200)).await;
    let mut tail = session.get(Some(&cursor)).await?;
    let head = tail.head().await?;
    assert_eq!((head.status, head.media_type().as_str()), (200, "text/event-stream"));
    assert_eq!(head.header("mcp-stream-resumable"), Some("true"));
    let until = head.header("mcp-replay-until").map(str::to_owned);
    assert_eq!(tail.clean_rest().await?, End::LastChunk);
    complete(tail.events(), &owed(&call, 6))?;
    assert_repeats(&tail, &cursor);
    assert_replay(&tail, until.as_deref());
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

/// The first event repeats the cursor and carries an empty data line.
fn assert_repeats(tail: &Connection, cursor: &str) {
    let first = tail.events().first();
    let repeated = first.map(|event| (event.id.as_deref(), event.data.as_deref()));
    assert_eq!(repeated, Some((Some(cursor), Some(""))));
}

/// The replay stands between its two comments, the second of which names its last event.
fn assert_replay(tail: &Connection, until: Option<&str>) {
    let texts: Vec<_> = tail.comments().iter().map(|comment| comment.text.as_str()).collect();
    assert!(until.is_some(), "no Mcp-Replay-Until");
    let end = format!("replay-end {}", until.unwrap_or_default());
    assert_eq!(texts.iter().filter(|text| text.starts_with("replay-begin")).count(), 1);
    assert_eq!(texts.iter().filter(|text| **text == end).count(), 1, "{texts:?}");
    let place = |text: &str| {
        let comment = tail.comments().iter().find(|comment| comment.text.starts_with(text));
        comment.map(|comment| comment.offset)
    };
    let last = tail.events().iter().find(|event| !event.is_empty() && event.id.as_deref() == until);
    let last = last.map(|event| event.offset);
    assert!(last.is_some(), "no event {until:?}");
    assert!(place("replay-begin") < last && last < place("replay-end"), "{texts:?}");
}

#[tokio::test]
async fn c_twenty_resumes_during_the_call_lose_nothing() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    for trial in 1..=20 {
        let call = charge_with(trial, trial, 60, 5);
        let cursor = drop_after(&bench, &session, &call, 5).await?;
        pause(Duration::from_millis(50)).await;
        resume_complete(&session, &cursor, &call, 6).await?;
    }
    assert_eq!(bench.charges()?, 20);
    Ok(())
}

#[tokio::test]
async fn c_fast_a_resume_while_events_rush_loses_nothing() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    for trial in 1..=10 {
        let call = charge_with(trial, trial, 90, trial % 2);
        let mut stream = session.call(&call).await?;
        let cursor = stream.messages(5).await?;
        stream.cut_rst()?;
        resume_complete(&session, &cursor, &call, 6).await?;
    }
    assert_eq!(bench.charges()?, 10);
    Ok(())
}

#[tokio::test]
async fn c_a_call_cut_three_times_still_completes() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 40, 20);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let mut second = session.get(Some(&cursor)).await?;
    let cursor = second.messages(5).await?;
    cut(&bench, second).await?;
    let mut third = session.get(Some(&cursor)).await?;
    let cursor = third.messages(5).await?;
    third.cut_fin().await?;
    resume_complete(&session, &cursor, &call, 16).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn g_a_resume_after_the_end_gives_the_tail_and_ends() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = short_charge(10, 1);
    let cursor = end_unseen(&bench, &session, &call, 5).await?;
    let tail = resume(&session, &cursor).await?;
    complete(tail.events(), &owed(&call, 6))?;
    assert_repeats(&tail, &cursor);
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn g_the_final_cursor_is_answered_405_and_an_older_one_replays_again() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = short_charge(10, 1);
    let cursor = end_unseen(&bench, &session, &call, 5).await?;
    let tail = resume(&session, &cursor).await?;
    assert_eq!(session.get(tail.last_id()).await?.head().await?.status, 405);
    resume_complete(&session, &cursor, &call, 6).await?;
    Ok(())
}

#[tokio::test]
async fn g_a_drained_stream_holds_other_calls_no_more() -> TestResult {
    let bench =
        Bench::start(&["--limit", "owed_grace_ms=never", "--limit", "hold_max_ms=1000"]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 5, 10);
    let cursor = end_unseen(&bench, &session, &call, 2).await?;
    resume_complete(&session, &cursor, &call, 3).await?;
    let response = session.answer(&get(11)).await?;
    assert!(response.get("result").is_some(), "{response}");
    Ok(())
}

#[tokio::test]
async fn h_garbage_as_a_cursor_is_answered_405() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    session.answer(&charge_with(10, 1, 1, 1)).await?;
    let long = "9".repeat(2000);
    let huge = "1-1-99999999999999999999999999";
    for garbage in ["garbage", "0", "-1", "1", "1-2", "1-2-3-4", "--", "1--1", huge, long.as_str()]
    {
        let mut connection = session.get(Some(garbage)).await?;
        assert_eq!(connection.head().await?.status, 405, "{garbage}");
        connection.clean_rest().await?;
    }
    Ok(())
}

#[tokio::test]
async fn k_nothing_unread_in_the_client_at_its_reset_is_lost() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 200, 1);
    let mut stream = session.call(&call).await?;
    let cursor = stream.messages(5).await?;
    stream.unread_contains("\"result\"", UNREAD_BYTES_MAX).await?;
    stream.cut_rst()?;
    // The first read may have taken more than five events; the client processed five.
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn k_a_repeat_after_a_reset_with_unread_bytes_gets_the_record() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 200, 1);
    let mut stream = session.call(&call).await?;
    stream.messages(5).await?;
    stream.unread_contains("\"result\"", UNREAD_BYTES_MAX).await?;
    stream.cut_rst()?;
    let record = answered(&session, &call.again(11)).await?;
    assert!(is_record(&record), "{record}");
    assert_result(&record, 11, 1);
    assert_eq!(bench.charges()?, 1);
    Ok(())
}
