//! The client of `rejoin-client` against a real `rejoin serve`, over connections that are cut.

use std::net::SocketAddr;
use std::time::Duration;

use rejoin_client::{Client, Config, FromServer, Proxies, Receiver, Sender};
use rejoin_testkit::count::CountFile;
use rejoin_testkit::cutter::{Cut, Cutter};
use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::failure::Failure;
use rejoin_testkit::process::Server;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

/// Everything of one test is over by then.
const TEST_MAX: Duration = Duration::from_secs(120);

struct Bench {
    _gateway: Server,
    address: SocketAddr,
    count: CountFile,
    _folder: TempDir,
}

impl Bench {
    async fn start() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let count = CountFile::at(folder.path().join("count"));
        let rejoin = env!("CARGO_BIN_EXE_rejoin");
        let path = count.path().display().to_string();
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        arguments.extend(["--log", "info", "--limit", "retry_ms=20"]);
        arguments.extend(["--", rejoin, "tool-server", "--count-file", &path]);
        let mut gateway = Server::start(rejoin, arguments)?;
        let address = gateway.address("listens", WAIT).await?;
        Ok(Self { _gateway: gateway, address, count, _folder: folder })
    }
}

struct Host {
    sender: Sender,
    receiver: Receiver,
    /// Everything that came, in order.
    came: Vec<Value>,
    notices: Vec<String>,
}

impl Host {
    fn start(address: SocketAddr) -> Result<Self, Failure> {
        let mut config = Config::new(format!("http://{address}/mcp"));
        config.proxies = Proxies::None;
        let (sender, receiver) = Client::connect(&config)?;
        Ok(Self { sender, receiver, came: Vec::new(), notices: Vec::new() })
    }

    async fn say(&self, message: Value) -> Result<(), Failure> {
        Ok(self.sender.send(message.to_string()).await?)
    }

    /// The next message that `wanted` wants.
    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
        let waited = timeout(TEST_MAX, async {
            while let Some(next) = self.receiver.recv().await {
                match next {
                    FromServer::Notice(notice) => self.notices.push(notice.to_string()),
                    FromServer::Message(message) => {
                        let message: Value = serde_json::from_slice(&message)?;
                        self.came.push(message.clone());
                        if wanted(&message) {
                            return Ok(message);
                        }
                    }
                    _ => {}
                }
            }
            Err(Failure::new("the client has ended"))
        });
        let notices = |notices: &[String]| notices.join("\n");
        match waited.await {
            Ok(found) => found,
            Err(_) => Err(Failure::new(format!("nothing came:\n{}", notices(&self.notices)))),
        }
    }

    async fn initialize(&mut self) -> Result<(), Failure> {
        self.say(json!({ "jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } } }))
            .await?;
        let answer = self.until(|message| message["id"] == "init").await?;
        assert!(answer["result"].is_object(), "{answer}");
        self.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await
    }

    async fn charge(&self, id: u64, amount: u64, events: u64) -> Result<(), Failure> {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "charge",
            "arguments": { "amount": amount, "events": events, "interval_ms": 1 },
            "_meta": { "progressToken": format!("p{id}") } } }))
            .await
    }

    /// What came of a call: numbers of its progress events.
    fn progress(&self, id: u64) -> Vec<u64> {
        let token = format!("p{id}");
        let of_call = |message: &&Value| message["params"]["progressToken"] == token.as_str();
        let progress = |message: &Value| message["params"]["progress"].as_u64().unwrap_or(0);
        self.came.iter().filter(of_call).map(progress).collect()
    }
}

#[tokio::test]
async fn a_call_whose_connection_is_cut_comes_whole_and_runs_once() -> Result<(), Failure> {
    let bench = Bench::start().await?;
    let cutter = Cutter::start(bench.address, 7, 4_000, 200, Cut::Reset)?;
    let mut host = Host::start(cutter.address())?;
    host.initialize().await?;
    host.charge(1, 5, 200).await?;
    let answer = host.until(|message| message["id"] == 1).await?;
    assert_eq!(answer["result"]["structuredContent"]["amount"], 5, "{answer}");
    assert_eq!(host.progress(1), (1..=200).collect::<Vec<_>>(), "{:?}", host.notices);
    assert_eq!(bench.count.runs("charge")?, 1);
    assert!(cutter.cuts() > 3, "{} cuts", cutter.cuts());
    Ok(())
}

/// Calls `charge` so often, with `at_once` calls running at the same time, half of them with the
/// same arguments; every connection is cut somewhere.
async fn storm(calls: u64, at_once: u64, seed: u64, cut: Cut) -> Result<(), Failure> {
    let bench = Bench::start().await?;
    let cutter = Cutter::start(bench.address, seed, 3_000, usize::MAX, cut)?;
    let mut host = Host::start(cutter.address())?;
    host.initialize().await?;
    let amount = |id: u64| if id.is_multiple_of(2) { 7 } else { 1_000 + id };
    let is_answer = |message: &Value| message.get("method").is_none() && message["id"].is_u64();
    for id in 1..=calls {
        if id > at_once {
            host.until(is_answer).await?;
        }
        host.charge(id, amount(id), 5).await?;
    }
    for _ in 0..at_once.min(calls) {
        host.until(is_answer).await?;
    }
    for id in 1..=calls {
        let answers: Vec<_> = host.came.iter().filter(|message| message["id"] == id).collect();
        assert_eq!(answers.len(), 1, "call {id} has {} answers", answers.len());
        let result = &answers[0]["result"]["structuredContent"];
        assert_eq!(result["amount"], amount(id), "{}", answers[0]);
        assert_eq!(host.progress(id), [1, 2, 3, 4, 5], "call {id}");
        let place = |wanted: &dyn Fn(&Value) -> bool| host.came.iter().rposition(wanted);
        let token = format!("p{id}");
        let last = place(&|message| message["params"]["progressToken"] == token.as_str());
        assert!(last < place(&|message| message["id"] == id), "the answer came last");
    }
    assert_eq!(bench.count.runs("charge")?, usize::try_from(calls)?);
    let executions = |message: &Value| message["result"]["structuredContent"]["execution"].as_u64();
    let mut executions: Vec<_> = host.came.iter().filter_map(executions).collect();
    executions.sort_unstable();
    assert_eq!(executions, (1..=calls).collect::<Vec<_>>(), "no answer was given twice");
    assert!(cutter.cuts() > usize::try_from(calls / 5)?, "{} cuts", cutter.cuts());
    Ok(())
}

#[tokio::test]
async fn calls_one_after_the_other_run_once_each_whatever_is_cut() -> Result<(), Failure> {
    storm(100, 1, 11, Cut::Either).await
}

#[tokio::test]
async fn calls_at_once_run_once_each_whatever_is_cut() -> Result<(), Failure> {
    storm(200, 8, 12, Cut::Reset).await
}
