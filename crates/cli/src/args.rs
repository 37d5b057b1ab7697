//! The command line (design section 8).

mod bridge;
mod durability;
pub(crate) mod place;
mod probe;
pub(crate) mod sessions;
pub(crate) mod value;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use hyper::header::HeaderName;
use rejoin_core::settings;

use crate::config::FileSettings;
use crate::limit::LimitArgument;
pub(crate) use bridge::BridgeArgs;
pub(crate) use durability::Durability;
pub(crate) use probe::ProbeArgs;
pub(crate) use sessions::{SessionsArgs, SessionsCommand};
pub(crate) use value::{AuthSource, OwedGrace};

/// Keeps MCP conversations whole over connections that break.
#[derive(Debug, Parser)]
#[command(name = "rejoin", version, about, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What `rejoin` is asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Stand in front of an MCP server: no call runs twice, no owed event is lost
    Serve(Box<ServeArgs>),
    /// Stand in for a server over HTTP where a host starts a command: lost connections are rejoined
    Bridge(BridgeArgs),
    /// See whether an MCP server runs calls twice, and loses their answers
    Probe(Box<ProbeArgs>),
    /// Show two failures live in this terminal, without Rejoin and through it
    Demo(DemoArgs),
    /// Show what a Rejoin knows of its sessions: streams, cursors, calls
    Sessions(SessionsArgs),
    /// Run a small MCP server on standard input and output, for demos and tests
    ToolServer(ToolServerArgs),
}

/// What `rejoin serve --help` says below its options.
const SERVE_NOTES: &str = "\
The MCP server is started, or connected to, when a client sends initialize: once per session. \
/readyz does not cover it. At the start Rejoin only warns of a COMMAND that it does not find; \
--check fails for it.

SIGTERM and SIGINT end gracefully: running calls may finish within drain_ms. A second one ends at \
once. SIGHUP, as from a terminal that is closed, ends gracefully too, unless it was ignored at the \
start (nohup). With --subjects it reads FILE again instead, and Rejoin outlives its terminal.";

