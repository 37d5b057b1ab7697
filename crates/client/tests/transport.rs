//! The client on real sockets, against servers that a test plays byte by byte.

#[path = "transport/half_read.rs"]
mod half_read;
#[path = "transport/proxy.rs"]
mod proxy;
#[path = "transport/refused.rs"]
mod refused;
#[cfg(feature = "rmcp")]
#[path = "transport/unreadable.rs"]
mod unreadable;

use std::fs;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rejoin_client::{Client, Config, Credential, FromServer, Proxies, Receiver, Sender};
use rejoin_testkit::failure::Failure;
use serde_json::{Value, json};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Everything is over by then.
const TEST_MAX: Duration = Duration::from_secs(60);

/// One request as it was read.
#[derive(Clone, Debug)]
struct Request {
    head: String,
    body: String,
    /// Requests before it on its connection.
    earlier: usize,
}

impl Request {
    fn header(&self, name: &str) -> Option<String> {
        let line = self.head.lines().find(|line| {
            line.split_once(':').is_some_and(|(known, _)| known.eq_ignore_ascii_case(name))
        });
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    fn is(&self, method: &str) -> bool {
        self.json()["method"] == method
    }
}

/// A server: what it does with the connection after a request was read.
#[derive(Clone, Debug)]
enum Act {
    /// Writes this and goes on reading.
    Say(String),
    /// Ends the connection with a reset.
    Reset,
    /// Writes this and ends the connection.
    SayAndClose(String),
    /// Says nothing for ever.
    Silence,
}

type Script = Arc<dyn Fn(usize, &Request) -> Act + Send + Sync>;

struct Played {
    listener_url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Played {
    /// Plays `script`, which is told how many requests came before.
    async fn start(
        script: impl Fn(usize, &Request) -> Act + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let listener_url = format!("http://{}/mcp", listener.local_addr()?);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, noted): (Script, _) = (Arc::new(script), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&noted)));
            }
        });
        Ok(Self { listener_url, seen })
    }

    async fn requests(&self, wanted: impl Fn(&Request) -> bool) -> Vec<Request> {
        self.seen.lock().await.iter().filter(|request| wanted(request)).cloned().collect()
    }
}

async fn serve(mut stream: TcpStream, script: Script, seen: Arc<Mutex<Vec<Request>>>) {
    let mut buffer = Vec::new();
    let mut earlier = 0;
    while let Some(request) = read(&mut stream, &mut buffer).await {
        let request = Request { earlier, ..request };
        earlier += 1;
        let number = {
            let mut seen = seen.lock().await;
            seen.push(request.clone());
            seen.len() - 1
        };
        let (text, is_last, resets) = match script(number, &request) {
            Act::Say(text) => (text, false, false),
            Act::Reset => (String::new(), true, true),
            Act::SayAndClose(text) => (text, true, false),
            Act::Silence => return std::future::pending().await,
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        if resets {
            let _closed = SockRef::from(&stream).set_linger(Some(Duration::ZERO)).is_err();
        }
        if is_last {
            if !resets {
                end(&stream);
            }
            return;
        }
    }
}

/// Ends a connection, and holds the thread, which is the client's too, until the client's kernel
/// knows: on a loaded machine that may come after the answer has been read.
fn end(stream: &TcpStream) {
    let Ok(address) = stream.local_addr() else { return };
    if SockRef::from(stream).shutdown(Shutdown::Write).is_err() {
        return;
    }
    let peer = stream.peer_addr().map_or(0, |peer| peer.port());
    let (local, peer) = (format!(":{:04X}", address.port()), format!(":{peer:04X}"));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let is_awaited = sockets.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().take(4).collect();
            // FIN-WAIT-1: the FIN has left and nobody has acknowledged it.
            let is_of = |from: &str, to: &str| from.ends_with(&local) && to.ends_with(&peer);
            matches!(fields[..], [_, from, to, "04"] if is_of(from, to))
        });
        if !is_awaited {
            return;
        }
        std::thread::yield_now();
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    loop {
        let text = String::from_utf8_lossy(buffer).into_owned();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let request = Request { head: head.to_owned(), body: String::new(), earlier: 0 };
            let length = request.header("content-length").and_then(|text| text.parse().ok());
            let length: usize = length.unwrap_or(0);
            if rest.len() >= length {
                let body = rest[..length].to_owned();
                *buffer = rest.as_bytes()[length..].to_vec();
                return Some(Request { body, ..request });
            }
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => buffer.extend_from_slice(&bytes[..count]),
        }
    }
}

