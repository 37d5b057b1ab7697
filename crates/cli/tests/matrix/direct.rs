//! The chosen server without a gateway: over its pipes, or over HTTP.

use std::process::Stdio;

use rejoin_testkit::call::Call;
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::{WAIT, WAIT_MAX, within};
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::Connection;
use rejoin_testkit::session::{Identity, NEWEST_REVISION, Session};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::server::{Kind, Upstream};

/// The longest exchange of one call, in messages.
const MESSAGES_MAX: usize = 100;

/// A session with the server itself.
pub(crate) struct Direct {
    way: Way,
    pub(crate) count: CountFile,
    upstream: Upstream,
    _folder: tempfile::TempDir,
}

/// How the server is reached.
enum Way {
    Pipes(Box<Pipes>),
    Http(Session),
}

/// Where the messages of one call come from.
enum Source<'a> {
    Pipes(&'a mut Pipes),
    Http(&'a Session, Box<Connection>),
}

impl Direct {
    /// A session with the server that cases share, if it serves several sessions.
    pub(crate) async fn start() -> Result<Self, Failure> {
        Self::start_in(false).await
    }

    /// A session with a server that no other case uses.
    pub(crate) async fn start_to_crash() -> Result<Self, Failure> {
        Self::start_in(true).await
    }

    async fn start_in(own: bool) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let count = CountFile::at(folder.path().join("count"));
        let upstream = Upstream::start(&count, own).await?;
        let way = Way::open(&upstream).await?;
        Ok(Self { way, count, upstream, _folder: folder })
    }

    /// Makes a call, says yes to what the server asks meanwhile, and gives every message up to its
    /// response, which is the last.
    pub(crate) async fn exchange(&mut self, call: &Call) -> Result<Vec<Value>, Failure> {
        let mut source = match &mut self.way {
            Way::Pipes(pipes) => {
                pipes.send(&call.message()).await?;
                Source::Pipes(pipes)
            }
            Way::Http(session) => Source::Http(session, Box::new(session.call(call).await?)),
        };
        let mut messages = Vec::new();
        while messages.len() < MESSAGES_MAX {
            let message = source.next().await?;
            let (is_response, id) = (message.get("method").is_none(), message["id"].clone());
            messages.push(message);
            if is_response {
                return Ok(messages);
            }
            if !id.is_null() {
                source.respond(&id, Kind::chosen().yes()).await?;
            }
        }
        Err(Failure::new(format!("no response among {MESSAGES_MAX} messages")))
    }

    /// Makes a call and gives its response.
    pub(crate) async fn answer(&mut self, call: &Call) -> Result<Value, Failure> {
        Ok(self.exchange(call).await?.pop().unwrap_or_default())
    }

    /// Lets the server die in the middle of `call`, and starts it again at its address if it has
    /// one. The session stays the one from before.
    pub(crate) async fn crash_in(&mut self, mut call: Call) -> TestResult {
        self.upstream.let_crash(&mut call, 0);
        let wanted = self.count.runs("charge")? + 1;
        let running = match &mut self.way {
            Way::Pipes(pipes) => {
                pipes.send(&call.message()).await?;
                None
            }
            Way::Http(session) => Some(session.call(&call).await?),
        };
        self.count.wait("charge", wanted, WAIT).await?;
        self.upstream.crash().await?;
        if let Way::Pipes(pipes) = &mut self.way {
            within("the server's end", WAIT_MAX, pipes.child.wait()).await??;
        }
        drop(running);
        self.upstream.restart().await
    }

    /// What the server says to a message of the session it had before it died: the status over
    /// HTTP; `None` over pipes, which ended with it.
    pub(crate) async fn status_of(&self, call: &Call) -> Result<Option<u16>, Failure> {
        match &self.way {
            Way::Pipes(_) => Ok(None),
            Way::Http(session) => Ok(Some(session.call(call).await?.head().await?.status)),
        }
    }

    /// Opens another session.
    pub(crate) async fn reopen(&mut self) -> TestResult {
        self.way = Way::open(&self.upstream).await?;
        Ok(())
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.upstream.show_log();
    }
}

impl Way {
    async fn open(upstream: &Upstream) -> Result<Self, Failure> {
        match &upstream.place {
            Some((address, path)) => {
                Ok(Self::Http(Session::open_at(*address, path, Identity::default()).await?))
            }
            None => Ok(Self::Pipes(Box::new(Pipes::open(&upstream.arguments).await?))),
        }
    }
}

impl Source<'_> {
    async fn next(&mut self) -> Result<Value, Failure> {
        match self {
            Self::Pipes(pipes) => pipes.message().await,
            Self::Http(_, stream) => {
                let message = stream.message().await?.message();
                message.ok_or_else(|| Failure::new(format!("no JSON: {}", stream.account())))
            }
        }
    }

    async fn respond(&mut self, id: &Value, result: Value) -> TestResult {
        match self {
            Self::Pipes(pipes) => {
                pipes.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await
            }
            Self::Http(session, _) => match session.respond(id, result).await? {
                202 => Ok(()),
                status => Err(Failure::new(format!("{status} to an answer, not 202"))),
            },
        }
    }
}

/// A server process of this session alone. It is killed when this is dropped.
struct Pipes {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Pipes {
    /// Starts the server of `arguments`, the command line that `rejoin serve` takes after its
    /// options, and initialises the session.
    async fn open(arguments: &[String]) -> Result<Self, Failure> {
        let [_dashes, program, arguments @ ..] = arguments else {
            return Err(Failure::new(format!("no command: {arguments:?}")));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            return Err(Failure::new("the server has no pipes"));
        };
        let mut pipes = Self { child, input, output: BufReader::new(output).lines() };
        let params = json!({
            "protocolVersion": NEWEST_REVISION,
            "capabilities": {"elicitation": {}, "sampling": {}},
            "clientInfo": {"name": "rejoin-testkit", "version": "1.0.0"},
        });
        let initialize = json!(
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        );
        pipes.send(&initialize).await?;
        let response = pipes.message().await?;
        if response["result"]["protocolVersion"] != NEWEST_REVISION {
            return Err(Failure::new(format!("not initialised: {response}")));
        }
        pipes.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        Ok(pipes)
    }

    async fn send(&mut self, message: &Value) -> TestResult {
        Ok(self.input.write_all(format!("{message}\n").as_bytes()).await?)
    }

    async fn message(&mut self) -> Result<Value, Failure> {
        let line = within("a line of the server", WAIT, self.output.next_line()).await??;
        let line = line.ok_or_else(|| Failure::new("the server ended its output"))?;
        Ok(serde_json::from_str(&line)?)
    }
}
