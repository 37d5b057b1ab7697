//! Those that are measured: each its own process or two, on the core that the generator leaves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rejoin_bench::Failure;
use tempfile::TempDir;

use crate::workload::Workload;

/// The core of servers; the generator has the other one.
const SERVER_CORE: &str = "0";
const GENERATOR_CORE: &str = "1";
const START_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// Where what happens is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    Memory,
    Calls,
    Events,
}

impl Log {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Calls, Self::Events];

    fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Calls => "calls",
            Self::Events => "events",
        }
    }
}

/// What stands between the generator and the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// rmcp as it is.
    Bare,
    /// A hyper proxy that looks at nothing, and behind it rmcp.
    Proxy,
    /// rmcp with the layer around it.
    Layer(Log),
    /// `rejoin serve`, and behind it rmcp.
    Gateway(Log),
    /// `rejoin serve`, and behind it a process for each session.
    Stdio(Log),
}

impl Kind {
    /// Everything that a workload can be put to.
    pub(crate) fn all(workload: Workload) -> Vec<Self> {
        let mut all = vec![Self::Bare, Self::Proxy];
        all.extend(Log::ALL.map(Self::Layer));
        all.extend(Log::ALL.map(Self::Gateway));
        all.extend(Log::ALL.map(Self::Stdio));
        all.retain(|kind| kind.takes(workload));
        all
    }

    fn takes(self, workload: Workload) -> bool {
        match workload {
            // Only a gateway with a log on the disk outlives its own process.
            Workload::Replay { restarted: true } => {
                matches!(self, Self::Gateway(Log::Calls | Log::Events))
            }
            // rmcp as it is has nothing to resume from.
            Workload::Replay { restarted: false } => !matches!(self, Self::Bare | Self::Proxy),
            Workload::Storm => matches!(self, Self::Layer(_) | Self::Gateway(_)),
            // A process for each session: how fast those start, how many there can be and what they
            // need is nothing of Rejoin's.
            Workload::Initialize
            | Workload::IdleSessions
            | Workload::IdleStreams
            | Workload::Calls { connections: 65.. } => !matches!(self, Self::Stdio(_)),
            _ => true,
        }
    }

    /// True if it is a contestant of Rejoin: what such a one cannot do is a failure of the run.
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Self::Layer(_) | Self::Gateway(_) | Self::Stdio(_))
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Bare => "rmcp".to_owned(),
            Self::Proxy => "hyper proxy".to_owned(),
            Self::Layer(log) => format!("layer, `{}`", log.word()),
            Self::Gateway(log) => format!("gateway, `{}`", log.word()),
            Self::Stdio(log) => format!("stdio gateway, `{}`", log.word()),
        }
    }
}

/// A contestant that runs; its processes end with it.
pub(crate) struct Contestant {
    pub(crate) address: SocketAddr,
    children: Vec<Child>,
    /// The command line of the last of them, which is the one that is measured.
    last: (PathBuf, Vec<String>),
    _directory: TempDir,
}

impl Contestant {
    /// Starts it, and waits until it listens. Its log is in a directory below `directory`.
    pub(crate) fn start(kind: Kind, directory: &Path) -> Result<Self, Failure> {
        let directory = tempfile::tempdir_in(directory)?;
        let data = directory.path().to_str().ok_or("a directory that is no text")?.to_owned();
        let mut own = Self {
            address: free_address()?,
            children: Vec::new(),
            last: (PathBuf::new(), Vec::new()),
            _directory: directory,
        };
        let port = own.address.port().to_string();
        match kind {
            Kind::Bare => own.spawn(&built("bare-server")?, &[&port])?,
            Kind::Layer(Log::Memory) => own.spawn(&built("bare-server")?, &[&port, "memory"])?,
            Kind::Layer(log) => own.spawn(&built("bare-server")?, &[&port, log.word(), &data])?,
            Kind::Proxy => {
                let upstream = own.upstream()?.to_string();
                own.spawn(&built("bare-proxy")?, &[&port, &upstream])?;
            }
            Kind::Gateway(log) => {
                let url = format!("http://{}/mcp", own.upstream()?);
                own.serve(log, &data, &["--upstream", &url])?;
            }
            Kind::Stdio(log) => {
                let server = built("bare-server")?;
                let server = server.to_str().ok_or("a path that is no text")?;
                own.serve(log, &data, &["--", server, "stdio"])?;
            }
        }
        listens(own.address)?;
        Ok(own)
    }

    /// rmcp, behind something.
    fn upstream(&mut self) -> Result<SocketAddr, Failure> {
        let address = free_address()?;
        self.spawn(&built("bare-server")?, &[&address.port().to_string()])?;
        listens(address)?;
        Ok(address)
    }

    fn serve(&mut self, log: Log, data: &str, more: &[&str]) -> Result<(), Failure> {
        let listen = self.address.to_string();
        let mut arguments = vec!["serve", "--listen", &listen, "--admin", "127.0.0.1:0"];
        arguments.push("--trust-annotations");
        if log != Log::Memory {
            arguments.extend(["--data", data, "--durability", log.word()]);
        }
        arguments.extend(more);
        let program = std::env::var_os("REJOIN_BIN").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/rejoin"),
            PathBuf::from,
        );
        self.spawn(&program, &arguments)
    }

    fn spawn(&mut self, program: &Path, arguments: &[&str]) -> Result<(), Failure> {
        let child = Command::new("taskset")
            .args(["-c", SERVER_CORE])
            .arg(program)
            .args(arguments)
            .env("TOKIO_WORKER_THREADS", "1")
            .env("REJOIN_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        self.children.push(child);
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self.last = (program.to_owned(), arguments);
        Ok(())
    }

    /// Kills the process that is measured, and starts it again as it was started.
    pub(crate) fn restart(&mut self) -> Result<(), Failure> {
        let mut killed = self.children.pop().ok_or("nothing was started")?;
        killed.kill()?;
        killed.wait()?;
        let (program, arguments) = self.last.clone();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.spawn(&program, &arguments)?;
        listens(self.address)
    }

    /// Resident memory of the process that is measured, in bytes; a server behind it does not
    /// count.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Failure> {
        let child = self.children.last().ok_or("nothing was started")?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let line = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB");
        Ok(line.trim().parse::<u64>()? * 1_024)
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // One that ended already has nothing to be ended.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Puts this process on the core that is not theirs.
pub(crate) fn keep_off_their_core() -> Result<(), Failure> {
    let own = std::process::id().to_string();
    let said = Command::new("taskset").args(["-p", "-c", GENERATOR_CORE, &own]).output()?;
    if said.status.success() {
        Ok(())
    } else {
        Err(format!("taskset: {}", String::from_utf8_lossy(&said.stderr)).into())
    }
}

fn built(name: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    Ok(own.with_file_name(name))
}

fn free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn listens(address: SocketAddr) -> Result<(), Failure> {
    let until = Instant::now() + START_MAX;
    while std::net::TcpStream::connect(address).is_err() {
        if Instant::now() > until {
            return Err(format!("nothing listens at {address} after {START_MAX:?}").into());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