fn whole(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         {headers}\r\n{body}"
    )
}

fn stream(events: &str) -> String {
    let length = events.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n\
         {length:x}\r\n{events}\r\n"
    )
}

fn event(id: &str, message: &Value) -> String {
    format!("id: {id}\ndata: {message}\n\n")
}

fn result(request: &Value, text: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "text": text } })
}

/// Answers what opens a session; `None`: the request is something else.
fn opening(request: &Request) -> Option<Act> {
    let message = request.json();
    match message["method"].as_str() {
        Some("initialize") => {
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {
                "protocolVersion": "2025-11-25", "capabilities": {} } });
            let headers = "Mcp-Session-Id: s1\r\n";
            Some(Act::Say(whole("200 OK", headers, &body.to_string())))
        }
        Some("notifications/initialized") => Some(Act::Say(whole("202 Accepted", "", ""))),
        _ if request.head.starts_with("GET") && request.header("last-event-id").is_none() => {
            Some(Act::Say(whole("405 Method Not Allowed", "", "")))
        }
        _ if request.head.starts_with("DELETE") => Some(Act::Say(whole("204 No Content", "", ""))),
        _ => None,
    }
}

struct Host {
    sender: Sender,
    receiver: Receiver,
    notices: Vec<String>,
}

impl Host {
    fn start(config: &Config) -> Result<Self, Failure> {
        let (sender, receiver) = Client::connect(config)?;
        Ok(Self { sender, receiver, notices: Vec::new() })
    }

    async fn open(config: &Config) -> Result<Self, Failure> {
        let mut host = Self::start(config)?;
        let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": "2025-11-25", "capabilities": {} } });
        host.sender.send(initialize.to_string()).await?;
        host.next().await?;
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        host.sender.send(initialized.to_string()).await?;
        Ok(host)
    }

    async fn next(&mut self) -> Result<Value, Failure> {
        let next = timeout(TEST_MAX, async {
            loop {
                match self.receiver.recv().await {
                    Some(FromServer::Message(message)) => {
                        return Ok(serde_json::from_slice(&message)?);
                    }
                    Some(FromServer::Notice(notice)) => self.notices.push(notice.to_string()),
                    _ => return Err(Failure::new("the client has ended")),
                }
            }
        });
        next.await.map_err(|_| Failure::new("nothing came"))?
    }

    async fn call(&mut self, id: u64) -> Result<Value, Failure> {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "charge", "arguments": {} } });
        self.sender.send(call.to_string()).await?;
        self.next().await
    }
}

fn config(server: &Played) -> Config {
    let mut config = Config::new(&server.listener_url);
    config.proxies = Proxies::None;
    config
}

fn is_call(request: &Request) -> bool {
    request.is("tools/call")
}

#[tokio::test]
async fn a_stream_that_is_cut_is_resumed_from_the_last_whole_event() -> Result<(), Failure> {
    let whole_stream = stream(&event("e1", &json!({ "jsonrpc": "2.0", "method": "x" })));
    let begin = whole_stream.find("data").map_or(0, |at| at + 5);
    for bytes in [begin, begin + 10, whole_stream.len() - 2, whole_stream.len()] {
        let cut = whole_stream[..bytes].to_owned();
        let server = Played::start(move |_, request| {
            opening(request).unwrap_or_else(|| match request.header("last-event-id") {
                Some(_) => {
                    Act::Say(stream(&event("e2", &json!({ "jsonrpc": "2.0", "method": "y" }))))
                }
                None => Act::SayAndClose(cut.clone()),
            })
        })
        .await?;
        let mut host = Host::open(&config(&server)).await?;
        let first = host.call(1).await?;
        if bytes == whole_stream.len() || bytes == whole_stream.len() - 2 {
            // The event had come whole.
            assert_eq!(first["method"], "x", "{bytes}");
            assert_eq!(host.next().await?["method"], "y", "{bytes}");
        } else {
            // No event had come, so there is nothing to resume from, and no way to know.
            assert_eq!(first["error"]["data"]["mayHaveRun"], true, "{bytes}: {first}");
        }
        assert_eq!(server.requests(is_call).await.len(), 1, "{bytes}: it was sent once");
    }
    Ok(())
}

