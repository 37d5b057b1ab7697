//! `rejoin bridge` in front of hosts that do not read, do not stop, or say too much at once.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rejoin_testkit::deadline::{WAIT, WAIT_MAX, until, within};
use rejoin_testkit::failure::Failure;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::support::{Bench, Host};

/// More than one message may have.
const TOO_LONG: usize = 17 << 20;

/// A write that takes so long meets a pipe that nobody empties.
const FULL: Duration = Duration::from_millis(500);

/// A bridge to where nobody listens: nothing that is sent here needs a server.
fn bridge() -> Result<(Child, ChildStdin), Failure> {
    let mut child = bridge_from(Stdio::piped())?;
    let Some(input) = child.stdin.take() else { return Err(Failure::new("no input")) };
    Ok((child, input))
}

fn bridge_from(input: Stdio) -> Result<Child, Failure> {
    bridge_with(&[], input)
}

fn bridge_with(options: &[&str], input: Stdio) -> Result<Child, Failure> {
    Ok(Command::new(env!("CARGO_BIN_EXE_rejoin"))
        .args(["bridge", "--no-proxy", "http://127.0.0.1:9/mcp"])
        .args(options)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?)
}

/// The message of a bridge's next line.
async fn next(child: &mut Child) -> Result<Value, Failure> {
    let Some(output) = child.stdout.as_mut() else { return Err(Failure::new("no output")) };
    let mut line = String::new();
    within("a line", WAIT_MAX, BufReader::new(output).read_line(&mut line)).await??;
    Ok(serde_json::from_str(&line)?)
}

fn send(child: &Child, signal: Signal) -> Result<(), Failure> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let Some(id) = id else { return Err(Failure::new("it has ended")) };
    Ok(kill(Pid::from_raw(id), signal)?)
}

async fn end(child: &mut Child) -> Result<ExitStatus, Failure> {
    Ok(within("the bridge to end", WAIT_MAX, child.wait()).await??)
}

/// A bridge whose every answer waits for a host that reads none, until it takes nothing more.
async fn bridge_with_full_pipes() -> Result<(Child, ChildStdin), Failure> {
    let (child, input) = bridge()?;
    Ok((child, fill(input).await?))
}

/// Writes lines until nothing more is taken.
async fn fill<W: AsyncWrite + Unpin>(mut input: W) -> Result<W, Failure> {
    let lines = "{}\n".repeat(1_000);
    for _ in 0..1_000 {
        match timeout(FULL, input.write_all(lines.as_bytes())).await {
            Ok(written) => written?,
            Err(_) => return Ok(input),
        }
    }
    Err(Failure::new("the bridge takes everything"))
}

