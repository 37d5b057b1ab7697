//! TLS with an authority of one's own, and proxies.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rejoin_client::{Client, Config, FromServer, Proxies};
use rejoin_testkit::failure::Failure;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::{Act, Host, Played, TEST_MAX, opening, result, whole};

/// A server over TLS that answers every request with a result, and the file of its authority.
struct Secure {
    url: String,
    ca_file: PathBuf,
    _folder: TempDir,
}

impl Secure {
    fn start() -> Result<Self, Failure> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &authority)?;
        let folder = tempfile::tempdir()?;
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, authority.pem())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let url = format!("https://localhost:{}/mcp", listener.local_addr()?.port());
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let config = Arc::clone(&config);
                std::thread::spawn(move || serve(stream, config));
            }
        });
        Ok(Self { url, ca_file, _folder: folder })
    }
}

/// Answers one request. A client that does not trust the certificate ends the connection.
fn serve(stream: std::net::TcpStream, config: Arc<rustls::ServerConfig>) -> Option<()> {
    let connection = rustls::ServerConnection::new(config).ok()?;
    let mut reader = BufReader::new(rustls::StreamOwned::new(connection, stream));
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request: Value = serde_json::from_slice(&body).ok()?;
    let answer = whole("200 OK", "Connection: close\r\n", &result(&request, "secure").to_string());
    let stream = reader.get_mut();
    stream.write_all(answer.as_bytes()).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

/// A proxy; what it was asked for comes on the channel, credential and all.
async fn proxy() -> Result<(String, mpsc::Receiver<String>), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://user:pass@{}", listener.local_addr()?);
    let (sender, asked) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move { tunnel(client, sender).await });
        }
    });
    Ok((url, asked))
}

/// Opens a tunnel, or answers a request for a whole URL by itself.
async fn tunnel(mut client: TcpStream, asked: mpsc::Sender<String>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let target = head.split(' ').nth(1)?.to_owned();
    asked.send(head.clone()).await.ok()?;
    if !head.starts_with("CONNECT") {
        let body = json!({ "jsonrpc": "2.0", "id": null,
            "error": { "code": 1, "message": "by the proxy" } });
        let answer = whole("200 OK", "Connection: close\r\n", &body.to_string());
        return client.write_all(answer.as_bytes()).await.ok();
    }
    let mut server = TcpStream::connect(target).await.ok()?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok()?;
    Some(())
}

#[tokio::test]
async fn a_server_whose_authority_is_in_the_file_is_spoken_to_and_another_is_not()
-> Result<(), Failure> {
    let server = Secure::start()?;
    let mut config = Config::new(&server.url);
    config.proxies = Proxies::None;
    config.ca_file = Some(server.ca_file.clone());
    let mut host = Host::start(&config)?;
    assert_eq!(host.call(1).await?["result"]["text"], "secure");

    config.ca_file = Some(server.ca_file.with_extension("none"));
    assert!(Client::connect(&config).is_err(), "there is no such file");
    let other = Secure::start()?;
    config.ca_file = Some(other.ca_file.clone());
    config.limits.unreachable_max_ms = 0;
    let mut host = Host::start(&config)?;
    let refused = host.call(1).await?;
    assert_eq!(refused["error"]["data"]["mayHaveRun"], false, "{refused}");
    assert!(refused["error"]["message"].to_string().contains("certificate"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_proxy_opens_a_tunnel_to_a_server_over_tls() -> Result<(), Failure> {
    let server = Secure::start()?;
    let (url, mut asked) = proxy().await?;
    let mut config = Config::new(&server.url);
    config.proxies = Proxies::Through(url);
    config.ca_file = Some(server.ca_file.clone());
    let mut host = Host::start(&config)?;
    assert_eq!(host.call(1).await?["result"]["text"], "secure");
    let head = timeout(TEST_MAX, asked.recv()).await?.unwrap_or_default();
    let target = server.url.replace("https://", "").replace("/mcp", "");
    assert!(head.starts_with(&format!("CONNECT {target} HTTP/1.1\r\n")), "{head}");
    assert!(
        head.to_ascii_lowercase().contains("proxy-authorization: basic dxnlcjpwyxnz"),
        "{head}"
    );
    Ok(())
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_whole_url_of_a_server_without_tls() -> Result<(), Failure> {
    let (url, mut asked) = proxy().await?;
    let mut config = Config::new("http://tools.example/mcp?x=1");
    config.proxies = Proxies::Through(url);
    let mut host = Host::start(&config)?;
    let answer = host.call(1).await?;
    assert_eq!(answer["error"]["message"], "by the proxy", "{answer}");
    let head = timeout(TEST_MAX, asked.recv()).await?.unwrap_or_default();
    assert!(head.starts_with("POST http://tools.example/mcp?x=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("\r\nhost: tools.example\r\n"), "{head}");
    Ok(())
}

#[tokio::test]
async fn a_proxy_that_cannot_be_reached_means_that_nothing_was_sent() -> Result<(), Failure> {
    let server = Played::start(|_, request| opening(request).unwrap_or(Act::Silence)).await?;
    let reserved = std::net::TcpListener::bind("127.0.0.1:0")?;
    let mut config = Config::new(&server.listener_url);
    config.proxies = Proxies::Through(format!("http://{}", reserved.local_addr()?));
    drop(reserved);
    config.limits.unreachable_max_ms = 0;
    let (sender, mut receiver) = Client::connect(&config)?;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call" });
    sender.send(call.to_string()).await?;
    let message = timeout(TEST_MAX, async {
        loop {
            match receiver.recv().await {
                Some(FromServer::Message(message)) => return message,
                Some(_) => {}
                None => return bytes::Bytes::new(),
            }
        }
    });
    let refused: Value = serde_json::from_slice(&message.await?)?;
    assert_eq!(refused["error"]["data"]["mayHaveRun"], false, "{refused}");
    assert!(server.requests(|_| true).await.is_empty());
    Ok(())
}
