//! `rejoin bridge` as hosts start it.

use rejoin_testkit::cutter::{Cut, Cutter};
use rejoin_testkit::failure::Failure;
use serde_json::json;

use crate::storm::storm;
use crate::support::{Bench, Host};

#[tokio::test]
async fn a_host_behind_the_bridge_sees_no_cut() -> Result<(), Failure> {
    let bench = Bench::start().await?;
    let cutter = Cutter::start(bench.address, 21, 3_000, usize::MAX, Cut::Either)?;
    let mut host = Host::bridge(cutter.address(), &[])?;
    storm(&bench, &mut host, 60, 4).await?;
    assert!(cutter.cuts() > 10, "{} cuts", cutter.cuts());
    assert_eq!(host.end().await?, Some(0));
    Ok(())
}

#[tokio::test]
async fn the_servers_questions_reach_the_host_and_its_answers_the_server() -> Result<(), Failure> {
    let bench = Bench::start().await?;
    let mut host = Host::bridge(bench.address, &["--quiet"])?;
    host.initialize_with(json!({ "elicitation": {} })).await?;
    host.say(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "ask", "arguments": { "question": "really?" } } }))
        .await?;
    let asked = host.until(|message| message["method"] == "elicitation/create").await?;
    host.say(json!({ "jsonrpc": "2.0", "id": asked["id"],
        "result": { "action": "accept", "content": { "answer": "yes" } } }))
        .await?;
    let answer = host.until(|message| message["id"] == 1).await?;
    assert!(answer["result"].to_string().contains("yes"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_is_killed_and_started_again_runs_nothing_twice() -> Result<(), Failure> {
    let mut bench = Bench::start_kept().await?;
    let mut host = Host::bridge(bench.address, &[])?;
    host.initialize().await?;
    for id in 1..=5_u64 {
        host.charge(id, id, 3).await?;
        let answer = host.until(|message| message["id"] == id).await?;
        assert_eq!(answer["result"]["structuredContent"]["amount"], id, "{answer}");
        // The next one is killed in its middle.
        host.charge(100 + id, 100 + id, 1_000).await?;
        let token = format!("p{}", 100 + id);
        host.until(|message| message["params"]["progressToken"] == token.as_str()).await?;
        bench.restart().await?;
        let end = host.until(|message| message["id"] == 100 + id).await?;
        assert_eq!(end["error"]["data"]["mayHaveRun"], true, "{end}");
        assert_eq!(bench.count.runs_with("charge", "amount", &(100 + id).into())?, 1);
        // The tool server is another one now, of which the next call is told once.
        host.charge(200 + id, 200 + id, 0).await?;
        let told = host.until(|message| message["id"] == 200 + id).await?;
        assert_eq!(told["error"]["data"]["reason"], "state_lost", "{told}");
        assert_eq!(told["error"]["data"]["mayHaveRun"], false, "{told}");
    }
    assert_eq!(bench.count.runs("charge")?, 10);
    assert_eq!(host.end().await?, Some(0));
    Ok(())
}