#[tokio::test]
async fn a_connection_that_is_reset_before_any_answer_leaves_the_outcome_unknown()
-> Result<(), Failure> {
    let server = Played::start(|_, request| opening(request).unwrap_or(Act::Reset)).await?;
    let mut host = Host::open(&config(&server)).await?;
    let error = host.call(1).await?;
    assert_eq!(error["error"]["data"]["mayHaveRun"], true, "{error}");
    assert_eq!(server.requests(is_call).await.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_waited_for() -> Result<(), Failure> {
    let reserved = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = reserved.local_addr()?;
    drop(reserved);
    let mut config = Config::new(format!("http://{address}/mcp"));
    config.proxies = Proxies::None;
    let mut host = Host::start(&config)?;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {} });
    host.sender.send(ping.to_string()).await?;
    // It is said that it cannot be reached; then it comes up.
    let notice = timeout(TEST_MAX, host.receiver.recv()).await?;
    let Some(FromServer::Notice(notice)) = notice else { panic!("{notice:?}") };
    let told = format!("nothing can be sent to http://{address}/mcp (");
    assert!(notice.to_string().starts_with(&told), "{notice}");
    let listener = TcpListener::bind(address).await?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = Vec::new();
            while let Some(request) = read(&mut stream, &mut buffer).await {
                let body = result(&request.json(), "late").to_string();
                let _closed =
                    stream.write_all(whole("200 OK", "", &body).as_bytes()).await.is_err();
            }
        }
    });
    assert_eq!(host.next().await?["result"]["text"], "late");
    Ok(())
}

#[tokio::test]
async fn a_server_that_never_answers_is_left() -> Result<(), Failure> {
    let server = Played::start(|_, _| Act::Silence).await?;
    let mut config = config(&server);
    config.limits.call_silence_max_ms = 300;
    let mut host = Host::start(&config)?;
    let error = host.call(1).await?;
    assert_eq!(error["error"]["data"]["mayHaveRun"], true, "{error}");
    Ok(())
}

