//! Which protocol a connection gets, and what is told where HTTP/2 is off.

use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http_body_util::Full;
use rejoin_core::limits::Limits;
use rejoin_gateway::listen::{self, ListenConfig};
use rejoin_gateway::tap::{SharedWire, Wire};
use rejoin_testkit::deadline::{WAIT, within};
use rejoin_testkit::failure::TestResult;
use rejoin_testkit::raw::{Connection, Request};
use rejoin_testkit::session::Session;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::frames::{GOAWAY, PREFACE, Raw, SETTINGS, frame};
use crate::support::{Bench, Client};
use crate::tool::flood;

#[tokio::test]
async fn where_http_2_is_off_its_clients_are_told_so_in_their_own_frames() -> TestResult {
    let bench = Bench::start_with(false, |_| {}).await?;
    let mut client = Client::connect(bench.address).await?;
    let asked = client.initialize().await;
    assert!(asked.is_err());
    let ended = within("the end of the connection", WAIT, &mut client.connection).await??;
    assert_eq!(ended.unwrap_err().reason(), Some(Reason::HTTP_1_1_REQUIRED));

    let mut raw = Raw::open(bench.address).await?;
    // The first frame of a server (RFC 9113 section 3.4).
    let mut frames = 0;
    let goaway = raw.until("GOAWAY", |frame| {
        frames += 1;
        assert_eq!(frame.kind, if frames == 1 { SETTINGS } else { GOAWAY });
        frame.kind == GOAWAY
    });
    let goaway = goaway.await?;
    assert_eq!((goaway.number(0), goaway.number(4)), (0, u32::from(Reason::HTTP_1_1_REQUIRED)));
    let said = String::from_utf8_lossy(&goaway.payload[8..]).into_owned();
    assert!(said.contains("Use HTTP/1.1") && said.contains("--http2"), "{said}");
    let mut rest = Vec::new();
    within("the end", WAIT, raw.0.read_to_end(&mut rest)).await??;
    assert_eq!((rest.len(), bench.tool.count("initialize")), (0, 0));

    let session = Session::open(bench.address).await?;
    assert!(session.answer(&flood(10, 1, 0)).await?["result"].is_object());
    Ok(())
}

#[tokio::test]
async fn a_protocol_is_told_however_small_the_pieces_are_in_which_it_comes() -> TestResult {
    let bench = Bench::start().await?;
    let mut socket = TcpStream::connect(bench.address).await?;
    socket.set_nodelay(true)?;
    let (mut answers, mut asks) = socket.split();
    for byte in [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat() {
        asks.write_all(&[byte]).await?;
        tokio::task::yield_now().await;
    }
    let mut head = [0; 9];
    within("SETTINGS", WAIT, answers.read_exact(&mut head)).await??;
    assert_eq!(head[3], SETTINGS);

    // As far as the fourth byte, this could become HTTP/2 too.
    let mut old = Connection::open(bench.address).await?;
    for byte in b"PRI /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n" {
        old.send(&[*byte]).await?;
        tokio::task::yield_now().await;
    }
    assert_eq!(old.head().await?.status, 405);
    Ok(())
}

/// The upgrade of RFC 7540 is no more (RFC 9113 section 3.1).
#[tokio::test]
async fn an_offer_to_upgrade_is_passed_over() -> TestResult {
    let bench = Bench::start().await?;
    let request = Request::new("OPTIONS", "/mcp")
        .header("Host", &bench.address.to_string())
        .header("Connection", "Upgrade, HTTP2-Settings")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAAQAAP__");
    let mut connection = Connection::open(bench.address).await?;
    connection.request(&request).await?;
    assert_eq!(connection.head().await?.status, 405);
    Ok(())
}

#[tokio::test]
async fn a_connection_that_does_not_say_what_it_speaks_is_ended() -> TestResult {
    for http2 in [true, false] {
        let bench = Bench::start_with(http2, |limits| limits.request_head_max_ms = 200).await?;
        for beginning in [&b""[..], &PREFACE[..20], b"POST /mcp"] {
            let mut socket = TcpStream::connect(bench.address).await?;
            socket.write_all(beginning).await?;
            let mut answer = Vec::new();
            let read = within("the end", WAIT, socket.read_to_end(&mut answer)).await?;
            assert!(matches!(read, Ok(0)), "{read:?}");
        }
        let mut gone = TcpStream::connect(bench.address).await?;
        gone.write_all(&PREFACE[..20]).await?;
        gone.shutdown().await?;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(5), gone.read_to_end(&mut answer));
        read.await??;
    }
    Ok(())
}

/// A flush means nothing in HTTP/2: whoever had a [`Wire`] would take it for evidence.
#[tokio::test]
async fn only_a_request_of_http_1_1_has_the_evidence_of_its_socket() -> TestResult {
    let (listener, address) = listen::bind("127.0.0.1:0".parse()?).await?;
    let config = ListenConfig { limits: Limits::default(), http2: true };
    let serving = tokio::spawn(async move {
        let answer = async |request: http::Request<_>| {
            let extensions = request.extensions();
            let wires = [
                extensions.get::<Wire>().map(Wire::exchange),
                extensions.get::<SharedWire>().map(SharedWire::exchange),
            ];
            http::Response::new(Full::new(Bytes::from(format!("{wires:?}"))))
        };
        listen::serve(listener, config, answer, pending(), WAIT).await
    });
    let mut client = Client::connect(address).await?;
    for number in 1..=2 {
        let request = client.request("GET").body(())?;
        let mut answer = client.send(request, None).await?;
        assert_eq!(answer.data().await?.unwrap(), format!("[None, Some({number})]"));
    }
    let mut connection = Connection::open(address).await?;
    connection.request(&Request::new("GET", "/").header("Host", "localhost")).await?;
    connection.head().await?;
    assert_eq!(connection.plain_body().await?, b"[Some(1), None]");
    serving.abort();
    Ok(())
}
