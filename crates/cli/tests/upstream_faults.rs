//! `rejoin serve --upstream` in front of a server that does wrong: each call ends in a result or in
//! a stated unknown, none is sent twice, and the session goes on.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "upstream_http/bench.rs"]
#[allow(dead_code, reason = "shared with the tests in front of a server that does right")]
mod bench;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rejoin_testkit::call::Call;
use rejoin_testkit::check::{Owed, complete, messages};
use rejoin_testkit::deadline::{WAIT, WAIT_MAX, until};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::session::Session;
use serde_json::{Value, json};

use bench::Bench;

const FAULTY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream_faults_server.py");
const OUTCOME_UNKNOWN: i64 = 40_906;
const STATE_LOST: i64 = 40_907;
const REQUEST_IN_FLIGHT: i64 = 40_902;
const RECORDED: &str = "dev.rejoin/recorded";

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Result,
    Error(i64),
}

impl Ended {
    fn of(answer: &Value) -> Self {
        match answer["error"]["code"].as_i64() {
            Some(code) => Self::Error(code),
            None => {
                assert_eq!(answer["result"]["content"][0]["text"], "charged 7", "{answer}");
                Self::Result
            }
        }
    }
}

const UNKNOWN: Ended = Ended::Error(OUTCOME_UNKNOWN);

async fn start() -> Result<Bench, Failure> {
    Bench::start(FAULTY, &[], &[]).await
}

/// A call with a token that meets a fault after 3 events.
fn faulty(id: u64, fault: &str) -> Call {
    let arguments = json!({"amount": 7, "events": 3, "interval_ms": 0, "fault": fault});
    Call::new(id, "charge", arguments).with_dedup_token(&format!("token-{id}"))
}

/// How often the server ran calls that meet this fault.
fn runs(bench: &Bench, fault: &str) -> Result<usize, Failure> {
    Ok(bench.count.runs_with("charge", "fault", &fault.into())?)
}

/// A call without token and fault is answered.
async fn goes_on(session: &Session, id: u64) -> TestResult {
    let arguments = json!({"amount": 7, "events": 2, "interval_ms": 0, "number": id});
    let whole = Call::new(id, "charge", arguments);
    assert_eq!(Ended::of(&session.answer(&whole).await?), Ended::Result);
    Ok(())
}

/// A call that ran once under a fault: it ends in this way, a retry with its token is told the
/// same and does not run, and the session goes on.
async fn runs_once(bench: &Bench, session: &Session, call: &Call, end: Ended) -> TestResult {
    let fault = call.arguments["fault"].as_str().unwrap();
    let before = runs(bench, fault)?;
    let answer = session.answer(call).await?;
    assert_eq!(Ended::of(&answer), end, "{fault}: {answer}");
    told_again(bench, session, call, end).await?;
    assert_eq!(runs(bench, fault)?, before + 1, "{fault}");
    goes_on(session, call.id + 5).await
}

/// A retry with the token of a call that has ended is told its end, once the first answer has
/// arrived at its client's kernel.
async fn told_again(bench: &Bench, session: &Session, call: &Call, end: Ended) -> TestResult {
    let before = bench.count.runs("charge")?;
    let again = until("the end of the first answer", WAIT, async || {
        let again = session.answer(&call.again(call.id + 1)).await?;
        let is_early = again["error"]["code"] == REQUEST_IN_FLIGHT;
        Ok::<_, Failure>((!is_early).then_some(again))
    })
    .await?;
    assert_eq!((Ended::of(&again), &again["id"]), (end, &json!(call.id + 1)), "{again}");
    match end {
        Ended::Result => assert!(!again["result"]["_meta"][RECORDED].is_null(), "{again}"),
        Ended::Error(_) => assert_eq!(again["error"]["data"]["reason"], "outcome_unknown"),
    }
    assert_eq!(bench.count.runs("charge")?, before);
    Ok(())
}

