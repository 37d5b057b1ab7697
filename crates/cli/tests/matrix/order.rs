//! D, Q: replays come before later answers, and other calls wait for what is owed.

use std::time::{Duration, Instant};

use rejoin_testkit::check::{self, complete};
use rejoin_testkit::deadline::{WAIT, pause};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Connection, OpenOptions, Received, WireError};
use rejoin_testkit::refusal::Refusal;

use crate::server::Kind;
use crate::support::{
    Bench, charge, charge_with, cut, drop_after, end_unseen, get, owed, resume, resume_complete,
    short_charge,
};

/// Trials of D3.
const TRIALS: u64 = 50;

/// How long a held answer may take to show its headers (250 ms, and a slow machine).
const HELD_SHOWS: Duration = Duration::from_secs(2);

/// Takes what both sockets have, the answer's first, until the answer is there; what the replay's
/// socket holds at that moment is taken last. So an event missing from `replay` afterwards could
/// not be read when the answer could.
async fn take_both(replay: &mut Connection, answer: &mut Connection) -> Result<(), WireError> {
    let end = Instant::now() + WAIT;
    while Instant::now() < end {
        let items = answer.available()?;
        replay.available()?;
        let is_answer = |item: &Received| matches!(item, Received::Event(e) if !e.is_empty());
        if items.iter().any(is_answer) {
            return Ok(());
        }
        // An ended stream is readable for ever.
        tokio::select! {
            _ = answer.readable(WAIT) => {}
            _ = replay.readable(WAIT), if replay.end().is_none() => {}
        }
    }
    let account = format!("answer: {}; replay: {}", answer.account(), replay.account());
    Err(WireError::Unexpected { expected: "the answer of the later call".into(), account })
}

fn replay_ended(replay: &Connection) -> bool {
    replay.comments().iter().any(|comment| comment.text.starts_with("replay-end"))
}

#[tokio::test]
async fn d_a_post_at_once_with_the_resume_is_answered_after_the_replay() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    // So that there is something to replay.
    pause(Duration::from_millis(200)).await;
    let other = get(11);
    let mut tail = session.get(Some(&cursor)).await?;
    let mut answer = session.call(&other).await?;
    take_both(&mut tail, &mut answer).await?;
    assert!(replay_ended(&tail), "{}", tail.account());
    answer.clean_rest().await?;
    complete(answer.events(), &owed(&other, 1))?;
    tail.clean_rest().await?;
    complete(tail.events(), &owed(&call, 6))?;
    assert_eq!((bench.charges()?, bench.count.runs("get")?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn d2_a_replay_has_no_event_of_another_call() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let (call, other) = (charge(10, 1), charge(11, 2));
    let mut dropped = session.call(&call).await?;
    let mut kept = session.call(&other).await?;
    let cursor = dropped.messages(5).await?;
    cut(&bench, dropped).await?;
    resume_complete(&session, &cursor, &call, 6).await?;
    kept.clean_rest().await?;
    complete(kept.events(), &owed(&other, 1))?;
    assert_eq!(bench.charges()?, 2);
    Ok(())
}

#[tokio::test]
async fn d3_in_fifty_of_fifty_trials_the_replay_is_there_before_a_newer_answer() -> TestResult {
    // A short settle time, so that the acknowledged replay and not the pause makes the order; and
    // no grace that a slow machine could use up.
    let limits = ["--limit", "owed_grace_ms=never", "--limit", "gate_settle_ms=20"];
    let bench = Bench::start(&limits).await?;
    let session = bench.session().await?;
    for trial in 1..=TRIALS {
        let (call, other) = (Kind::chosen().burst(trial, trial), get(1000 + trial));
        let cursor = end_unseen(&bench, &session, &call, 5).await?;
        let mut tail = session.get(Some(&cursor)).await?;
        let mut answer = session.call(&other).await?;
        take_both(&mut tail, &mut answer).await?;
        let found = complete(tail.events(), &owed(&call, 6));
        found.map_err(|error| Failure::new(format!("trial {trial}: {error}")))?;
        tail.clean_rest().await?;
    }
    assert_eq!(bench.charges()?, TRIALS as usize);
    Ok(())
}

#[tokio::test]
async fn a_held_post_shows_itself_and_is_answered_when_the_debt_is_paid() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 20, 50);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let other = charge_with(11, 2, 3, 10);
    let mut held = session.call(&other).await?;
    held.set_wait(HELD_SHOWS);
    let head = held.head().await?;
    assert_eq!((head.status, head.is_event_stream()), (200, true));
    let priming = held.event().await?;
    assert!(priming.is_empty() && priming.id.is_some() && priming.data.is_some(), "{priming:?}");
    held.comment("held").await?;
    assert_eq!(bench.charges_of(2)?, 0);
    resume_complete(&session, &cursor, &call, 6).await?;
    held.set_wait(WAIT);
    held.clean_rest().await?;
    complete(held.events(), &owed(&other, 1))?;
    assert_eq!((bench.charges_of(1)?, bench.charges_of(2)?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn several_held_posts_all_run_once_when_the_debt_is_paid() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let mut held = Vec::new();
    for amount in 2..6 {
        held.push(session.call(&charge_with(10 + amount, amount, 0, 0)).await?);
    }
    for connection in &mut held {
        connection.comment("held").await?;
    }
    assert_eq!(bench.charges()?, 1);
    resume_complete(&session, &cursor, &call, 6).await?;
    for (connection, amount) in held.iter_mut().zip(2..6) {
        let response = connection.response().await?;
        assert_eq!(response["id"], 10 + amount);
        assert_eq!(bench.charges_of(amount)?, 1);
    }
    assert_eq!(bench.charges()?, 5);
    Ok(())
}

#[tokio::test]
async fn a_hold_that_reaches_its_limit_is_refused_and_never_runs() -> TestResult {
    let bench =
        Bench::start(&["--limit", "owed_grace_ms=never", "--limit", "hold_max_ms=1000"]).await?;
    let session = bench.session().await?;
    let call = short_charge(10, 1);
    let cursor = end_unseen(&bench, &session, &call, 5).await?;
    let mut held = session.call(&charge(11, 2)).await?;
    let refusal = Refusal::read(&mut held).await?;
    assert_eq!((refusal.code, &refusal.id), (40901, &11.into()));
    assert!(refusal.head.is_event_stream(), "{refusal:?}");
    held.clean_rest().await?;
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges_of(2)?, 0);
    Ok(())
}

