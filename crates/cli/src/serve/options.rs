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
    /// HTTP/2 beside HTTP/1.1 at the MCP endpoints.
    pub(crate) http2: bool,
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
    /// The file of options, if neither it nor the command line names a server.
    pub(super) file_without_server: Option<PathBuf>,
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
    fn is_built_in(&self) -> bool {
        matches!(&self.upstream, UpstreamChoice::Command(command) if command.is_built_in())
    }

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
    #[allow(clippy::needless_update, reason = "a feature of the core adds a setting")]
    pub(crate) fn from_args(mut args: ServeArgs) -> Result<Self, ServeError> {
        let servers = servers(&mut args)?;
        check_addresses(&args, &servers)?;
        let origins = args.file.origins;
        let limits = limits::take(args.owed_grace, &args.limits, &args.file.limits)?;
        let setting = origins.name("subjects", "--subjects");
        Ok(Self {
            listen: args.listen,
            data: args.data.map(|folder| (folder, args.durability.into())),
            http2: args.http2,
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
                ..Settings::default()
            },
            file_without_server: args.config.filter(|_| servers.iter().any(Served::is_built_in)),
            servers,
            is_check: args.check,
            origins,
        })
    }
}

/// Checks who can reach the listeners, and that nothing else is at their addresses.
fn check_addresses(args: &ServeArgs, servers: &[Served]) -> Result<(), ServeError> {
    let origins = &args.file.origins;
    let name = |setting, option| origins.name(setting, option);
    let (listen, admin) = (name("listen", "--listen"), name("admin", "--admin"));
    let listeners = [("listen", &listen, args.listen), ("admin", &admin, args.admin)];
    for (setting, option, address) in listeners {
        if !address.ip().is_loopback() && !args.allow_anonymous {
            let is_of_file = origins.has(setting);
            let in_file = "set allow_anonymous = true";
            let remedy = if is_of_file { in_file } else { "pass --allow-anonymous" };
            let option = option.clone();
            return Err(ServeError::Unauthenticated { option, address, remedy });
        }
        for server in servers {
            if let UpstreamChoice::Url(url) = &server.upstream {
                url.differs_from(option, address)?;
            }
        }
    }
    if collide(args.listen, args.admin) {
        return Err(ServeError::SameAddress { listen, admin, address: args.admin });
    }
    Ok(())
}

/// True for two listeners that cannot both be there.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let is_same_port = one.port() == other.port() && one.port() != 0;
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    is_same_port && (one.ip() == other.ip() || is_any)
}

/// The servers with names, each at `/NAME/mcp`, or the only one, at `/mcp`.
fn servers(args: &mut ServeArgs) -> Result<Vec<Served>, ServeError> {
    let named = std::mem::take(&mut args.file.servers);
    let variables = std::mem::take(&mut args.file.variables);
    let mut served: Vec<Served> = if named.is_empty() {
        let (path, facts) = ("/mcp".to_owned(), ServerFacts::default());
        vec![Served { path, upstream: UpstreamChoice::take(args)?, facts }]
    } else {
        let served = named.into_iter().map(|server| Served {
            path: format!("/{}/mcp", server.name),
            upstream: server.upstream,
            facts: server.facts,
        });
        served.collect()
    };
    for server in &mut served {
        let UpstreamChoice::Command(command) = &mut server.upstream else { continue };
        command.withhold(&variables);
    }
    Ok(served)
}
