//! `rejoin serve --data` on a disk that fails, is full or slow: what cannot be logged is neither
//! admitted, run nor sent, and all goes on by itself when the fault ends.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rejoin_testkit::call::Call;
use rejoin_testkit::check::messages;
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::{WAIT, WAIT_MAX, until};
use rejoin_testkit::disk::Disk;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::page::page;
use rejoin_testkit::process::Server;
use rejoin_testkit::raw::{Connection, Event};
use rejoin_testkit::session::{Identity, Session};
use serde_json::{Value, json};

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
/// The client that would lose its session on any status but 200.
const PYTHON: &str = "python-httpx/0.28.1";
const UNKNOWN: i64 = 40_906;

/// A gateway whose data directory is on a disk that does as it is told, in front of the built-in
/// server.
struct Bench {
    disk: Disk,
    count: CountFile,
    durability: &'static str,
    gateway: Option<Server>,
}

impl Bench {
    fn start(durability: &'static str) -> Result<Self, Failure> {
        let disk = Disk::new()?;
        let count = CountFile::at(disk.path("executions"));
        let mut bench = Self { disk, count, durability, gateway: None };
        bench.run()?;
        Ok(bench)
    }

    fn run(&mut self) -> Result<(), Failure> {
        let listen = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let behind = ["--stateless-upstream", "--", REJOIN, "tool-server", "--count-file"];
        let mut arguments: Vec<OsString> = listen.map(OsString::from).into();
        arguments.extend(["--durability", self.durability, "--data"].map(OsString::from));
        arguments.push(self.disk.path("data").into());
        arguments.extend(behind.map(OsString::from));
        arguments.push(self.count.path().into());
        self.gateway = Some(Server::start_in(REJOIN, arguments, self.disk.environment())?);
        Ok(())
    }

    fn gateway(&mut self) -> &mut Server {
        self.gateway.as_mut().unwrap()
    }

    async fn address(&mut self) -> Result<SocketAddr, Failure> {
        Ok(self.gateway().address("listens", WAIT).await?)
    }

    async fn admin(&mut self) -> Result<SocketAddr, Failure> {
        Ok(self.gateway().log_address("admin on ", WAIT).await?)
    }

    async fn session(&mut self, user_agent: Option<&str>) -> Result<Session, Failure> {
        let user_agent = user_agent.map(str::to_owned);
        let identity = Identity { user_agent, ..Identity::default() };
        Ok(Session::open_as(self.address().await?, identity).await?)
    }

    /// Waits until new sessions are taken, and requests of this one.
    async fn wait_for(&mut self, session: &Session) -> TestResult {
        let admin = self.admin().await?;
        until("that it is ready", WAIT_MAX, async || {
            let (status, _) = page(admin, "/readyz").await?;
            Ok::<_, Failure>((status == 200).then_some(()))
        })
        .await?;
        until("the session", WAIT_MAX, async || {
            let status = session.notify("notifications/x", json!({})).await?;
            Ok::<_, Failure>((status == 202).then_some(()))
        })
        .await?;
        Ok(())
    }

    fn runs(&self, amount: u64) -> Result<usize, Failure> {
        Ok(self.count.runs_with("charge", "amount", &json!(amount))?)
    }
}

/// A charge whose id is its amount.
fn charge(amount: u64, events: u64, interval_ms: u64) -> Call {
    let arguments = json!({"amount": amount, "events": events, "interval_ms": interval_ms});
    Call::new(amount, "charge", arguments)
}

/// One that runs until something ends it.
fn endless(amount: u64) -> Call {
    charge(amount, 100_000, 20)
}

fn data(events: &[Event]) -> Vec<(&Option<String>, &Option<String>)> {
    events.iter().filter(|one| !one.is_empty()).map(|one| (&one.id, &one.data)).collect()
}

/// All that a client read of a call is in the log, which ends by saying that the outcome is
/// unknown.
async fn is_logged_and_unknown(session: &Session, call: &Call, read: &Connection) -> TestResult {
    let origin = read.events()[0].id.clone().unwrap();
    let mut replay = session.get(Some(&origin)).await?;
    replay.clean_rest().await?;
    let (read, logged) = (data(read.events()), data(replay.events()));
    assert!(logged.starts_with(&read), "read {read:?}, and the log has {logged:?}");
    let all = messages(replay.events())?;
    let last = all.last().unwrap();
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(call.id), &json!(UNKNOWN)), "{last}");
    Ok(())
}