/// Arguments of `rejoin serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = SERVE_NOTES)]
#[command(group(ArgGroup::new("url").args(["upstream", "config"]).multiple(true)))]
pub(crate) struct ServeArgs {
    /// File with any of these options, and with several servers; what is given here wins over it
    ///
    /// TOML, or JSON if its name ends in `.json`. A key is an option's name with `_` for `-`, in
    /// the plural if the option is repeatable; see docs/configuration.md.
    #[arg(short = 'c', long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check the options and the file, say what would be served, and end: status 0, or 1
    ///
    /// A command that is not found is an error here. What the command line itself has wrong, such
    /// as an option that does not exist, ends with status 2, with --check and without.
    #[arg(long)]
    pub(crate) check: bool,
    /// Address of the MCP endpoint /mcp; port 0 takes any free port
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        value_parser = place::address
    )]
    pub(crate) listen: SocketAddr,
    /// Directory of the log, made if it is not there: sessions outlive Rejoin; default: in memory
    ///
    /// One Rejoin at a time has a directory. A new one goes on where the last one ended, however it
    /// did.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// What of --data outlives a power cut; a killed process loses nothing in any of them
    #[arg(long, value_enum, default_value_t = Durability::Calls)]
    pub(crate) durability: Durability,
    /// Speak HTTP/2 too to clients that begin with it (prior knowledge, no TLS); off by default
    ///
    /// What reaches a client cannot be seen on such a connection: an answer counts as delivered one
    /// second after it was sent whole (docs/operating.md).
    #[arg(long)]
    pub(crate) http2: bool,
    /// Address of /healthz, /livez, /readyz and /metrics
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9090",
        value_parser = place::address
    )]
    pub(crate) admin: SocketAddr,
    /// Accept this Host header too (default: names of this machine's loopback); repeatable
    #[arg(long = "allow-host", value_name = "HOST", value_parser = place::host)]
    pub(crate) allow_hosts: Vec<String>,
    /// Accept this Origin header too (default: loopback origins); repeatable
    #[arg(long = "allow-origin", value_name = "ORIGIN", value_parser = place::origin)]
    pub(crate) allow_origins: Vec<String>,
    /// Let anyone who reaches the port use the tools; needed to listen beyond loopback
    #[arg(long)]
    pub(crate) allow_anonymous: bool,
    /// File of credentials that belong to one subject, lines `<hash> <subject>`; SIGHUP rereads it
    ///
    /// The hash is that of a whole Authorization value, as `printf %s "Bearer TOKEN" | sha256sum`
    /// prints it; the subject is a word of yours in place of the `-` behind it.
    #[arg(long, value_name = "FILE")]
    pub(crate) subjects: Option<PathBuf>,
    /// HTTP status of a refused call; auto: 409, but 200 to clients that lose their session on it.
    /// Where it is 200, so are the 400, 502, 503 and 504 of requests, `initialize` among them
    #[arg(long, value_enum, default_value_t = RejectStatus::Auto)]
    pub(crate) reject_status: RejectStatus,
    /// What a repeated call without a token gets once the first has ended
    #[arg(long, value_enum, default_value_t = OnRepeat::Collect)]
    pub(crate) on_repeat: OnRepeat,
    /// Where the first of a repeated call is looked for: its session, or all of its principal's
    #[arg(long, value_enum, default_value_t = RepeatScope::Session)]
    pub(crate) repeat_scope: RepeatScope,
    /// What counts as delivered: acknowledged by the peer's kernel, or by the client itself
    #[arg(long, value_enum, default_value_t = Delivery::Presumed)]
    pub(crate) delivery: Delivery,
    #[arg(
        long,
        value_name = "MS|never",
        allow_negative_numbers = true,
        help = value::owed_grace_help()
    )]
    pub(crate) owed_grace: Option<OwedGrace>,
    /// Set any limit by its name, for example hold_max_ms=20000; repeatable; `help` lists them all
    #[arg(long = "limit", value_name = "NAME=VALUE|help")]
    pub(crate) limits: Vec<LimitArgument>,
    /// This tool may run twice without harm; repeatable
    #[arg(long = "idempotent-tool", value_name = "NAME", value_parser = value::tool)]
    pub(crate) idempotent_tools: Vec<String>,
    /// Believe the server's own readOnlyHint and idempotentHint
    #[arg(long)]
    pub(crate) trust_annotations: bool,
    /// The server keeps nothing between calls: its end or loss is not worth telling (`state_lost`)
    #[arg(long)]
    pub(crate) stateless_upstream: bool,
    /// URL of the MCP server, if it is one over Streamable HTTP
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub(crate) upstream: Option<String>,
    /// Whose Authorization that server sees: the client's own, none, or one of Rejoin
    ///
    /// forward: the client's own, whatever it is.
    /// none: no Authorization at all.
    /// env:VARIABLE: the value of this environment variable at the start.
    /// file:PATH: the content of this file.
    /// command:CMD: what this command line prints, run by `sh -c`.
    /// Each of the last three gives the whole header value, such as `Bearer TOKEN`. File and
    /// command are read at the first use, and again when the server answers 401.
    #[arg(
        verbatim_doc_comment,
        long,
        value_name = "forward|none|env:VARIABLE|file:PATH|command:CMD",
        default_value = "forward",
        requires = "url"
    )]
    pub(crate) upstream_auth: AuthSource,
    /// PEM file of certificate authorities to trust beside those of the system
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) upstream_ca: Option<PathBuf>,
    /// Forward this header of the client too, beside its Authorization; repeatable
    #[arg(
        long = "upstream-header",
        value_name = "NAME",
        requires = "url",
        value_parser = value::header
    )]
    pub(crate) upstream_headers: Vec<HeaderName>,
    /// What to log on standard error, for example `info` or `rejoin_gateway=debug`
    #[arg(long, value_name = "FILTER", env = "REJOIN_LOG", default_value = "info")]
    pub(crate) log: String,
    /// The MCP server to start, once per session; without it the built-in tool server runs
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// What the file says that no option does.
    #[arg(skip)]
    pub(crate) file: FileSettings,
}

/// HTTP status of a refusal (design section 5, "A refusal on the wire").
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RejectStatus {
    /// 409, but 200 to clients known to lose their session on any other status.
    Auto,
    /// Always 409.
    #[value(name = "409")]
    Conflict,
    /// Always 200.
    #[value(name = "200")]
    Ok,
}

/// Treatment of repeats by params (design section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnRepeat {
    /// Refuse while the first answer is owed, then hand out the record.
    Collect,
    /// Wait for the first call's end, then hand out its recorded answer.
    Join,
    /// Refuse.
    Reject,
}

impl From<OnRepeat> for settings::OnRepeat {
    fn from(chosen: OnRepeat) -> Self {
        match chosen {
            OnRepeat::Collect => Self::Collect,
            OnRepeat::Join => Self::Join,
            OnRepeat::Reject => Self::Reject,
        }
    }
}

/// Where the original of a repeat by params is looked for (design section 2, "repeat").
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepeatScope {
    /// In the session of the POST.
    Session,
    /// In all sessions of its principal.
    Principal,
}

impl From<RepeatScope> for settings::RepeatScope {
    fn from(chosen: RepeatScope) -> Self {
        match chosen {
            RepeatScope::Session => Self::Session,
            RepeatScope::Principal => Self::Principal,
        }
    }
}

/// What counts as delivered (design sections 1 and 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    /// Acknowledged by the peer's kernel, no reset seen.
    Presumed,
    /// Acknowledged by the client itself.
    Proved,
}

