//! Dedup tokens, in `_meta` and as `Idempotency-Key`.

use rejoin_testkit::call::Call;
use rejoin_testkit::failure::TestResult;
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};

use crate::support::Bench;

const RECORDED: &str = "dev.rejoin/recorded";

fn echo(id: u64) -> Call {
    Call::new(id, "echo", json!({"n": 1}))
}

async fn sent_with(
    session: &Session,
    call: &Call,
    key: &str,
) -> Result<Value, rejoin_testkit::failure::Failure> {
    let request = session.post_request(&call.message()).header("Idempotency-Key", key);
    Ok(session.send(&request).await?.response().await?)
}

#[tokio::test]
async fn a_token_makes_a_call_run_once_however_it_is_sent() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let mut stream = session.call(&echo(1).with_dedup_token("t")).await?;
    stream.clean_rest().await?;
    let cursor = stream.last_id().unwrap_or_default().to_owned();
    // The final cursor settles the first answer, so that its record is given at once.
    assert_eq!(session.get(Some(&cursor)).await?.head().await?.status, 405);
    let by_header = sent_with(&session, &echo(2), "t").await?;
    let quoted = sent_with(&session, &echo(3), "\"t\"").await?;
    for (answer, id) in [(by_header, 2), (quoted, 3)] {
        assert_eq!(answer["id"], id);
        assert!(!answer["result"]["_meta"][RECORDED].is_null(), "{answer}");
    }
    assert_eq!(bench.server.runs("echo"), 1);
    let fresh = sent_with(&session, &echo(4), "another").await?;
    assert!(fresh["result"]["_meta"][RECORDED].is_null(), "{fresh}");
    assert_eq!(bench.server.runs("echo"), 2);
    for message in bench.server.seen() {
        assert!(!message.to_string().contains("dev.rejoin"), "{message}");
    }
    Ok(())
}

#[tokio::test]
async fn a_token_counts_across_the_sessions_of_one_principal_and_of_no_other() -> TestResult {
    let bench = Bench::start().await?;
    let call = echo(1).with_dedup_token("t");
    for (identity, runs) in [
        (Identity::authorized("Bearer one"), 1),
        (Identity::authorized("Bearer one"), 1),
        (Identity::authorized("Bearer two"), 2),
        (Identity::default(), 3),
        (Identity::default(), 4),
    ] {
        let session = bench.session_as(identity).await?;
        let mut stream = session.call(&call).await?;
        stream.response().await?;
        assert_eq!(bench.server.runs("echo"), runs);
    }
    Ok(())
}

#[tokio::test]
async fn tokens_that_cannot_be_used_are_refused_before_anything_runs() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let older = bench.session_as(Identity::of_revision("2025-03-26")).await?;
    let both = session.post_request(&echo(1).with_dedup_token("a").message());
    let token = "dev.rejoin/dedup-token";
    let number = echo(1).with_meta(token, json!(7)).message();
    let long = echo(1).with_dedup_token(&"x".repeat(257)).message();
    let attempt = echo(1).with_dedup_token("a").with_meta("dev.rejoin/attempt", json!("1"));
    let batch = json!([echo(1).message(), echo(2).message()]);
    for request in [
        both.header("Idempotency-Key", "b"),
        session.post_request(&number),
        session.post_request(&long),
        session.post_request(&attempt.message()),
        session.post_request(&echo(1).message()).header("Idempotency-Key", ""),
        older.post_request(&batch).header("Idempotency-Key", "b"),
    ] {
        assert_eq!(bench.ask(&request).await?.status(), 400);
    }
    assert_eq!(bench.server.runs("echo"), 0);
    Ok(())
}

#[tokio::test]
async fn progress_that_nobody_read_is_had_from_the_origin_that_its_record_names() -> TestResult {
    let bench = Bench::start().await?;
    let session = bench.session().await?;
    let call = echo(1).with_progress_token("p").with_dedup_token("t");
    let mut stream = session.call(&call).await?;
    stream.clean_rest().await?;
    // Read by the kernel and by nobody else; the call is settled, so that its record is given.
    let cursor = stream.last_id().unwrap_or_default().to_owned();
    assert_eq!(session.get(Some(&cursor)).await?.head().await?.status, 405);
    let record = session.answer(&call.again(2)).await?;
    let meta = &record["result"]["_meta"];
    assert!(meta[RECORDED].is_u64(), "{record}");
    let origin = meta["dev.rejoin/origin"].as_str().unwrap_or_default();
    let mut rest = session.get(Some(origin)).await?;
    rest.clean_rest().await?;
    let read: Vec<_> = rest.events().iter().filter_map(|event| event.message()).collect();
    assert_eq!(read.len(), 2, "{read:?}");
    assert_eq!(read[0]["params"], json!({ "progressToken": "p", "progress": 1 }));
    assert_eq!((&read[1]["id"], &read[1]["result"]["echo"]), (&json!(1), &json!({ "n": 1 })));
    // Nobody else is given it.
    let other = bench.session_as(Identity::authorized("Bearer two")).await?;
    assert_eq!(other.get(Some(origin)).await?.head().await?.status, 405);
    assert_eq!(bench.server.runs("echo"), 1);
    Ok(())
}
