//! The server behind the gateway: the built-in one over stdio, or a stock one over HTTP, chosen by
//! the environment variable `REJOIN_MATRIX_UPSTREAM`: `stdio`, `fastmcp` or `everything`.
//!
//! What the cases ask of a server in general terms is put into its own words here: the names and
//! arguments of its tools, and how its executions are counted. What it cannot do is in `needs.rs`.

use std::net::SocketAddr;
use std::path::PathBuf;

use rejoin_testkit::call::Call;
use rejoin_testkit::call_reader::Counter;
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::WAIT_MAX;
use rejoin_testkit::failure::Failure;
use rejoin_testkit::forward::Forward;
use rejoin_testkit::process::Server;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::needs::{CASES, VARIABLE};
pub(crate) use crate::needs::{Kind, Need};
use crate::support::rejoin;

/// Tools of server-everything, and the tool of the built-in server each of them stands for.
const EVERYTHING_NAMES: [(&str, &str); 3] = [(LONG, "charge"), (ECHO, "get"), (ELICIT, "ask")];
const LONG: &str = "trigger-long-running-operation";
const ECHO: &str = "echo";
const ELICIT: &str = "trigger-elicitation-request";

/// A millionth of a second of server-everything's duration stands for one of the amount, so that
/// its result says which call it answers.
const SECONDS_PER_AMOUNT: f64 = 1e-6;

/// The HTTP server of all cases that do not break it, started with the first of them. It ends
/// itself when this process ends.
static SHARED: OnceCell<(Server, SocketAddr)> = OnceCell::const_new();

/// What a call asked for in the built-in server's words means in the words of the chosen one.
impl Kind {
    /// The server this run is about.
    ///
    /// # Panics
    /// If the variable names none.
    pub(crate) fn chosen() -> Self {
        let name = std::env::var(VARIABLE).unwrap_or_default();
        let name = if name.is_empty() { Self::Stdio.name() } else { &name };
        let names = Self::ALL.map(Self::name).join(", ");
        Self::named(name).unwrap_or_else(|| panic!("{VARIABLE} is {name:?}: not one of {names}"))
    }

    /// A call with a large replay, whose end cannot be handed over before a client reads: all of
    /// it is more than kernels buffer, or, where events cannot be padded, it takes a while.
    pub(crate) fn burst(self, id: u64, amount: u64) -> Call {
        match self {
            Self::Stdio => self.padded(self.charge(id, amount, 1500, 0), 4000),
            Self::Fastmcp => self.padded(self.charge(id, amount, 400, 0), 16_000),
            Self::Everything => self.charge(id, amount, 400, 1),
        }
    }

    /// A receive buffer, in bytes, that holds a part of a burst.
    pub(crate) fn small_buffer_bytes(self) -> u32 {
        if self == Self::Everything { 4 * 1024 } else { 64 * 1024 }
    }

    /// A call with this many bytes of events, for servers with large ones.
    pub(crate) fn flood(self, id: u64, amount: u64, megabytes: u64) -> Call {
        let bytes = if self == Self::Stdio { 1000 } else { 20_000 };
        self.padded(self.charge(id, amount, megabytes * 1_000_000 / bytes, 0), bytes)
    }