impl From<Delivery> for settings::Delivery {
    fn from(chosen: Delivery) -> Self {
        match chosen {
            Delivery::Presumed => Self::Presumed,
            Delivery::Proved => Self::Proved,
        }
    }
}

/// Arguments of `rejoin demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Shorten the pauses
    #[arg(long)]
    pub(crate) fast: bool,
    /// Never use colour (default: colour on a terminal unless NO_COLOR is set)
    #[arg(long)]
    pub(crate) no_color: bool,
    /// Show only the half without Rejoin
    #[arg(long, hide = true)]
    pub(crate) bare_only: bool,
}

/// Arguments of `rejoin tool-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct ToolServerArgs {
    /// Append one line per execution to this file, synced to disk before the tool starts
    #[arg(long, value_name = "FILE", env = "REJOIN_COUNT_FILE")]
    pub(crate) count_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use rejoin_gateway::upstream::http::UpstreamAuth;

    use super::*;

    fn serve(arguments: &[&str]) -> Result<ServeArgs, clap::Error> {
        let whole = ["rejoin", "serve"].iter().chain(arguments);
        match Args::try_parse_from(whole)?.command {
            Command::Serve(args) => Ok(*args),
            other => panic!("parsed as {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn serve_without_arguments_has_the_documented_defaults() {
        let args = serve(&[]).unwrap();
        assert_eq!(args.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(args.admin.to_string(), "127.0.0.1:9090");
        assert_eq!(args.reject_status, RejectStatus::Auto);
        assert_eq!(args.on_repeat, OnRepeat::Collect);
        assert_eq!(args.delivery, Delivery::Presumed);
        assert!(args.owed_grace.is_none() && args.command.is_empty() && args.limits.is_empty());
        assert!(!args.allow_anonymous && !args.trust_annotations && !args.http2);
    }

    #[test]
    fn everything_after_two_dashes_is_the_command() {
        let args = serve(&["--reject-status", "409", "--", "npx", "-y", "--listen"]).unwrap();
        assert_eq!(args.reject_status, RejectStatus::Conflict);
        assert_eq!(args.command, ["npx", "-y", "--listen"]);
    }

    #[test]
    fn a_command_without_two_dashes_is_refused() {
        assert!(serve(&["npx"]).is_err());
    }

    #[test]
    fn a_url_excludes_a_command_and_brings_its_own_options() {
        let url = ["--upstream", "http://127.0.0.1:3001/mcp"];
        let args = serve(&url).unwrap();
        assert!(matches!(args.upstream_auth.0, UpstreamAuth::Forward));
        let all = ["--upstream-ca", "ca.pem", "--upstream-header", "X-A", "--upstream-header", "b"];
        let args = serve(&[&url[..], &all].concat()).unwrap();
        assert_eq!(args.upstream_headers, ["x-a", "b"]);
        assert!(serve(&[&url[..], &["--", "npx"]].concat()).is_err());
        assert!(serve(&all).is_err(), "options of no URL");
        assert!(serve(&["--upstream-auth", "none"]).is_err());
        for name in ["a b", "X-A: 1", ""] {
            let refusal = serve(&[&url[..], &["--upstream-header", name]].concat());
            let refusal = refusal.unwrap_err().to_string();
            assert!(refusal.contains("such as X-Tenant"), "{refusal}");
        }
    }

    #[test]
    fn a_tool_without_a_name_is_refused() {
        for name in ["", " "] {
            let refusal = serve(&["--idempotent-tool", name]).unwrap_err().to_string();
            assert!(refusal.contains("tools/list"), "{refusal}");
        }
        assert_eq!(serve(&["--idempotent-tool", "get x"]).unwrap().idempotent_tools, ["get x"]);
    }

    #[test]
    fn the_help_explains_defaults_forms_signals_and_what_readiness_covers() {
        let mut command = <Args as clap::CommandFactory>::command();
        command.build();
        let help = command.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
        for text in [
            "fetched, however long [default: 8000]",
            "run by `sh -c`",
            "env:VARIABLE: the value",
            "/readyz does not cover it",
            "(nohup)",
            "<hash> <subject>",
        ] {
            assert!(help.contains(text), "{text}: {help}");
        }
    }

    #[test]
    fn a_negative_grace_is_refused_as_a_value() {
        let refusal = serve(&["--owed-grace", "-1"]).unwrap_err().to_string();
        assert!(refusal.contains("expected a whole number of milliseconds"), "{refusal}");
    }

    #[test]
    fn an_unknown_limit_is_refused_with_the_nearest() {
        let refusal = serve(&["--limit", "hold_maxms=5"]).unwrap_err().to_string();
        assert!(refusal.contains("hold_maxms") && refusal.contains("hold_max_ms"), "{refusal}");
        assert!(!refusal.contains("sessions_max"), "{refusal}");
    }
}
