//! Arguments of `rejoin sessions`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Subcommand;

use super::place;

/// Arguments of `rejoin sessions`.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {
    /// Admin address of the Rejoin that runs
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9090",
        value_parser = place::address
    )]
    pub(crate) admin: SocketAddr,
    /// Directory of the log, while no Rejoin runs there
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: SessionsCommand,
}

/// What `rejoin sessions` is asked for. A session is named as in the log, or by more of its key.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// All sessions, a line each
    List,
    /// The streams of a session, with their cursors
    Show {
        /// The session
        session: String,
    },
    /// The calls of a session
    Calls {
        /// The session
        session: String,
    },
    /// End every refusal that a call causes: its effect was checked by hand
    Release {
        /// The session
        session: String,
        /// The call's number
        call: u64,
    },
    /// Print the events of a session, one JSON object a line, whole messages included
    Export {
        /// The session
        session: String,
    },
}
