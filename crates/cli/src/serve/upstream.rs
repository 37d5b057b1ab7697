//! What `rejoin serve` stands in front of: a command, or a URL.

mod command;
mod url;

use std::path::PathBuf;
use std::sync::Arc;

use rejoin_core::limits::Limits;
use rejoin_gateway::upstream::Upstream;
use rejoin_gateway::upstream::http::HttpUpstreamError;
use rejoin_gateway::upstream::stdio::Children;

use crate::args::ServeArgs;
pub(crate) use command::{FileCommand, UpstreamCommand};
pub(crate) use url::UpstreamUrl;

/// The MCP server as its operator named it.
#[derive(Clone, Debug)]
pub(crate) enum UpstreamChoice {
    /// A command, started once per session.
    Command(UpstreamCommand),
    /// A URL.
    Url(UpstreamUrl),
}

/// Why an MCP server cannot be used as it is named.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// The built-in tool server is this very program, and its path is unknown.
    #[error("the path of this program is unknown; name a COMMAND after `--`")]
    NoOwnPath(#[source] std::io::Error),
    /// The program's path cannot be passed on.
    #[error("the path {program:?} is not valid Unicode; start the MCP server by another name")]
    ProgramNotText {
        /// The path.
        program: PathBuf,
    },
    /// The command is not there, or its directory.
    #[error("{told}")]
    Missing {
        /// Where it is named, why not, and what to do.
        told: String,
    },
    /// The URL leads back to Rejoin.
    #[error(
        "{option}: Rejoin itself listens there ({listener}): name the address of the MCP server, \
         or let Rejoin listen elsewhere"
    )]
    Itself {
        /// The option at fault, without secrets.
        option: String,
        /// The setting of the listener, and its address.
        listener: String,
    },
    /// The URL, or what belongs to it.
    #[error("{option}")]
    Url {
        /// The option at fault, without secrets.
        option: String,
        /// Why, and what to do.
        source: HttpUpstreamError,
    },
}

impl UpstreamChoice {
    /// Takes what the arguments say of the server.
    ///
    /// # Errors
    /// If none is named and the built-in one cannot be found.
    pub(super) fn take(args: &mut ServeArgs) -> Result<Self, UpstreamError> {
        let Some(url) = args.upstream.take() else {
            if let Some(command) = args.file.command.take_if(|_| args.command.is_empty()) {
                return Ok(Self::Command(command));
            }
            let words = std::mem::take(&mut args.command);
            return UpstreamCommand::from_words(words).map(Self::Command);
        };
        let auth = args.upstream_auth.0.clone();
        let mut upstream = UpstreamUrl::new(url, auth, args.file.origins.clone());
        upstream.ca_file = args.upstream_ca.take();
        upstream.forward_headers = std::mem::take(&mut args.upstream_headers);
        Ok(Self::Url(upstream))
    }

    /// The place where sessions with it are opened. Nothing is started or connected yet.
    ///
    /// # Errors
    /// If it cannot be used as it is named; each message says what to do.
    pub(super) fn build(
        &self,
        limits: &Arc<Limits>,
        children: &Children,
    ) -> Result<Arc<dyn Upstream>, UpstreamError> {
        let limits = Arc::clone(limits);
        match self {
            Self::Command(command) => Ok(Arc::new(command.build(limits)?.sharing(children))),
            Self::Url(url) => Ok(Arc::new(url.build(limits)?)),
        }
    }

    /// Looks for what must be there before a session can be opened; it may still come later. A
    /// server at a URL is not asked.
    ///
    /// # Errors
    /// If it is not there; the message says what to do.
    pub(super) fn find(&self, limits: &Arc<Limits>) -> Result<(), UpstreamError> {
        match self {
            Self::Command(command) => command.find(Arc::clone(limits)),
            Self::Url(_) => Ok(()),
        }
    }

    /// The server for a person, on one line whatever its words contain, without secrets of a URL.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Command(command) => command.describe(),
            Self::Url(url) => url.describe(),
        }
    }
}

fn show_word(word: &str) -> String {
    let plain = |character: char| !character.is_whitespace() && !character.is_control();
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("{word:?}") }
}