    /// The name of the tool that charges.
    pub(crate) fn charge_tool(self) -> &'static str {
        if self == Self::Everything { LONG } else { "charge" }
    }

    /// A call that charges `amount` after so many progress events.
    pub(crate) fn charge(self, id: u64, amount: u64, events: u64, interval_ms: u64) -> Call {
        let arguments = if self == Self::Everything {
            let seconds = (events * interval_ms) as f64 / 1000.0;
            let duration = seconds + amount as f64 * SECONDS_PER_AMOUNT;
            // The server takes no `amount`; it is there for the count.
            json!({"amount": amount, "duration": duration, "steps": events})
        } else {
            json!({"amount": amount, "events": events, "interval_ms": interval_ms})
        };
        Call::new(id, self.charge_tool(), arguments)
    }

    /// How many progress events a call sends.
    pub(crate) fn events_of(self, call: &Call) -> u64 {
        let name = if self == Self::Everything { "steps" } else { "events" };
        call.arguments[name].as_u64().unwrap_or_default()
    }

    fn padded(self, mut call: Call, bytes: u64) -> Call {
        call.arguments["event_bytes"] = bytes.into();
        call
    }

    /// Lets a call end with a result that says it failed.
    pub(crate) fn fail(self, call: &mut Call) {
        if self == Self::Everything {
            call.arguments["duration"] = "as long as it takes".into();
        } else {
            call.arguments["fail"] = true.into();
        }
    }

    /// A call that is answered at once.
    pub(crate) fn get(self, id: u64) -> Call {
        let key = format!("key-{id}");
        if self == Self::Everything {
            Call::new(id, ECHO, json!({"message": key}))
        } else {
            Call::new(id, "get", json!({"key": key}))
        }
    }

    /// A call in which the server asks the client.
    pub(crate) fn ask(self, id: u64) -> Call {
        let tool = if self == Self::Everything { ELICIT } else { "ask" };
        Call::new(id, tool, json!({"question": format!("question {id}?")}))
    }

    /// The client's answer to it: yes.
    pub(crate) fn yes(self) -> Value {
        let field = if self == Self::Everything { "name" } else { "answer" };
        json!({"action": "accept", "content": {field: "yes"}})
    }

    /// Whether the result of [`Kind::ask`] has that answer.
    pub(crate) fn says_yes(self, response: &Value) -> bool {
        let content = &response["result"]["content"];
        if self == Self::Everything {
            content[1]["text"].as_str().is_some_and(|text| text.ends_with("- Name: yes"))
        } else {
            content[0]["text"] == "yes"
        }
    }

    /// The number of the execution that a result of `charge` came from; `None` where the server
    /// does not say.
    pub(crate) fn execution(self, response: &Value) -> Option<u64> {
        response["result"]["structuredContent"]["execution"].as_u64()
    }

    /// The amount that a result of `charge` is about.
    pub(crate) fn amount(self, response: &Value) -> Option<u64> {
        let result = &response["result"];
        if self != Self::Everything {
            return result["structuredContent"]["amount"].as_u64();
        }
        let text = result["content"][0]["text"].as_str()?;
        let (_, rest) = text.split_once("Duration: ")?;
        let seconds: f64 = rest.split(' ').next()?.parse().ok()?;
        // The rest is whole milliseconds.
        Some((seconds / SECONDS_PER_AMOUNT).round() as u64 % 1000)
    }

    fn start(self, port: u16) -> Result<Server, Failure> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../e2e");
        let (program, script) = match self {
            Self::Everything => (PathBuf::from("node"), "servers/everything.mjs"),
            _ => (folder.join(".venv-fastmcp/bin/python"), "servers/fastmcp_tools.py"),
        };
        let script = folder.join(script).display().to_string();
        let arguments = [&script, "--port", &port.to_string(), "--end-with-stdin"];
        Server::start_tied(&program.display().to_string(), arguments).map_err(|error| {
            Failure::new(format!("{error}; `python3 e2e/run.py --install` installs the servers"))
        })
    }

    async fn start_listening(self, port: u16) -> Result<(Server, SocketAddr), Failure> {
        let mut server = self.start(port)?;
        let address = server.address("listens on", WAIT_MAX).await?;
        Ok((server, address))
    }
}

/// The server of one case.
pub(crate) struct Upstream {
    kind: Kind,
    /// The process of this case alone, if it has one.
    own: Option<(Server, SocketAddr)>,
    /// Counts for a server that cannot.
    _forward: Option<Forward>,
    /// How `rejoin serve` is told about it.
    pub(crate) arguments: Vec<String>,
    /// Where it is reached without a gateway, such that calls are counted.
    pub(crate) place: Option<(SocketAddr, String)>,
}

