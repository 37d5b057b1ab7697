//! Exchanges are counted, by how they end.

use rejoin_testkit::deadline::{WAIT, within};
use rejoin_testkit::failure::TestResult;

use crate::support::{Bench, End, answer, bare, chunk, modern, stream};

const RUNNING: &str = "rejoin_passed_exchanges_running";

fn ended(how: &str) -> String {
    format!("rejoin_passed_exchanges_total{{ended=\"{how}\"}}")
}

#[tokio::test]
async fn an_answer_counts_when_it_is_whole() -> TestResult {
    let bench = Bench::start().await?;
    let closing = "Connection: close\r\n";
    let coded = stream("data: 1\n\n") + &chunk("data: 2\n\n") + "0\r\n\r\n";
    let rows = [answer("200 OK", closing, "{}"), answer("202 Accepted", closing, ""), coded];
    for (done, said) in [1.0, 2.0, 3.0].into_iter().zip(rows) {
        let mut client = bench.client(&modern(1, "")).await?;
        let mut peer = bench.peer().await?;
        bench.counts(RUNNING, 1.0).await?;
        peer.say(said).await?;
        assert!(client.answer().await?.is_whole);
        bench.counts(&ended("answered"), done).await?;
        bench.counts(RUNNING, 0.0).await?;
    }
    bench.counts(&ended("client_left"), 0.0).await
}

#[tokio::test]
async fn each_other_end_has_a_name_of_its_own() -> TestResult {
    let bench = Bench::limited(|limits| limits.passed_exchanges_max = 1).await?;
    let client = bench.client(&modern(1, "")).await?;
    let mut peer = bench.peer().await?;
    assert_eq!(bench.client(&modern(2, "")).await?.answer().await?.status(), "503");
    bench.counts(&ended("refused"), 1.0).await?;
    peer.say(stream("data: 1\n\n")).await?;
    client.end(End::Fin)?;
    bench.counts(&ended("client_left"), 1.0).await?;
    let mut client = bench.client(&modern(3, "")).await?;
    bench.peer().await?.end(End::Reset)?;
    assert_eq!(client.answer().await?.status(), "502");
    bench.counts(&ended("server_failed"), 1.0).await?;
    let mut client = bench.client(&modern(4, "")).await?;
    let mut peer = bench.peer().await?;
    peer.say(stream("data: 1\n\n")).await?;
    client.sees("data: 1").await?;
    peer.end(End::Fin)?;
    assert!(!client.answer().await?.is_whole);
    bench.counts(&ended("server_failed"), 2.0).await?;
    let mut client = bench.client(&bare("GET", "/mcp", "")).await?;
    let mut peer = bench.peer().await?;
    peer.say(stream("data: 1\n\n")).await?;
    client.sees("data: 1").await?;
    within("the drain", WAIT, bench.gateway.drain()).await?;
    bench.counts(&ended("stopped"), 1.0).await?;
    bench.counts(RUNNING, 0.0).await?;
    bench.counts(&ended("answered"), 0.0).await
}
