//! `rejoin bridge` as hosts start it.

use rejoin_testkit::cutter::{Cut, Cutter};
use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::Failure;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

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

/// Its input stays open: only the end of the process that started it tells.
#[tokio::test]
async fn the_bridge_ends_with_the_process_that_started_it() -> Result<(), Failure> {
    let rejoin = env!("CARGO_BIN_EXE_rejoin");
    let script = "exec 3<&0; \"$0\" bridge http://127.0.0.1:9/mcp <&3 & echo $!; wait";
    let mut shell = Command::new("sh")
        .args(["-c", script, rejoin])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let Some(mut input) = shell.stdin.take() else { return Err(Failure::new("no input")) };
    let Some(output) = shell.stdout.take() else { return Err(Failure::new("no output")) };
    let mut output = BufReader::new(output).lines();
    let line = output.next_line().await?;
    let process = format!("/proc/{}", line.unwrap_or_default().trim());
    // It answers, so it knows who started it.
    input.write_all(b"{}\n").await?;
    let answer = output.next_line().await?.unwrap_or_default();
    assert!(answer.contains("-32600"), "{answer}");
    shell.kill().await?;
    // What nobody has waited for yet is gone too.
    let is_gone = async || {
        let state = std::fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
        Ok::<_, Failure>((state.is_empty() || state.contains(") Z ")).then_some(()))
    };
    until("the bridge to end", WAIT, is_gone).await?;
    drop(input);
    Ok(())
}

#[tokio::test]
async fn a_url_that_is_none_and_a_missing_credential_are_told() -> Result<(), Failure> {
    let rejoin = env!("CARGO_BIN_EXE_rejoin");
    let told = Command::new(rejoin).args(["bridge", "tools"]).output().await?;
    assert_eq!(told.status.code(), Some(1));
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(text.contains("must begin with http://"), "{text}");

    let url = "http://127.0.0.1:9/mcp";
    let auth = ["--auth", "env:NO_SUCH_VARIABLE_OF_OURS"];
    let told = Command::new(rejoin).args(["bridge", url]).args(auth).output().await?;
    assert_eq!(told.status.code(), Some(1));
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(text.contains("NO_SUCH_VARIABLE_OF_OURS"), "{text}");
    Ok(())
}