#[tokio::test]
async fn empty_answers_and_refusals_end_in_what_they_mean() -> Result<(), Failure> {
    type Answered = fn(&Value) -> String;
    let cases: [(&str, Answered, bool); 4] = [
        ("an empty 200", |_| whole("200 OK", "", ""), true),
        ("an empty stream", |_| format!("{}0\r\n\r\n", stream(": nothing\n\n")), true),
        ("a 404 that is repeated", |_| whole("404 Not Found", "", ""), false),
        ("a 409 that says no more", |_| whole("409 Conflict", "", ""), false),
    ];
    for (what, answer, may_have_run) in cases {
        let server = Played::start(move |_, request| {
            opening(request).unwrap_or_else(|| Act::Say(answer(&request.json())))
        })
        .await?;
        let mut host = Host::open(&config(&server)).await?;
        let error = host.call(1).await?;
        assert_eq!(error["error"]["data"]["mayHaveRun"], may_have_run, "{what}: {error}");
        assert_eq!(server.requests(is_call).await.len(), 1, "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn a_connection_is_used_again_and_one_that_ended_meanwhile_is_not() -> Result<(), Failure> {
    for closes in [false, true] {
        let server = Played::start(move |_, request| {
            opening(request).unwrap_or_else(|| {
                let text = whole("200 OK", "", &result(&request.json(), "done").to_string());
                if closes { Act::SayAndClose(text) } else { Act::Say(text) }
            })
        })
        .await?;
        let mut host = Host::open(&config(&server)).await?;
        for id in 1..=20 {
            assert_eq!(host.call(id).await?["result"]["text"], "done");
        }
        assert_eq!(server.requests(is_call).await.len(), 20);
    }
    Ok(())
}

/// A connection that was kept may go the same dead path as the one that broke.
#[tokio::test]
async fn what_resumes_has_a_connection_of_its_own() -> Result<(), Failure> {
    let note = json!({ "jsonrpc": "2.0", "method": "x" });
    let server = Played::start(move |_, request| {
        if let Some(act) = opening(request) {
            return act;
        }
        match request.header("last-event-id") {
            // Its end is a proper one: the connection is kept.
            None => Act::Say(format!("{}0\r\n\r\n", stream(&event("e1", &note)))),
            Some(_) if request.earlier > 0 => Act::Silence,
            Some(_) => Act::Say(stream(&event("e2", &json!({ "jsonrpc": "2.0", "method": "y" })))),
        }
    })
    .await?;
    let mut host = Host::open(&config(&server)).await?;
    assert_eq!(host.call(1).await?["method"], "x");
    assert_eq!(host.next().await?["method"], "y");
    let gets = server.requests(|request| request.header("last-event-id").is_some()).await;
    assert_eq!(gets.iter().map(|get| get.earlier).collect::<Vec<_>>(), [0]);
    Ok(())
}

#[tokio::test]
async fn a_credential_that_expired_is_fetched_again_once() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let count = folder.path().join("count");
    let server = Played::start(|_, request| match request.header("authorization").as_deref() {
        Some("Bearer 1") if is_call(request) => Act::Say(whole("401 Unauthorized", "", "")),
        Some(_) => opening(request).unwrap_or_else(|| {
            Act::Say(whole("200 OK", "", &result(&request.json(), "done").to_string()))
        }),
        None => Act::Say(whole("400 Bad Request", "", "")),
    })
    .await?;
    let mut config = config(&server);
    let line = format!("echo x >> {0}; echo Bearer $(wc -l < {0})", count.display());
    config.credential = Credential::Command(line);
    config.headers.push(("x-team".parse()?, "blue".parse()?));
    let mut host = Host::open(&config).await?;
    assert_eq!(host.call(1).await?["result"]["text"], "done");
    assert_eq!(host.call(2).await?["result"]["text"], "done");
    let calls = server.requests(is_call).await;
    let credentials: Vec<_> =
        calls.iter().filter_map(|request| request.header("authorization")).collect();
    assert_eq!(credentials, ["Bearer 1", "Bearer 2", "Bearer 2"]);
    assert!(calls.iter().all(|request| request.header("x-team").as_deref() == Some("blue")));
    Ok(())
}

/// As the TypeScript SDK's servers do after a restart: they know none of the old sessions, and say
/// so with 400.
#[tokio::test]
async fn a_session_that_a_restarted_server_refuses_with_400_is_opened_anew() -> Result<(), Failure>
{
    let restarted = Arc::new(AtomicBool::new(false));
    let is_new = Arc::clone(&restarted);
    let server = Played::start(move |_, request| {
        let unknown = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000,
            "message": "Bad Request: No valid session ID provided" } });
        let session = if is_new.load(Ordering::Acquire) { "s2" } else { "s1" };
        let named = request.header("mcp-session-id");
        if named.is_some_and(|named| named != session) {
            return Act::Say(whole("400 Bad Request", "", &unknown.to_string()));
        }
        match opening(request) {
            Some(Act::Say(text)) => {
                Act::Say(text.replace("Mcp-Session-Id: s1", &format!("Mcp-Session-Id: {session}")))
            }
            Some(act) => act,
            None => Act::Say(whole("200 OK", "", &result(&request.json(), "done").to_string())),
        }
    })
    .await?;
    let mut host = Host::open(&config(&server)).await?;
    assert_eq!(host.call(1).await?["result"]["text"], "done");
    restarted.store(true, Ordering::Release);
    let refused = host.call(2).await?;
    assert_eq!(refused["error"]["data"]["reason"], "state_lost", "{refused}");
    assert_eq!(refused["error"]["data"]["mayHaveRun"], false, "{refused}");
    assert_eq!(host.call(3).await?["result"]["text"], "done");
    let calls = server.requests(is_call).await;
    let ids: Vec<_> = calls.iter().filter_map(|call| call.header("mcp-session-id")).collect();
    assert_eq!(ids, ["s1", "s1", "s2"], "each was sent once");
    Ok(())
}

#[tokio::test]
async fn a_redirect_on_the_same_origin_is_followed_with_the_body() -> Result<(), Failure> {
    let server = Played::start(|_, request| {
        if !request.head.contains(" /mcp/ ") {
            return Act::Say(whole("307 Temporary Redirect", "Location: /mcp/\r\n", ""));
        }
        opening(request).unwrap_or_else(|| {
            Act::Say(whole("200 OK", "", &result(&request.json(), "done").to_string()))
        })
    })
    .await?;
    let mut host = Host::open(&config(&server)).await?;
    assert_eq!(host.call(1).await?["result"]["text"], "done");
    Ok(())
}

#[tokio::test]
async fn the_end_of_the_host_ends_the_session() -> Result<(), Failure> {
    let server = Played::start(|_, request| opening(request).unwrap_or(Act::Silence)).await?;
    let Host { sender, mut receiver, .. } = Host::open(&config(&server)).await?;
    drop(sender);
    timeout(TEST_MAX, async { while receiver.recv().await.is_some() {} }).await?;
    let deletes = server.requests(|request| request.head.starts_with("DELETE")).await;
    assert_eq!(deletes.len(), 1);
    assert_eq!(deletes[0].header("mcp-session-id").as_deref(), Some("s1"));
    Ok(())
}