impl Upstream {
    /// Starts the chosen server, or takes the one that runs already unless the case wants its
    /// `own`; executions are counted in `count`.
    pub(crate) async fn start(count: &CountFile, own: bool) -> Result<Self, Failure> {
        let kind = Kind::chosen();
        let count_path = count.path().display().to_string();
        if kind == Kind::Stdio {
            let command = ["--", &rejoin(), "tool-server", "--count-file", &count_path];
            let arguments = command.map(str::to_owned).to_vec();
            return Ok(Self { kind, own: None, _forward: None, arguments, place: None });
        }
        let (own, address) = if own {
            let started = kind.start_listening(0).await?;
            let address = started.1;
            (Some(started), address)
        } else {
            let shared = SHARED.get_or_try_init(|| kind.start_listening(0)).await?;
            (None, shared.1)
        };
        let (forward, address, path) = if kind == Kind::Everything {
            let counter = Counter::new(count.clone(), &EVERYTHING_NAMES);
            let forward = Forward::start_counting(address, counter)?;
            let address = forward.address();
            (Some(forward), address, "/mcp".to_owned())
        } else {
            (None, address, format!("/count{count_path}/mcp"))
        };
        let arguments = vec!["--upstream".to_owned(), format!("http://{address}{path}")];
        Ok(Self { kind, own, _forward: forward, arguments, place: Some((address, path)) })
    }

    /// Makes `call` end its server after so many progress events, where the server can do that.
    pub(crate) fn let_crash(&self, call: &mut Call, events: u64) {
        if self.kind != Kind::Everything {
            call.arguments["crash_after"] = events.into();
        }
    }

    /// Whether [`Upstream::let_crash`] made the moment exact.
    pub(crate) fn crashes_exactly(&self) -> bool {
        self.kind != Kind::Everything
    }

    /// Ends the server now if it did not end itself; waits until it is gone.
    pub(crate) async fn crash(&mut self) -> Result<(), Failure> {
        if let Some((server, _)) = &mut self.own {
            if self.kind == Kind::Everything {
                server.kill()?;
            } else {
                server.ended(WAIT_MAX).await?;
            }
        }
        Ok(())
    }

    /// Starts a crashed server again at its old address. Over stdio the gateway does that.
    pub(crate) async fn restart(&mut self) -> Result<(), Failure> {
        if let Some((server, address)) = &mut self.own {
            *server = self.kind.start_listening(address.port()).await?.0;
        }
        Ok(())
    }

    /// Writes the last lines of a server that several cases share where a failed test shows them.
    pub(crate) fn show_log(&self) {
        if let (None, Some((server, _))) = (&self.own, SHARED.get()) {
            eprintln!("the shared server's last lines:\n{}", server.log_tail());
        }
    }
}

/// Fails the case at `place`, a function inside it, if the chosen server lacks what it needs, or
/// if the table of `needs.rs` does not know that it needs it.
#[track_caller]
pub(crate) fn require(place: &str, need: Need) -> Result<(), Failure> {
    let name = place.trim_end_matches("::here").trim_end_matches("::{{closure}}");
    let name = name.split_once("::").map_or(name, |(_program, name)| name);
    let case = CASES.iter().find(|case| case.name == name && case.need == need);
    let Some(case) = case else {
        let what = format!("{name} needs {need:?}: add that to CASES in matrix/needs.rs");
        return Err(Failure::new(what));
    };
    match case.failure(Kind::chosen()) {
        Some(message) => Err(Failure::new(message)),
        None => Ok(()),
    }
}

/// Fails the case if the chosen server lacks what it needs.
macro_rules! needs {
    ($need:ident) => {
        fn here() {}
        $crate::server::require(std::any::type_name_of_val(&here), $crate::server::Need::$need)?;
    };
}
pub(crate) use needs;
