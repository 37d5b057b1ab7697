//! A bridge that nobody runs for longer than the gateway's keep-alive, as on a laptop that sleeps.

use std::time::Duration;

use nix::sys::signal::Signal;
use rejoin_testkit::deadline::pause;
use rejoin_testkit::failure::Failure;
use rejoin_testkit::forward::Forward;
use serde_json::{Value, json};

use crate::support::{Bench, Host};

/// Many times the gateway's keep-alive, and more than what a machine may be late by.
const SLEEP: Duration = Duration::from_secs(3);

/// Events of the call that runs meanwhile; it takes as long as the sleep and goes on behind it.
const EVENTS: u64 = 500;

/// What the network does while the bridge sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    Stays,
    /// Every connection is reset.
    Cuts,
}

async fn charge(host: &mut Host, id: u64, events: u64) -> Result<Value, Failure> {
    host.say(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": "charge",
        "arguments": { "amount": id, "events": events, "interval_ms": 10 },
        "_meta": { "progressToken": format!("p{id}") } } }))
        .await?;
    host.until(|message| message["params"]["progress"] == 1 || message["id"] == id).await
}

async fn sleep_while_a_call_runs(network: Network) -> Result<(), Failure> {
    let bench = Bench::start_with(&["--limit", "keep_alive_ms=100"]).await?;
    let forward = Forward::start(bench.address)?;
    let mut host = Host::bridge(forward.address(), &[])?;
    host.initialize().await?;
    charge(&mut host, 1, EVENTS).await?;
    host.send(Signal::SIGSTOP)?;
    if network == Network::Cuts {
        forward.cut_rst();
    }
    pause(SLEEP).await;
    forward.delay(Duration::ZERO);
    host.send(Signal::SIGCONT)?;
    let answer = host.until(|message| message["id"] == 1).await?;
    assert_eq!(answer["result"]["structuredContent"]["amount"], 1, "{answer}");
    assert_eq!(host.progress(1), (1..=EVENTS).collect::<Vec<_>>());
    for id in 2..=3 {
        charge(&mut host, id, 0).await?;
        assert_eq!(host.came.iter().filter(|message| message["id"] == id).count(), 1);
    }
    assert_eq!(bench.count.runs("charge")?, 3);
    assert_eq!(host.end().await?, Some(0));
    Ok(())
}

#[tokio::test]
async fn a_call_that_runs_while_the_bridge_sleeps_comes_whole_and_runs_once() -> Result<(), Failure>
{
    sleep_while_a_call_runs(Network::Stays).await
}

#[tokio::test]
async fn so_it_does_if_the_connections_are_gone_when_it_wakes() -> Result<(), Failure> {
    sleep_while_a_call_runs(Network::Cuts).await
}
