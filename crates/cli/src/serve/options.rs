//! Everything a gateway is started with, checked.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use rejoin_core::settings::Settings;
use rejoin_store::sqlite::Durability;

use super::ServeError;
use super::limits;
use super::subjects::SubjectsFile;
use super::upstream::UpstreamChoice;
use crate::args::{RejectStatus, ServeArgs};
use crate::config::{Origins, ServerFacts};

/// Everything a gateway is started with, checked.
#[derive(Debug)]
pub(crate) struct ServeOptions {
    /// Address of the MCP endpoints; port 0 takes any free port.
    pub(crate) listen: SocketAddr,
    /// Directory of the log, and what of it outlives a power cut; `None`: it is kept in memory.
    pub(crate) data: Option<(PathBuf, Durability)>,
    /// Address of `/healthz` and `/metrics`.
    pub(crate) admin: SocketAddr,
    /// `Host` values accepted beside the loopback names.
    pub(crate) allow_hosts: Vec<String>,
    /// `Origin` values accepted beside the loopback origins.
    pub(crate) allow_origins: Vec<String>,
    /// File of credentials that belong to one subject.
    pub(super) subjects: Option<SubjectsFile>,
    /// HTTP status of refusals.
    pub(crate) reject_status: RejectStatus,
    /// What shapes decisions; the limits are checked against each other.
    pub(crate) settings: Settings,
    /// The MCP servers to stand in front of; one at least.
    pub(crate) servers: Vec<Served>,
    /// True if they are checked only: nothing is opened.
    pub(super) is_check: bool,
    /// Where the options were set.
    pub(crate) origins: Origins,
}

/// An MCP server, and where clients find it.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// Path of its endpoint.
    pub(crate) path: String,
    /// The server.
    pub(crate) upstream: UpstreamChoice,
    /// What is known of it alone.
    facts: ServerFacts,
}

impl Served {
    /// What shapes decisions about its calls, by what holds for all servers.
    pub(super) fn settings(&self, of_all: &Settings) -> Settings {
        let mut settings = of_all.clone();
        let ServerFacts { idempotent_tools, trust_annotations, stateless_upstream } = &self.facts;
        if let Some(tools) = idempotent_tools {
            settings.idempotent_tools = tools.iter().cloned().collect::<BTreeSet<_>>();
        }
        settings.trust_annotations = trust_annotations.unwrap_or(settings.trust_annotations);
        let is_stateless = stateless_upstream.unwrap_or(settings.upstream_is_stateless);
        settings.upstream_is_stateless = is_stateless;
        settings
    }
}

impl ServeOptions {
    /// The options an operator asked for.
    ///
    /// # Errors
    /// When they are unsafe or contradict each other; each message names the remedy.
    pub(crate) fn from_args(mut args: ServeArgs) -> Result<Self, ServeError> {
        let servers = servers(&mut args)?;
        let origins = args.file.origins;
        for (setting, option, address) in
            [("listen", "--listen", args.listen), ("admin", "--admin", args.admin)]
        {
            if !address.ip().is_loopback() && !args.allow_anonymous {
                let option = origins.name(setting, option);
                return Err(ServeError::Unauthenticated { option, address });
            }
        }
        let limits = limits::take(args.owed_grace, &args.limits, &args.file.limits)?;
        let setting = origins.name("subjects", "--subjects");
        Ok(Self {
            listen: args.listen,
            data: args.data.map(|folder| (folder, args.durability.into())),
            admin: args.admin,
            allow_hosts: args.allow_hosts,
            allow_origins: args.allow_origins,
            subjects: args.subjects.map(|path| SubjectsFile { path, setting }),
            reject_status: args.reject_status,
            settings: Settings {
                limits,
                on_repeat: args.on_repeat.into(),
                delivery: args.delivery.into(),
                repeat_scope: args.repeat_scope.into(),
                upstream_is_stateless: args.stateless_upstream,
                idempotent_tools: args.idempotent_tools.into_iter().collect(),
                trust_annotations: args.trust_annotations,
            },
            servers,
            is_check: args.check,
            origins,
        })
    }
}

/// The servers with names, each at `/NAME/mcp`, or the only one, at `/mcp`.
fn servers(args: &mut ServeArgs) -> Result<Vec<Served>, ServeError> {
    let named = std::mem::take(&mut args.file.servers);
    if named.is_empty() {
        let (path, facts) = ("/mcp".to_owned(), ServerFacts::default());
        return Ok(vec![Served { path, upstream: UpstreamChoice::take(args)?, facts }]);
    }
    let served = named.into_iter().map(|server| Served {
        path: format!("/{}/mcp", server.name),
        upstream: server.upstream,
        facts: server.facts,
    });
    Ok(served.collect())
}
