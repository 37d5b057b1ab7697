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
        // A process for each session: how fast those start is nothing of Rejoin's.
        if workload != Workload::Initialize {
            all.extend(Log::ALL.map(Self::Stdio));
        }
        all
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
    _directory: TempDir,
}

impl Contestant {
    /// Starts it, and waits until it listens. Its log is in a directory below `directory`.
    pub(crate) fn start(kind: Kind, directory: &Path) -> Result<Self, Failure> {
        let directory = tempfile::tempdir_in(directory)?;
        let data = directory.path().to_str().ok_or("a directory that is no text")?.to_owned();
        let mut own =
            Self { address: free_address()?, children: Vec::new(), _directory: directory };
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
        Ok(())
    }

    /// Resident memory of all its processes, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Failure> {
        let mut all = 0;
        for child in &self.children {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let line = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB");
            all += line.trim().parse::<u64>()? * 1024;
        }
        Ok(all)
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
