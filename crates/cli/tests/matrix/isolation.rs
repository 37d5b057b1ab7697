//! E: nobody reads another session's events.

use rejoin_testkit::check::complete;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::{Identity, Session};
use serde_json::json;

use crate::server::Kind;
use crate::support::{Bench, charge_with, drop_after, owed, resume_complete, short_charge};

/// Status, header fields but `Date`, and body of the answer to a GET with `cursor`.
async fn answer_to(
    session: &Session,
    cursor: &str,
) -> Result<(u16, Vec<(String, String)>, Vec<u8>), Failure> {
    let mut connection = session.get(Some(cursor)).await?;
    let head = connection.head().await?;
    let mut headers = head.headers.clone();
    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("date"));
    Ok((head.status, headers, connection.plain_body().await?))
}

#[tokio::test]
async fn e_a_foreign_cursor_is_answered_with_the_bytes_of_an_unknown_one() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let (owner, stranger) = (bench.session().await?, bench.session().await?);
    let call = short_charge(10, 1);
    let cursor = drop_after(&bench, &owner, &call, 5).await?;
    let foreign = answer_to(&stranger, &cursor).await?;
    assert_eq!(foreign.0, 405);
    let (start, _) = cursor.rsplit_once('-').unwrap_or_default();
    let unknown = format!("{start}-999999");
    for other in ["garbage", "7-7-7", unknown.as_str()] {
        assert_eq!(answer_to(&stranger, other).await?, foreign, "{other}");
    }
    resume_complete(&owner, &cursor, &call, 6).await?;
    Ok(())
}

#[tokio::test]
async fn e2_two_sessions_with_the_same_ids_keep_their_events_apart() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let (first, second) = (bench.session().await?, bench.session().await?);
    let (call, other) = (charge_with(10, 1, 20, 50), charge_with(10, 2, 15, 50));
    let mut running = second.call(&other).await?;
    let cursor = drop_after(&bench, &first, &call, 5).await?;
    let response = resume_complete(&first, &cursor, &call, 6).await?;
    assert_eq!(Kind::chosen().amount(&response), Some(1));
    running.clean_rest().await?;
    let response = complete(running.events(), &owed(&other, 1))?;
    assert_eq!(Kind::chosen().amount(&response), Some(2));
    assert_eq!(bench.charges()?, 2);
    Ok(())
}

#[tokio::test]
async fn e_the_same_call_in_another_session_is_not_a_repeat() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let (first, second) = (bench.session().await?, bench.session().await?);
    let call = charge_with(10, 1, 20, 20);
    let cursor = drop_after(&bench, &first, &call, 5).await?;
    let mut other = second.call(&call).await?;
    other.clean_rest().await?;
    complete(other.events(), &owed(&call, 1))?;
    resume_complete(&first, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 2);
    Ok(())
}

#[tokio::test]
async fn e_a_session_is_unknown_to_every_other_principal() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session_as(Identity::authorized("Bearer one")).await?;
    let call = short_charge(10, 1);
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    for identity in [Identity::authorized("Bearer two"), Identity::default()] {
        let other = session.presented_as(identity);
        assert_eq!(other.call(&call.again(11)).await?.head().await?.status, 404);
        assert_eq!(other.get(Some(&cursor)).await?.head().await?.status, 404);
        assert_eq!(other.notify("notifications/cancelled", json!({"requestId": 10})).await?, 404);
        assert_eq!(other.delete().await?, 404);
    }
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}
