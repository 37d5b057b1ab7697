//! F, R: the newest connection of a stream wins, and the fenced one ends in peace.

use rejoin_testkit::check::{self, Part, complete_over};
use rejoin_testkit::failure::TestResult;
use rejoin_testkit::raw::{Connection, End};

use crate::support::{Bench, charge_with, drop_after, owed};

/// The fenced connection was told to stay away, without an id, and ended with its last chunk.
fn assert_fenced(connection: &Connection, end: End) {
    assert_eq!(end, End::LastChunk, "{}", connection.account());
    let last = connection.events().last();
    let told = last.map(|event| (event.retry, event.data.as_deref(), event.id.as_deref()));
    assert_eq!(told, Some((Some(30_000), Some(""), None)), "{}", connection.account());
}

fn part(first: u64, connection: &Connection) -> Part<'_> {
    Part { first, events: connection.events() }
}

#[tokio::test]
async fn f_of_two_concurrent_resumes_the_newest_wins_and_nothing_is_lost() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 30, 100);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let mut first = session.get(Some(&cursor)).await?;
    let read = first.messages(3).await?;
    let mut second = session.get(Some(&read)).await?;
    let end = first.rest().await?;
    assert_fenced(&first, end);
    second.clean_rest().await?;
    let parts = [part(6, &first), part(9, &second)];
    complete_over(&parts, &owed(&call, 6))?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn f_two_resumes_from_one_cursor_at_once_leave_one_whole_stream() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 20, 50);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let mut one = session.get(Some(&cursor)).await?;
    let mut two = session.get(Some(&cursor)).await?;
    // Which of them came later at the gateway is its own affair; the loser is the one told to
    // stay away.
    let (one_end, two_end) = (one.rest().await?, two.rest().await?);
    let is_fenced = |c: &Connection| c.events().iter().any(|e| e.retry == Some(30_000));
    let (fenced, end, winner) =
        if is_fenced(&one) { (&one, one_end, &two) } else { (&two, two_end, &one) };
    assert_fenced(fenced, end);
    check::complete(winner.events(), &owed(&call, 6))?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn r_a_second_client_takes_the_stream_of_the_living_post() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 30, 100);
    let mut post = session.call(&call).await?;
    let cursor = post.messages(5).await?;
    let mut other = session.get(Some(&cursor)).await?;
    let end = post.rest().await?;
    assert_fenced(&post, end);
    other.clean_rest().await?;
    complete_over(&[part(1, &post), part(6, &other)], &owed(&call, 1))?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn r_two_clients_that_take_one_stream_from_each_other_lose_nothing() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 30, 100);
    let mut connections = vec![session.call(&call).await?];
    for _ in 0..4 {
        let mut holder = connections.pop().ok_or_else(no_holder)?;
        let cursor = holder.messages(4).await?;
        let next = session.get(Some(&cursor)).await?;
        let end = holder.rest().await?;
        assert_fenced(&holder, end);
        connections.extend([holder, next]);
    }
    let mut last = connections.pop().ok_or_else(no_holder)?;
    last.clean_rest().await?;
    connections.push(last);
    // Each read four messages before the next took over.
    let parts: Vec<_> = (1..).step_by(4).zip(&connections).map(|(n, c)| part(n, c)).collect();
    complete_over(&parts, &owed(&call, 1))?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

fn no_holder() -> rejoin_testkit::failure::Failure {
    rejoin_testkit::failure::Failure::new("no connection holds the stream")
}
