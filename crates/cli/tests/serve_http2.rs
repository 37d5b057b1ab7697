//! `rejoin serve` and clients that begin with HTTP/2, frame by frame (RFC 9113 section 4.1).

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::net::SocketAddr;
use std::process::Command;

use rejoin_testkit::call::Call;
use rejoin_testkit::deadline::{WAIT, within};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::session::Session;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
/// The preface, with an empty SETTINGS.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const NO_ERROR: u32 = 0;
const HTTP_1_1_REQUIRED: u32 = 0x0d;

fn serve(options: &[&str]) -> Result<Server, Failure> {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    Ok(Server::start(REJOIN, arguments.iter().chain(options))?)
}

/// A connection, after the server's first frame.
async fn begin(address: SocketAddr) -> Result<TcpStream, Failure> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(BEGINNING).await?;
    assert_eq!(frame(&mut socket).await?.0, SETTINGS);
    Ok(socket)
}

/// Kind and payload of the next frame.
async fn frame(socket: &mut TcpStream) -> Result<(u8, Vec<u8>), Failure> {
    let mut head = [0; 9];
    within("a frame", WAIT, socket.read_exact(&mut head)).await??;
    let [a, b, c, kind, ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    within("a payload", WAIT, socket.read_exact(&mut payload)).await??;
    Ok((kind, payload))
}

/// The code of the next GOAWAY, and what it says.
async fn goaway(socket: &mut TcpStream) -> Result<(u32, String), Failure> {
    loop {
        let (kind, payload) = frame(socket).await?;
        if kind == GOAWAY {
            let code = u32::from_be_bytes(payload[4..8].try_into()?);
            return Ok((code, String::from_utf8_lossy(&payload[8..]).into_owned()));
        }
    }
}

async fn charge(address: SocketAddr) -> TestResult {
    let session = Session::open(address).await?;
    let answer = session.answer(&Call::new(1, "charge", json!({"amount": 1}))).await?;
    assert!(answer["result"].is_object(), "{answer}");
    Ok(())
}

#[tokio::test]
async fn with_the_option_both_protocols_are_spoken_and_the_end_is_told_to_both() -> TestResult {
    let mut gateway = serve(&["--http2"])?;
    let address = gateway.address("listens", WAIT).await?;
    gateway.log_line("HTTP/2 is on", WAIT).await?;
    let mut socket = begin(address).await?;
    charge(address).await?;
    let signal = Command::new("kill").args(["-TERM", &gateway.pid().to_string()]).status()?;
    assert!(signal.success());
    assert_eq!(goaway(&mut socket).await?.0, NO_ERROR);
    drop(socket);
    assert_eq!(gateway.ended(WAIT).await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn without_it_a_client_is_told_of_it_and_http_1_1_is_spoken() -> TestResult {
    let mut gateway = serve(&[])?;
    let address = gateway.address("listens", WAIT).await?;
    let (code, said) = goaway(&mut begin(address).await?).await?;
    assert_eq!(code, HTTP_1_1_REQUIRED);
    assert!(said.contains("rejoin serve --http2"), "{said}");
    charge(address).await
}