/// The call is not admitted: 503, or 200 for those who would lose their session on it.
async fn is_refused(session: &Session, call: &Call, status: u16) -> TestResult {
    let mut answer = session.call(call).await?;
    let head = answer.head().await?;
    assert_eq!((head.status, head.header("retry-after")), (status, Some("1")), "{head:?}");
    let body = answer.response().await?;
    assert_eq!(body["id"], json!(call.id), "{body}");
    let told = body["error"]["message"].as_str().unwrap();
    assert!(told.starts_with("Not run. ") && told.contains("safe to send"), "{told}");
    Ok(())
}

async fn runs_now(bench: &Bench, session: &Session, call: &Call) -> TestResult {
    let answer = session.answer(&call.again(1_000 + call.id)).await?;
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(bench.runs(call.id)?, 1, "{call:?}");
    Ok(())
}

/// While the disk fails, and after.
async fn fails_closed(durability: &'static str, fault: &str) -> TestResult {
    let mut bench = Bench::start(durability)?;
    let (address, admin) = (bench.address().await?, bench.admin().await?);
    let session = bench.session(None).await?;
    let (busy, python) = (bench.session(None).await?, bench.session(Some(PYTHON)).await?);
    let mut done = session.call(&charge(1, 3, 0)).await?;
    done.clean_rest().await?;
    let running = endless(2);
    let mut live = busy.call(&running).await?;
    live.messages(3).await?;
    bench.disk.set_fault(fault)?;
    is_refused(&session, &charge(11, 0, 0), 503).await?;
    is_refused(&busy, &charge(12, 0, 0), 503).await?;
    is_refused(&python, &charge(13, 0, 0), 200).await?;
    assert!(Session::open(address).await.is_err(), "a session was opened");
    assert_eq!(session.notify("notifications/x", json!({})).await?, 503);
    live.rest().await?;
    assert_eq!(page(admin, "/readyz").await?, (503, "the log cannot be written\n".to_owned()));
    assert_eq!(page(admin, "/healthz").await?.0, 200);
    for amount in [11, 12, 13] {
        assert_eq!(bench.runs(amount)?, 0, "{amount} ran, and was refused");
    }
    bench.disk.set_fault("-")?;
    bench.wait_for(&session).await?;
    runs_now(&bench, &session, &charge(11, 0, 0)).await?;
    runs_now(&bench, &python, &charge(13, 0, 0)).await?;
    is_logged_and_unknown(&busy, &running, &live).await?;
    runs_now(&bench, &busy, &charge(12, 0, 0)).await?;
    let origin = done.events()[0].id.clone().unwrap();
    let mut again = session.get(Some(&origin)).await?;
    again.clean_rest().await?;
    assert_eq!(data(again.events()), data(done.events()), "the answer of before is whole");
    bench.session(None).await?;
    assert_eq!(bench.runs(2)?, 1);
    killed_while_it_fails(bench, fault, busy).await
}

/// Killed while the disk fails, and started again on one that works.
async fn killed_while_it_fails(mut bench: Bench, fault: &str, busy: Session) -> TestResult {
    // Nothing is resumed in it, for which the call would have to wait.
    let session = bench.session(None).await?;
    let running = endless(21).with_dedup_token("t-21");
    let mut live = busy.call(&running).await?;
    live.messages(3).await?;
    bench.disk.set_fault(fault)?;
    is_refused(&session, &charge(22, 0, 0), 503).await?;
    bench.gateway().kill()?;
    bench.disk.set_fault("-")?;
    bench.run()?;
    live.rest().await?;
    let address = bench.address().await?;
    let (session, busy) = (session.by_way_of(address), busy.by_way_of(address));
    is_logged_and_unknown(&busy, &running, &live).await?;
    let repeat = busy.answer(&running.again(23)).await?;
    assert_eq!(repeat["error"]["code"], UNKNOWN, "{repeat}");
    assert_eq!(bench.runs(21)?, 1);
    // The dead process alone knew that it had not run: it runs now, or is said to be unknown.
    let answer = session.answer(&charge(22, 0, 0)).await?;
    let is_unknown = answer["error"]["code"] == UNKNOWN;
    assert_eq!(bench.runs(22)?, usize::from(!is_unknown), "{answer}");
    Ok(())
}

