//! The probe over TLS: a forwarder in Python ends the TLS in front of the scripted server.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, unused_imports, reason = "faults are for other tests")]
#[path = "support/mod.rs"]
mod support;

use std::process::Stdio;
use std::sync::Arc;

use rejoin_probe::{Options, Verdict};
use support::Server;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const FORWARDER: &str = r#"
import asyncio, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.transport.abort()
async def carry(reader, writer):
    up_reader, up_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer))
async def main():
    server = await asyncio.start_server(carry, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_behind_tls_is_probed_if_its_authority_is_trusted() {
    let server = Server::start(None).await;
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (both, authority) = (folder.path().join("both.pem"), folder.path().join("ca.pem"));
    std::fs::write(&both, made.signing_key.serialize_pem() + &made.cert.pem()).unwrap();
    std::fs::write(&authority, made.cert.pem()).unwrap();
    let mut forwarder = Command::new("python3")
        .args(["-c", FORWARDER])
        .arg(&both)
        .arg(server.address.port().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut port = String::new();
    let output = forwarder.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut port).await.unwrap();

    let mut options = Options {
        url: format!("https://127.0.0.1:{}/mcp", port.trim()),
        ca_file: Some(authority),
        only: ["resume-in-flight", "overtaking", "repeat-in-flight-new-id"]
            .map(str::to_owned)
            .into(),
        ..Options::default()
    };
    let report = rejoin_probe::run(&options, Arc::new(|_: &_| ())).await.unwrap();
    for finding in report.findings {
        assert_eq!(finding.verdict, Verdict::Safe, "{}: {}", finding.about.id, finding.seen);
    }
    options.ca_file = None;
    let error = rejoin_probe::run(&options, Arc::new(|_: &_| ())).await.unwrap_err();
    assert!(error.to_string().contains("cannot connect"), "{error}");
    assert!(error.to_string().contains("named with --ca"), "{error}");
    options.url = format!("https://{}/mcp", server.address);
    let error = rejoin_probe::run(&options, Arc::new(|_: &_| ())).await.unwrap_err();
    assert!(error.to_string().contains("cannot connect"), "{error}");
}
