//! N: dedup tokens.

use rejoin_testkit::check::complete;
use rejoin_testkit::failure::TestResult;
use rejoin_testkit::refusal::Refusal;
use rejoin_testkit::session::Identity;

use crate::server::Kind;
use crate::support::{
    Bench, answered, answered_to, assert_result, charge_with, drop_after, is_record, owed, refused,
    resume_complete,
};

#[tokio::test]
async fn n_one_token_in_two_sessions_at_the_same_time_runs_once() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let one = bench.session_as(Identity::authorized("Bearer same")).await?;
    let two = bench.session_as(Identity::authorized("Bearer same")).await?;
    for trial in 1..=10 {
        let token = format!("token-{trial}");
        let call = charge_with(trial, trial, 5, 20).with_dedup_token(&token);
        let (mut first, mut second) = (one.call(&call).await?, two.call(&call).await?);
        let (head_one, head_two) = (first.head().await?, second.head().await?);
        let (answer_one, answer_two) = (first.response().await?, second.response().await?);
        let mut own = 0;
        for (head, answer) in [(head_one, answer_one), (head_two, answer_two)] {
            if answer.get("result").is_some() {
                own += usize::from(!is_record(&answer));
            } else {
                let refusal = Refusal::of(head, &answer);
                assert_eq!(refusal.map(|refusal| refusal.code), Some(40902), "{answer}");
            }
        }
        assert_eq!((own, bench.charges_of(trial)?), (1, 1), "trial {trial}");
        for session in [&one, &two] {
            answered(session, &call.again(trial + 100)).await?;
        }
        assert_eq!(bench.charges_of(trial)?, 1, "trial {trial}");
    }
    Ok(())
}

#[tokio::test]
async fn n_a_repeat_from_another_session_gets_no_cursor_of_the_first() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let one = bench.session_as(Identity::authorized("Bearer same")).await?;
    let two = bench.session_as(Identity::authorized("Bearer same")).await?;
    let call = charge_with(10, 1, 20, 50).with_dedup_token("t");
    let mut running = one.call(&call).await?;
    bench.charged(1).await?;
    let refusal = refused(&two, &call.again(11)).await?;
    assert_eq!((refusal.code, refusal.cursor()), (40902, None));
    assert_eq!(refusal.head.header("mcp-stream-resumable"), None);
    assert_eq!(refusal.data.get("originalRequestId"), None);
    running.clean_rest().await?;
    complete(running.events(), &owed(&call, 1))?;
    let record = answered(&two, &call.again(12)).await?;
    assert!(is_record(&record), "{record}");
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn n_a_token_of_another_principal_or_of_another_anonymous_session_is_another_token()
-> TestResult {
    let bench = Bench::start(&[]).await?;
    let identities = [
        Identity::authorized("Bearer one"),
        Identity::authorized("Bearer two"),
        Identity::default(),
        Identity::default(),
    ];
    for identity in identities {
        let session = bench.session_as(identity).await?;
        let response = session.answer(&charge_with(10, 1, 0, 0).with_dedup_token("t")).await?;
        assert!(response.get("result").is_some() && !is_record(&response), "{response}");
    }
    assert_eq!(bench.charges()?, 4);
    Ok(())
}

#[tokio::test]
async fn a_token_repeat_gets_the_record_however_often_it_is_read() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 3, 10).with_dedup_token("t");
    let first = session.answer(&call).await?;
    assert!(!is_record(&first), "{first}");
    for id in 11..14 {
        let record = answered(&session, &call.again(id)).await?;
        assert!(is_record(&record), "{record}");
        assert_result(&record, id, 1);
    }
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_token_repeat_while_the_call_runs_is_refused_with_its_cursor() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 20, 50).with_dedup_token("t");
    let cursor = drop_after(&bench, &session, &call, 5).await?;
    let refusal = refused(&session, &call.again(11)).await?;
    assert_eq!(refusal.code, 40902);
    assert!(refusal.cursor().is_some(), "{refusal:?}");
    resume_complete(&session, &cursor, &call, 6).await?;
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_fresh_token_runs_the_same_call_again() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    for (id, token) in [(10, "one"), (11, "two"), (12, "three")] {
        let response = session.answer(&charge_with(id, 1, 0, 0).with_dedup_token(token)).await?;
        assert_result(&response, id, id - 9);
    }
    assert_eq!(bench.charges()?, 3);
    Ok(())
}

#[tokio::test]
async fn a_token_with_other_arguments_is_refused() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    session.answer(&charge_with(10, 1, 0, 0).with_dedup_token("t")).await?;
    let refusal = refused(&session, &charge_with(11, 2, 0, 0).with_dedup_token("t")).await?;
    assert_eq!((refusal.code, refusal.reason.as_str()), (40904, "dedup_token_reused"));
    assert_eq!((bench.charges_of(1)?, bench.charges_of(2)?), (1, 0));
    Ok(())
}

#[tokio::test]
async fn an_idempotency_key_is_the_same_token_and_two_different_ones_are_refused() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let call = charge_with(10, 1, 0, 0);
    session.answer(&call.clone().with_dedup_token("t")).await?;
    let keyed = session.post_request(&call.again(11).message()).header("Idempotency-Key", "t");
    // Refused for the moment it takes the gateway to learn that the answer arrived.
    let record = answered_to(&session, &keyed).await?;
    assert!(is_record(&record), "{record}");
    let both = call.again(12).with_dedup_token("t").message();
    let both = session.post_request(&both).header("Idempotency-Key", "u");
    assert_eq!(session.send(&both).await?.head().await?.status, 400);
    assert_eq!(bench.charges()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_failed_result_is_recorded_too() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut call = charge_with(10, 1, 0, 0).with_dedup_token("t");
    Kind::chosen().fail(&mut call);
    let first = session.answer(&call).await?;
    assert_eq!(first["result"]["isError"], true, "{first}");
    let record = answered(&session, &call.again(11)).await?;
    assert_eq!((&record["result"]["isError"], is_record(&record)), (&true.into(), true));
    assert_eq!(bench.charges()?, 1);
    Ok(())
}