#[tokio::test]
async fn under_calls_nothing_is_admitted_that_the_disk_does_not_take() -> TestResult {
    tokio::try_join!(
        fails_closed("calls", "s"),
        fails_closed("calls", "w"),
        fails_closed("calls", "f"),
    )?;
    Ok(())
}

#[tokio::test]
async fn under_events_nothing_is_admitted_that_the_disk_does_not_take() -> TestResult {
    tokio::try_join!(
        fails_closed("events", "s"),
        fails_closed("events", "w"),
        fails_closed("events", "f"),
    )?;
    Ok(())
}

#[tokio::test]
async fn under_memory_nothing_is_admitted_that_the_disk_does_not_take() -> TestResult {
    tokio::try_join!(fails_closed("memory", "w"), fails_closed("memory", "f"))?;
    Ok(())
}

#[tokio::test]
async fn what_was_logged_before_the_first_failure_can_still_be_resumed() -> TestResult {
    // Under `calls` a resume needs no sync, so it does not meet a disk that cannot sync.
    let mut bench = Bench::start("calls")?;
    let session = bench.session(None).await?;
    let mut done = session.call(&charge(1, 3, 0)).await?;
    let cursor = done.messages(1).await?;
    done.clean_rest().await?;
    bench.disk.set_fault("s")?;
    let mut rest = session.get(Some(&cursor)).await?;
    rest.clean_rest().await?;
    assert_eq!(data(rest.events()), data(done.events())[1..]);
    Ok(())
}

#[tokio::test]
async fn under_memory_a_disk_that_cannot_sync_is_no_fault() -> TestResult {
    let mut bench = Bench::start("memory")?;
    let session = bench.session(None).await?;
    bench.disk.set_fault("s")?;
    runs_now(&bench, &session, &charge(1, 3, 0)).await?;
    let admin = bench.admin().await?;
    assert_eq!(page(admin, "/readyz").await?.0, 200);
    Ok(())
}

/// A slow disk: nothing is refused, and no call runs before its claim is synced.
async fn waits(durability: &'static str) -> TestResult {
    const SYNC: Duration = Duration::from_millis(200);
    let mut bench = Bench::start(durability)?;
    let session = bench.session(None).await?;
    bench.disk.set_fault("d200")?;
    let begun = Instant::now();
    let mut first = session.call(&charge(1, 3, 0)).await?;
    until("an execution", WAIT, async || Ok::<_, Failure>((bench.runs(1)? > 0).then_some(())))
        .await?;
    let waited = begun.elapsed();
    assert!(durability == "memory" || waited >= SYNC, "it ran after {waited:?}");
    let others = [charge(2, 3, 0), charge(3, 3, 0), charge(4, 3, 0)];
    let [two, three, four] = &others;
    let answers = tokio::try_join!(
        session.answer(two),
        session.answer(three),
        session.answer(four),
        first.response(),
    )?;
    let answers: [Value; 4] = answers.into();
    assert!(answers.iter().all(|answer| answer.get("result").is_some()), "{answers:?}");
    for amount in 1..=4 {
        assert_eq!(bench.runs(amount)?, 1);
    }
    let admin = bench.admin().await?;
    assert_eq!(page(admin, "/readyz").await?.0, 200);
    bench.session(None).await?;
    Ok(())
}

#[tokio::test]
async fn a_slow_disk_delays_calls_and_refuses_none() -> TestResult {
    tokio::try_join!(waits("calls"), waits("events"), waits("memory"))?;
    Ok(())
}

#[tokio::test]
async fn a_gateway_whose_disk_fails_ends_in_order() -> TestResult {
    let mut bench = Bench::start("calls")?;
    let session = bench.session(None).await?;
    session.call(&endless(1)).await?.messages(3).await?;
    bench.disk.set_fault("w")?;
    is_refused(&session, &charge(2, 0, 0), 503).await?;
    // Nobody waits for what cannot go on, as for a call that may finish (30 s).
    assert_eq!(bench.gateway().end(WAIT).await?.code(), Some(0));
    bench.disk.set_fault("-")?;
    bench.run()?;
    let session = session.by_way_of(bench.address().await?);
    let repeat = session.answer(&endless(1).again(3)).await?;
    assert_eq!(repeat["error"]["code"], UNKNOWN, "{repeat}");
    Ok(())
}
