//! What a person reads on standard error, and a host in an error, where the bridge was started
//! wrong.

use std::net::SocketAddr;
use std::process::Stdio;

use rejoin_testkit::deadline::{WAIT_MAX, within};
use rejoin_testkit::failure::Failure;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"first","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// A server that answers everything with this, and counts what it was asked.
async fn answering(head: &str, body: &str) -> Result<(SocketAddr, Asked), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let answer =
        format!("{head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    let (count, asked) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.send_modify(|count| *count += 1);
            let mut request = vec![0; 16 * 1024];
            let mut length = 0;
            // The request's body ends with that of the message.
            while !request[..length].ends_with(b"}}}") {
                match stream.read(&mut request[length..]).await {
                    Ok(read) if read > 0 => length += read,
                    _ => break,
                }
            }
            let _closed = stream.write_all(answer.as_bytes()).await.is_err();
        }
    });
    Ok((address, asked))
}

type Asked = tokio::sync::watch::Receiver<u64>;

/// The answer to `initialize`, and all of standard error, of a bridge whose input then ends.
async fn told(url: &str, options: &[&str]) -> Result<(Value, String), Failure> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rejoin"))
        .args(["bridge", "--no-proxy", url])
        .args(options)
        .env("TOOLS_TOKEN", "zqsecret")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let Some(mut input) = child.stdin.take() else { return Err(Failure::new("no input")) };
    input.write_all(format!("{INITIALIZE}\n").as_bytes()).await?;
    drop(input);
    let output = within("the bridge to end", WAIT_MAX, child.wait_with_output()).await??;
    let answer = serde_json::from_slice(&output.stdout)?;
    Ok((answer, String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[tokio::test]
async fn a_wrong_url_is_named_on_standard_error_and_in_the_answer() -> Result<(), Failure> {
    let json = "Content-Type: application/json";
    let html = "Content-Type: text/html";
    for (status, head, body) in [
        (404, format!("HTTP/1.1 404 Not Found\r\n{html}"), "<html>Cannot POST /x</html>"),
        (405, format!("HTTP/1.1 405 Method Not Allowed\r\n{json}"), r#"{"detail":"no"}"#),
        (501, format!("HTTP/1.1 501 Unsupported method\r\n{html}"), "<html>501</html>"),
        (200, format!("HTTP/1.1 200 OK\r\n{html}"), "<!DOCTYPE html><html></html>"),
    ] {
        let (address, asked) = answering(&head, body).await?;
        let url = format!("http://{address}/x?key=zqsecret");
        let (answer, stderr) = told(&url, &[]).await?;
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        for part in [&format!("http://{address}/x"), "check the URL", &status.to_string()] {
            assert!(text.contains(part), "{status}: {answer}");
            assert!(stderr.contains(part), "{status}: {stderr}");
        }
        assert!(stderr.contains(r#"call "first" (initialize) failed"#), "{status}: {stderr}");
        assert_eq!(answer["error"]["data"]["mayHaveRun"], false, "{answer}");
        assert!(!text.contains("zqsecret") && !stderr.contains("zqsecret"), "{text} {stderr}");
        assert_eq!(*asked.borrow(), 1, "{status}: it is asked once");
    }
    Ok(())
}

#[tokio::test]
async fn a_credential_that_is_refused_is_named_and_not_shown() -> Result<(), Failure> {
    let cases: [(&[&str], &str); 3] = [
        (&["--auth", "env:TOOLS_TOKEN"], "the variable `TOOLS_TOKEN` was sent"),
        (&["--auth", "command:echo zqsecret"], "the command `echo` printed was sent"),
        (&[], "no credential was sent"),
    ];
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let (address, _) = answering(&format!("HTTP/1.1 {status}"), "").await?;
        for (options, named) in cases {
            let (answer, stderr) = told(&format!("http://{address}/mcp"), options).await?;
            assert!(answer["error"]["message"].to_string().contains(named), "{answer}");
            assert!(stderr.contains(named), "{stderr}");
            assert!(answer["error"]["message"].to_string().contains("with --auth"), "{answer}");
            assert!(!answer.to_string().contains("zqsecret"), "{answer}");
            assert!(!stderr.contains("zqsecret"), "{stderr}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn help_names_every_signal_that_ends_the_bridge() -> Result<(), Failure> {
    let help =
        Command::new(env!("CARGO_BIN_EXE_rejoin")).args(["bridge", "--help"]).output().await?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for signal in ["SIGTERM", "SIGINT", "SIGHUP"] {
        assert!(help.contains(signal), "{help}");
    }
    Ok(())
}