#[tokio::test]
async fn a_call_whose_stream_without_ids_breaks_or_ends_is_unknown() -> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    for (id, fault) in [(10, "cut"), (20, "end"), (30, "hangup")] {
        runs_once(&bench, &session, &faulty(id, fault), UNKNOWN).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_call_whose_stream_with_ids_breaks_is_resumed_and_whole() -> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    let call = faulty(10, "resumable");
    let mut stream = session.call(&call).await?;
    stream.clean_rest().await?;
    let owed = Owed { progress_token: &call.progress_token, id: 10, first: 1, last: 6 };
    assert_eq!(Ended::of(&complete(stream.events(), &owed)?), Ended::Result);
    told_again(&bench, &session, &call, Ended::Result).await?;
    assert_eq!(runs(&bench, "resumable")?, 1);
    goes_on(&session, 12).await
}

#[tokio::test]
async fn a_status_of_what_stands_before_the_server_leaves_the_outcome_unknown() -> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    for (id, status) in [(10, 502), (20, 503), (30, 504)] {
        let mut call = faulty(id, "status");
        call.arguments["status"] = json!(status);
        runs_once(&bench, &session, &call, UNKNOWN).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_call_refused_with_503_and_retry_after_did_not_run_and_runs_once_when_sent_again()
-> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    let call = faulty(10, "refused");
    let answer = session.answer(&call).await?;
    let data = &answer["error"]["data"];
    assert_eq!((&data["status"], &data["retryAfter"]), (&json!(503), &json!("1")), "{answer}");
    assert_eq!(runs(&bench, "refused")?, 0);
    runs_once(&bench, &session, &call.again(20), Ended::Result).await
}

