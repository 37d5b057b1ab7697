//! A gateway, and a host that speaks to it through the client.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rejoin_client::{Client, ClientLimits, Config, FromServer, Proxies, Receiver, Sender};
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::failure::Failure;
use rejoin_testkit::process::Server;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// Everything of one test is over by then.
const TEST_MAX: Duration = Duration::from_secs(120);

/// A gateway in front of the built-in tool server.
pub(crate) struct Bench {
    gateway: Option<Server>,
    pub(crate) address: SocketAddr,
    pub(crate) count: CountFile,
    folder: TempDir,
}

impl Bench {
    pub(crate) async fn start() -> Result<Self, Failure> {
        Self::start_with(&[]).await
    }

    /// A gateway with more options.
    pub(crate) async fn start_with(options: &[&str]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let count = CountFile::at(folder.path().join("count"));
        let mut bench = Self { gateway: None, address: ([127, 0, 0, 1], 0).into(), count, folder };
        bench.run(options).await?;
        Ok(bench)
    }

    /// A gateway whose log is in a directory.
    pub(crate) async fn start_kept() -> Result<Self, Failure> {
        let mut bench = Self::start().await?;
        bench.restart().await?;
        Ok(bench)
    }

    /// Kills the gateway and starts it again, at the same address, over the same directory.
    pub(crate) async fn restart(&mut self) -> Result<(), Failure> {
        if let Some(mut gateway) = self.gateway.take() {
            gateway.kill()?;
        }
        let data = self.folder.path().join("data").display().to_string();
        self.run(&["--data", &data]).await
    }

    async fn run(&mut self, options: &[&str]) -> Result<(), Failure> {
        let rejoin = env!("CARGO_BIN_EXE_rejoin");
        let count = self.count.path().display().to_string();
        let listen = self.address.to_string();
        let mut arguments = vec!["serve", "--listen", &listen, "--admin", "127.0.0.1:0"];
        arguments.extend(["--log", "info", "--limit", "retry_ms=20"]);
        arguments.extend(options);
        arguments.extend(["--", rejoin, "tool-server", "--count-file", &count]);
        let mut gateway = Server::start(rejoin, arguments)?;
        self.address = gateway.address("listens", WAIT).await?;
        self.gateway = Some(gateway);
        Ok(())
    }
}

/// How the host speaks.
enum Link {
    Library(Sender, Receiver),
    Process {
        child: Box<Child>,
        input: Option<ChildStdin>,
        output: Box<Lines<BufReader<ChildStdout>>>,
    },
}

/// A host, and everything that came for it.
pub(crate) struct Host {
    link: Link,
    /// Everything that came, in order.
    pub(crate) came: Vec<Value>,
    pub(crate) notices: Vec<String>,
}

impl Host {
    /// A host that uses the library.
    pub(crate) fn start(address: SocketAddr) -> Result<Self, Failure> {
        Self::start_with(address, ClientLimits::default())
    }

    /// As [`Host::start`], with these limits.
    pub(crate) fn start_with(address: SocketAddr, limits: ClientLimits) -> Result<Self, Failure> {
        let mut config = Config::new(format!("http://{address}/mcp"));
        config.proxies = Proxies::None;
        config.limits = limits;
        let (sender, receiver) = Client::connect(&config)?;
        Ok(Self { link: Link::Library(sender, receiver), came: Vec::new(), notices: Vec::new() })
    }

    /// A host that starts `rejoin bridge`.
    pub(crate) fn bridge(address: SocketAddr, options: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rejoin"))
            .args(["bridge", "--no-proxy", &format!("http://{address}/mcp")])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take();
        let Some(output) = child.stdout.take() else {
            return Err(Failure::new("the bridge has no output"));
        };
        let output = Box::new(BufReader::new(output).lines());
        let link = Link::Process { child: Box::new(child), input, output };
        Ok(Self { link, came: Vec::new(), notices: Vec::new() })
    }

    pub(crate) async fn say(&mut self, message: Value) -> Result<(), Failure> {
        match &mut self.link {
            Link::Library(sender, _) => sender.send(message.to_string()).await?,
            Link::Process { input, .. } => {
                let Some(input) = input else { return Err(Failure::new("the input was closed")) };
                input.write_all(format!("{message}\n").as_bytes()).await?;
            }
        }
        Ok(())
    }

    /// The next message. `None`: the client has ended.
    async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            match &mut self.link {
                Link::Library(_, receiver) => match receiver.recv().await {
                    Some(FromServer::Message(message)) => {
                        return Ok(Some(serde_json::from_slice(&message)?));
                    }
                    Some(FromServer::Notice(notice)) => self.notices.push(notice.to_string()),
                    _ => return Ok(None),
                },
                Link::Process { output, .. } => {
                    let Some(line) = output.next_line().await? else { return Ok(None) };
                    return Ok(Some(serde_json::from_str(&line)?));
                }
            }
        }
    }

    /// The next message that `wanted` wants.
    pub(crate) async fn until(
        &mut self,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, Failure> {
        let begin = Instant::now();
        loop {
            let left = TEST_MAX.saturating_sub(begin.elapsed());
            let Ok(next) = timeout(left, self.next()).await else {
                let notices = self.notices.join("\n");
                return Err(Failure::new(format!("nothing came:\n{notices}")));
            };
            let Some(message) = next? else { return Err(Failure::new("the client has ended")) };
            self.came.push(message.clone());
            if wanted(&message) {
                return Ok(message);
            }
        }
    }

    /// Sends the bridge a signal.
    pub(crate) fn send(&self, signal: Signal) -> Result<(), Failure> {
        let Link::Process { child, .. } = &self.link else {
            return Err(Failure::new("only a bridge is a process"));
        };
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let Some(id) = id else { return Err(Failure::new("it has ended")) };
        Ok(kill(Pid::from_raw(id), signal)?)
    }

    /// Closes the bridge's input, and waits for its end.
    pub(crate) async fn end(&mut self) -> Result<Option<i32>, Failure> {
        let Link::Process { child, input, .. } = &mut self.link else {
            return Err(Failure::new("only a bridge ends"));
        };
        drop(input.take());
        Ok(timeout(TEST_MAX, child.wait()).await??.code())
    }

    pub(crate) async fn initialize(&mut self) -> Result<(), Failure> {
        self.initialize_with(json!({})).await
    }

    pub(crate) async fn initialize_with(&mut self, capabilities: Value) -> Result<(), Failure> {
        self.say(json!({ "jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" } } }))
            .await?;
        let answer = self.until(|message| message["id"] == "init").await?;
        assert!(answer["result"].is_object(), "{answer}");
        self.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await
    }

    pub(crate) async fn charge(
        &mut self,
        id: u64,
        amount: u64,
        events: u64,
    ) -> Result<(), Failure> {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "charge",
            "arguments": { "amount": amount, "events": events, "interval_ms": 1 },
            "_meta": { "progressToken": format!("p{id}") } } }))
            .await
    }

    /// What came of a call: numbers of its progress events.
    pub(crate) fn progress(&self, id: u64) -> Vec<u64> {
        let token = format!("p{id}");
        let of_call = |message: &&Value| message["params"]["progressToken"] == token.as_str();
        let progress = |message: &Value| message["params"]["progress"].as_u64().unwrap_or(0);
        self.came.iter().filter(of_call).map(progress).collect()
    }
}
