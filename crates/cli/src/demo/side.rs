//! Where a story plays: a fresh tool server with its count file, behind one of the two servers.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::bare::BareServer;
use super::{DemoError, Story};
use crate::guarded::GuardedServer;

/// Which server stands between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A plain Streamable HTTP server.
    Bare,
    /// Rejoin.
    Guarded,
}

/// What every story needs: this program, and a folder that is removed at the end.
pub(super) struct Stage {
    program: PathBuf,
    folder: TempDir,
}

/// One server with one count file.
pub(super) struct Side {
    server: Server,
    count_file: PathBuf,
}

enum Server {
    Bare(BareServer),
    Guarded(GuardedServer),
}

impl Stage {
    /// Prepares the folder.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(super) fn set() -> io::Result<Self> {
        Ok(Self { program: std::env::current_exe()?, folder: TempDir::new()? })
    }
}

/// Starts a side, plays on it, and ends it whatever happened.
///
/// # Errors
/// Those of the play; and of the start.
pub(super) async fn play<T>(
    stage: &Stage,
    kind: Kind,
    story: &mut Story,
    act: impl AsyncFnOnce(&Side, &mut Story) -> Result<T, DemoError>,
) -> Result<T, DemoError> {
    story.side(match kind {
        Kind::Bare => "Without Rejoin: a plain Streamable HTTP server with an event buffer",
        Kind::Guarded => "Through Rejoin: the same tool server behind `rejoin serve`",
    })?;
    let side = Side::start(stage, kind).await?;
    let result = act(&side, story).await;
    match side.server {
        Server::Bare(server) => server.end().await,
        Server::Guarded(server) => {
            if result.is_err() {
                story
                    .text(&format!("The log of `rejoin serve` ends with: {}", server.log_end()))?;
            }
            server.end().await;
        }
    }
    result
}

impl Side {
    async fn start(stage: &Stage, kind: Kind) -> Result<Self, DemoError> {
        let folder = tempfile::Builder::new().tempdir_in(stage.folder.path())?.keep();
        let count_file = folder.join("count");
        let words = [OsStr::new("tool-server"), OsStr::new("--count-file"), count_file.as_os_str()];
        let server = match kind {
            Kind::Bare => {
                let mut command = Command::new(&stage.program);
                command.args(words);
                Server::Bare(BareServer::start(command).await?)
            }
            Kind::Guarded => {
                let [tool_server, option, path] = words;
                let upstream = [stage.program.as_os_str(), tool_server, option, path];
                let log = folder.join("log");
                Server::Guarded(GuardedServer::start(&stage.program, &upstream, log).await?)
            }
        };
        Ok(Self { server, count_file })
    }

    /// Where the server listens.
    pub(super) fn address(&self) -> SocketAddr {
        match &self.server {
            Server::Bare(server) => server.address(),
            Server::Guarded(server) => server.address(),
        }
    }

    /// How often `charge` ran, whatever anybody says.
    pub(super) fn executions(&self) -> usize {
        // The first execution creates the file.
        let text = std::fs::read_to_string(&self.count_file).unwrap_or_default();
        text.lines().filter(|line| line.starts_with("charge ")).count()
    }

    /// The messages a plain server keeps after this cursor; `None` behind Rejoin, which shows
    /// nobody its log.
    pub(super) fn kept_after(&self, cursor: &str) -> Option<Vec<Value>> {
        match &self.server {
            Server::Bare(server) => Some(server.kept_after(cursor)),
            Server::Guarded(_) => None,
        }
    }
}

/// A call of `charge`, with a progress token of its own as stock clients send it.
pub(super) fn charge(id: u64, arguments: &Value) -> Value {
    let params =
        json!({ "name": "charge", "arguments": arguments, "_meta": { "progressToken": id } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}
