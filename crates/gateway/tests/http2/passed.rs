//! Requests without a session go to a server of HTTP/1.1 (spec 2026-07-28).

use std::sync::Arc;

use rejoin_core::settings::Settings;
use rejoin_gateway::listen::ListenConfig;
use rejoin_gateway::upstream::http::{HttpOptions, HttpUpstream};
use rejoin_testkit::deadline::{WAIT, within};
use rejoin_testkit::failure::{Failure, TestResult};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::serving::serve_by;
use crate::support::Client;

/// Reads what comes until it contains `end`.
async fn read_to(socket: &mut TcpStream, end: &str) -> Result<String, Failure> {
    let mut came = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&came);
        if text.contains(end) {
            return Ok(text.into_owned());
        }
        let read = within(end, WAIT, socket.read_buf(&mut came)).await??;
        assert_ne!(read, 0, "the end before {end}: {came:?}");
    }
}

#[tokio::test]
async fn a_request_without_a_session_reaches_its_server_as_http_1_1_and_a_reset_is_its_end()
-> TestResult {
    let server = TcpListener::bind("127.0.0.1:0").await?;
    let settings = Settings::default();
    let options = HttpOptions::new(Arc::new(settings.limits.clone()));
    let url = format!("http://{}/mcp", server.local_addr()?);
    let upstream = Arc::new(HttpUpstream::new(&url, options)?);
    let config = ListenConfig { limits: settings.limits.clone(), http2: true };
    let (_gateway, address, serving) = serve_by(config, upstream, settings).await?;

    let mut client = Client::connect(address).await?;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t",
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
    let request = client
        .request("POST")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(())?;
    let asking = client.send(request, Some(call.to_string()));
    let answering = async {
        let (mut peer, _) = within("a connection to the server", WAIT, server.accept()).await??;
        let came = read_to(&mut peer, "\"tools/call\"").await?;
        let first = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
            Keep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";
        peer.write_all(first.as_bytes()).await?;
        Ok::<_, Failure>((peer, came.to_ascii_lowercase()))
    };
    let (answer, answered) = tokio::join!(asking, answering);
    let (mut answer, (mut peer, came)) = (answer?, answered?);
    let host = format!("host: {}\r\n", server.local_addr()?);
    for part in ["post /mcp http/1.1\r\n", &host, "cookie: a=1; b=2\r\n"] {
        assert!(came.contains(part), "{part:?} is not in {came}");
    }
    for of_one_hop in ["keep-alive", "transfer-encoding"] {
        assert!(!answer.headers.contains_key(of_one_hop), "{:?}", answer.headers);
    }
    assert_eq!(answer.data().await?.unwrap(), "data: 1\n\n");

    answer.reset();
    let mut rest = Vec::new();
    within("the end of the exchange", WAIT, peer.read_to_end(&mut rest)).await??;
    assert_eq!(String::from_utf8_lossy(&rest), "");
    client.ping().await?;
    serving.abort();
    Ok(())
}