#[tokio::test]
async fn an_answer_in_json_or_on_the_standalone_stream_is_the_result() -> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    for (id, fault) in [(10, "json"), (20, "beside")] {
        runs_once(&bench, &session, &faulty(id, fault), Ended::Result).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_session_forgotten_under_a_running_call_loses_that_one_and_runs_the_next_when_sent_again()
-> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    let running = faulty(10, "silent");
    let mut stream = session.call(&running).await?;
    stream.messages(3).await?;
    let call = faulty(20, "gone");
    let refused = session.answer(&call).await?;
    assert_eq!(Ended::of(&refused), Ended::Error(STATE_LOST), "{refused}");
    assert_eq!(runs(&bench, "gone")?, 0);
    assert_eq!(Ended::of(&stream.response().await?), UNKNOWN);
    runs_once(&bench, &session, &call.again(30), Ended::Result).await?;
    told_again(&bench, &session, &running, UNKNOWN).await?;
    assert_eq!(runs(&bench, "silent")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_restart_under_a_running_call_loses_it_and_is_told_to_the_next_which_did_not_run()
-> TestResult {
    // Connections are not kept, so that no call is sent into one of the killed server.
    let mut bench = Bench::start(FAULTY, &["0", "404", "close"], &[]).await?;
    let session = bench.session().await?;
    let running = faulty(10, "silent");
    let mut stream = session.call(&running).await?;
    stream.messages(3).await?;
    bench.restart("404").await?;
    assert_eq!(Ended::of(&stream.response().await?), UNKNOWN);
    told_again(&bench, &session, &running, UNKNOWN).await?;
    let call = faulty(20, "json");
    let refused = session.answer(&call).await?;
    assert_eq!(Ended::of(&refused), Ended::Error(STATE_LOST), "{refused}");
    assert_eq!((runs(&bench, "silent")?, runs(&bench, "json")?), (1, 0));
    runs_once(&bench, &session, &call.again(30), Ended::Result).await
}

#[tokio::test]
async fn a_call_that_is_never_answered_holds_no_other_and_is_unknown_in_the_end() -> TestResult {
    let bench = Bench::start(FAULTY, &[], &["--limit", "call_silence_max_ms=1000"]).await?;
    let session = bench.session().await?;
    let calls = [faulty(10, "silent"), faulty(20, "mute")];
    let mut streams = Vec::new();
    for call in &calls {
        let mut stream = session.call(call).await?;
        // Silence is looked for at times only.
        stream.set_wait(WAIT_MAX + WAIT);
        streams.push(stream);
    }
    bench.count.wait("charge", 2, WAIT).await?;
    goes_on(&session, 30).await?;
    for (call, stream) in calls.iter().zip(&mut streams) {
        assert_eq!(Ended::of(&stream.response().await?), UNKNOWN);
        told_again(&bench, &session, call, UNKNOWN).await?;
    }
    assert_eq!((runs(&bench, "silent")?, runs(&bench, "mute")?), (1, 1));
    goes_on(&session, 31).await
}

#[tokio::test]
async fn a_request_beside_the_calls_reaches_the_client_on_its_standalone_stream() -> TestResult {
    let bench = start().await?;
    let session = bench.session().await?;
    let mut beside = session.get(None).await?;
    assert_eq!(beside.head().await?.status, 200);
    let call = faulty(10, "ask");
    let mut stream = session.call(&call).await?;
    let asked = beside.message().await?.message().unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(session.respond(&asked["id"], json!({"action": "decline"})).await?, 202);
    stream.clean_rest().await?;
    let seen = messages(stream.events())?;
    assert!(seen.iter().all(|message| message["method"] != "elicitation/create"), "{seen:?}");
    assert_eq!(seen[3]["result"]["content"][0]["text"], "charged by ask-1");
    assert_eq!(runs(&bench, "ask")?, 1);
    goes_on(&session, 11).await
}

#[tokio::test]
async fn a_flood_of_progress_arrives_whole_and_in_order_and_slows_no_other_session() -> TestResult {
    const EVENTS: u64 = 50_000;
    /// Of the gateway's memory; the events are some 6 MB on the wire.
    const GROWTH_MAX_BYTES: u64 = 128 * 1024 * 1024;
    let bench = start().await?;
    let (session, other) = (bench.session().await?, bench.session().await?);
    goes_on(&other, 1).await?;
    let before_bytes = bench.gateway.resident_bytes()?;
    let mut call = faulty(10, "flood");
    call.arguments["events"] = json!(EVENTS);
    let is_over = AtomicBool::new(false);
    let read = async {
        let started = Instant::now();
        let mut stream = session.call(&call).await?;
        let ended = stream.clean_rest().await;
        is_over.store(true, Ordering::Relaxed);
        ended?;
        let owed = Owed { progress_token: &call.progress_token, id: 10, first: 1, last: EVENTS };
        assert_eq!(Ended::of(&complete(stream.events(), &owed)?), Ended::Result);
        Ok::<_, Failure>(started.elapsed())
    };
    let meanwhile = async {
        let (mut answered, mut slowest) = (0, Duration::ZERO);
        while !is_over.load(Ordering::Relaxed) {
            let asked = Instant::now();
            goes_on(&other, 10 + answered).await?;
            slowest = slowest.max(asked.elapsed());
            answered += 1;
        }
        Ok::<_, Failure>((answered, slowest))
    };
    let (took, (answered, slowest)) = tokio::try_join!(read, meanwhile)?;
    let growth_bytes = bench.gateway.resident_bytes()?.saturating_sub(before_bytes);
    eprintln!("{EVENTS} in {took:?}, {answered} calls beside, slowest {slowest:?}, {growth_bytes}");
    assert!(answered >= 3 && slowest < Duration::from_secs(5), "{answered} calls, {slowest:?}");
    assert!(growth_bytes < GROWTH_MAX_BYTES, "{growth_bytes}");
    told_again(&bench, &session, &call, Ended::Result).await?;
    assert_eq!(runs(&bench, "flood")?, 1);
    goes_on(&session, 12).await
}