#[tokio::test]
async fn a_hold_behind_a_replay_that_nobody_reads_is_refused_as_such() -> TestResult {
    let bench =
        Bench::start(&["--limit", "owed_grace_ms=never", "--limit", "hold_max_ms=1000"]).await?;
    let session = bench.session().await?;
    let call = Kind::chosen().burst(10, 1);
    let cursor = end_unseen(&bench, &session, &call, 5).await?;
    let small = OpenOptions { receive_buffer_bytes: Some(Kind::chosen().small_buffer_bytes()) };
    let mut tail = session.send_with(&session.get_request(Some(&cursor)), small).await?;
    tail.head().await?;
    let mut held = session.call(&charge(11, 2)).await?;
    let refusal = Refusal::read(&mut held).await?;
    assert_eq!((refusal.code, refusal.reason.as_str()), (40905, "replay_in_progress"));
    tail.clean_rest().await?;
    complete(tail.events(), &owed(&call, 6))?;
    assert_eq!(bench.charges_of(2)?, 0);
    Ok(())
}

#[tokio::test]
async fn q_a_post_lost_while_held_never_runs_and_its_stream_says_withdrawn() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let mut held = session.call(&charge(11, 2)).await?;
    let origin = held.event().await?.id.unwrap_or_default();
    held.comment("held").await?;
    cut(&bench, held).await?;
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_withdrawn(&mut resume(&session, &origin).await?)?;
    assert_eq!((bench.charges_of(1)?, bench.charges_of(2)?), (1, 0));
    Ok(())
}

#[tokio::test]
async fn q_a_held_post_cancelled_by_its_id_never_runs() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let mut held = session.call(&charge(11, 2)).await?;
    held.comment("held").await?;
    assert_eq!(session.cancel(11).await?, 202);
    held.clean_rest().await?;
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(session.answer(&get(12)).await?["id"], 12);
    assert_eq!((bench.charges_of(1)?, bench.charges_of(2)?), (1, 0));
    Ok(())
}

fn assert_withdrawn(stream: &mut Connection) -> TestResult {
    let messages = check::messages(stream.events())?;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0]["id"], 11);
    assert_eq!(messages[0]["error"]["code"], 40908, "{messages:?}");
    assert_eq!(messages[0]["error"]["data"]["reason"], "withdrawn", "{messages:?}");
    Ok(())
}