#[tokio::test]
async fn notices_that_nobody_reads_hold_nothing_up() -> Result<(), Failure> {
    let (mut child, mut input) = bridge()?;
    // Each is told to a person, since it answers nothing; a pipe holds some hundred lines.
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
    let answers = format!("{answer}\n").repeat(3_000);
    input.write_all(format!("{answers}{{}}\n").as_bytes()).await?;
    assert_eq!(next(&mut child).await?["error"]["code"], -32_600);
    send(&child, Signal::SIGTERM)?;
    assert_eq!(end(&mut child).await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn a_bridge_whose_output_nobody_reads_ends_after_a_signal() -> Result<(), Failure> {
    let (mut child, _input) = bridge_with_full_pipes().await?;
    send(&child, Signal::SIGTERM)?;
    assert_eq!(end(&mut child).await?.code(), Some(1));
    Ok(())
}

#[tokio::test]
async fn a_bridge_whose_output_nobody_reads_ends_after_its_input() -> Result<(), Failure> {
    let (mut child, mut input) = bridge()?;
    // More than a pipe holds, and less than what the bridge takes.
    input.write_all("{}\n".repeat(800).as_bytes()).await?;
    drop(input);
    assert_eq!(end(&mut child).await?.code(), Some(1));
    Ok(())
}

/// Nothing makes room for what it still wrote: that cannot be waited for.
#[tokio::test]
async fn a_bridge_whose_host_left_more_than_it_takes_and_reads_nothing_ends() -> Result<(), Failure>
{
    let (mut child, input) = bridge_with_full_pipes().await?;
    drop(input);
    assert_eq!(end(&mut child).await?.code(), Some(1));
    Ok(())
}

/// Some hosts give their commands one end of a socket in place of a pipe.
#[tokio::test]
async fn so_it_does_if_its_input_is_a_socket() -> Result<(), Failure> {
    let (input, output) = std::os::unix::net::UnixStream::pair()?;
    input.set_nonblocking(true)?;
    let mut child = bridge_from(Stdio::from(std::os::fd::OwnedFd::from(output)))?;
    let input = fill(tokio::net::UnixStream::from_std(input)?).await?;
    drop(input);
    assert_eq!(end(&mut child).await?.code(), Some(1));
    Ok(())
}

#[tokio::test]
async fn a_second_signal_ends_the_bridge_at_once() -> Result<(), Failure> {
    let (mut child, _input) = bridge_with_full_pipes().await?;
    let status = until("the bridge to end", WAIT, async || {
        send(&child, Signal::SIGTERM)?;
        Ok::<_, Failure>(child.try_wait()?)
    });
    assert_eq!(status.await?.code(), Some(143));
    Ok(())
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_wherever_its_id_stands() -> Result<(), Failure> {
    let (mut child, mut input) = bridge()?;
    let long = "x".repeat(TOO_LONG);
    let requests = [
        (json!(5), format!(r#"{{"id":5,"method":"m","params":{{"a":"{long}"}}}}"#)),
        (json!("z"), format!(r#"{{"method":"m","params":{{"id":1,"a":"{long}"}},"id":"z"}}"#)),
        (Value::Null, long.clone()),
    ];
    for (id, request) in requests {
        input.write_all(format!("{request}\n").as_bytes()).await?;
        let told = next(&mut child).await?;
        assert_eq!((&told["id"], &told["error"]["code"]), (&id, &json!(-32_600)), "{told}");
        assert_eq!(told["error"]["data"]["mayHaveRun"], false, "{told}");
    }
    // A notification is answered by nothing.
    let notification = format!("{{\"method\":\"m\",\"params\":{{\"a\":\"{long}\"}}}}\n");
    input.write_all(notification.as_bytes()).await?;
    drop(input);
    assert_eq!(end(&mut child).await?.code(), Some(0));
    let mut rest = String::new();
    let Some(output) = child.stdout.take() else { return Err(Failure::new("no output")) };
    assert_eq!(BufReader::new(output).read_line(&mut rest).await?, 0, "{rest}");
    Ok(())
}

#[tokio::test]
async fn the_server_is_told_of_an_answer_that_is_too_long() -> Result<(), Failure> {
    let bench = Bench::start().await?;
    let mut host = Host::bridge(bench.address, &[])?;
    host.initialize_with(json!({ "elicitation": {} })).await?;
    host.say(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "ask", "arguments": { "question": "really?" } } }))
        .await?;
    let asked = host.until(|message| message["method"] == "elicitation/create").await?;
    host.say(json!({ "jsonrpc": "2.0", "id": asked["id"],
        "result": { "action": "accept", "content": { "answer": "x".repeat(TOO_LONG) } } }))
        .await?;
    let answer = host.until(|message| message["id"] == 1).await?;
    assert!(answer.to_string().contains("was not sent"), "{answer}");
    Ok(())
}

/// Whatever ends the bridge, and however fast: the command would hold the host's standard error.
#[tokio::test]
async fn a_command_for_the_credential_ends_with_the_bridge() -> Result<(), Failure> {
    for is_at_once in [false, true] {
        let folder = tempfile::tempdir()?;
        let ids = folder.path().join("ids");
        let auth = format!("command:sleep 300 & echo $! > {}; wait", ids.display());
        let mut child = bridge_with(&["--auth", &auth], Stdio::piped())?;
        let Some(mut input) = child.stdin.take() else { return Err(Failure::new("no input")) };
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        input.write_all(format!("{call}\n").as_bytes()).await?;
        let id = until("the command to run", WAIT, async || {
            let written = std::fs::read_to_string(&ids).unwrap_or_default();
            Ok::<_, Failure>(written.trim().parse::<u32>().ok())
        });
        let stat = format!("/proc/{}/stat", id.await?);
        send(&child, Signal::SIGTERM)?;
        if is_at_once {
            let status = until("the bridge to end", WAIT, async || {
                send(&child, Signal::SIGTERM)?;
                Ok::<_, Failure>(child.try_wait()?)
            });
            status.await?;
        } else {
            end(&mut child).await?;
        }
        // What nobody has waited for yet is gone too.
        until("the command to end", WAIT, async || {
            let runs = std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
            Ok::<_, Failure>((!runs).then_some(()))
        })
        .await?;
    }
    Ok(())
}
