//! What `rejoin serve` stands in front of: a command, or a URL.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::Uri;
use hyper::header::HeaderName;
use rejoin_core::limits::Limits;
use rejoin_gateway::upstream::Upstream;
use rejoin_gateway::upstream::http::{
    HttpOptions, HttpUpstream, HttpUpstreamError, UpstreamAuth, WireError,
};
use rejoin_gateway::upstream::stdio::StdioUpstream;

use crate::args::ServeArgs;

/// The MCP server as its operator named it.
#[derive(Clone, Debug)]
pub(crate) enum UpstreamChoice {
    /// A command, started once per session.
    Command(UpstreamCommand),
    /// A URL.
    Url(UpstreamUrl),
}

/// The command of a stdio MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamCommand {
    /// The program, looked up in `PATH` if it has no slash.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Whether it is this program's own tool server.
    built_in: bool,
}

/// The URL of an MCP server over Streamable HTTP.
#[derive(Clone)]
pub(crate) struct UpstreamUrl {
    /// It may hold secrets in its query.
    url: String,
    auth: UpstreamAuth,
    ca_file: Option<PathBuf>,
    forward_headers: Vec<HeaderName>,
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
            let words = std::mem::take(&mut args.command);
            return UpstreamCommand::from_words(words).map(Self::Command);
        };
        Ok(Self::Url(UpstreamUrl {
            url,
            auth: args.upstream_auth.0.clone(),
            ca_file: args.upstream_ca.take(),
            forward_headers: std::mem::take(&mut args.upstream_headers),
        }))
    }

    /// The place where sessions with it are opened. Nothing is started or connected yet.
    ///
    /// # Errors
    /// If it cannot be used as it is named; each message says what to do.
    pub(super) fn build(&self, limits: &Arc<Limits>) -> Result<Arc<dyn Upstream>, UpstreamError> {
        let limits = Arc::clone(limits);
        match self {
            Self::Command(UpstreamCommand { program, arguments, .. }) => {
                let not_text = || UpstreamError::ProgramNotText { program: program.clone() };
                let command = program.to_str().ok_or_else(not_text)?;
                let upstream = StdioUpstream::new(command, arguments, limits);
                if let Err(error) = upstream.find() {
                    tracing::warn!(%error, "every initialize will fail until that is done");
                }
                Ok(Arc::new(upstream))
            }
            Self::Url(UpstreamUrl { url, auth, ca_file, forward_headers }) => {
                let mut options = HttpOptions::new(limits);
                options.auth = auth.clone();
                options.ca_file.clone_from(ca_file);
                options.forward_headers.clone_from(forward_headers);
                let upstream = HttpUpstream::new(url, options).map_err(|source| {
                    UpstreamError::Url { option: self.option_of(&source), source }
                })?;
                Ok(Arc::new(upstream))
            }
        }
    }

    /// The option that an error is about.
    fn option_of(&self, error: &HttpUpstreamError) -> String {
        match error {
            HttpUpstreamError::ReservedHeader { .. } => "--upstream-header".to_owned(),
            HttpUpstreamError::Credential(_) => "--upstream-auth".to_owned(),
            HttpUpstreamError::Wire(WireError::CaFile { .. } | WireError::NoCaFile { .. }) => {
                "--upstream-ca".to_owned()
            }
            _ => format!("--upstream {}", self.describe()),
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

impl UpstreamCommand {
    fn from_words(words: Vec<OsString>) -> Result<Self, UpstreamError> {
        let mut words = words.into_iter();
        match words.next() {
            Some(program) => {
                Ok(Self { program: program.into(), arguments: words.collect(), built_in: false })
            }
            None => Self::built_in(),
        }
    }

    /// This program's own tool server.
    fn built_in() -> Result<Self, UpstreamError> {
        let program = std::env::current_exe().map_err(UpstreamError::NoOwnPath)?;
        Ok(Self { program, arguments: vec!["tool-server".into()], built_in: true })
    }

    fn describe(&self) -> String {
        if self.built_in {
            return "the built-in tool server (rejoin tool-server)".to_owned();
        }
        let words = std::iter::once(self.program.as_os_str())
            .chain(self.arguments.iter().map(OsString::as_os_str));
        let shown: Vec<String> = words.map(|word| show_word(&word.to_string_lossy())).collect();
        shown.join(" ")
    }
}

fn show_word(word: &str) -> String {
    let plain = |character: char| !character.is_whitespace() && !character.is_control();
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("{word:?}") }
}

impl UpstreamUrl {
    /// Scheme, host, port and path: user names and queries can be secrets.
    fn describe(&self) -> String {
        let uri = self.url.parse::<Uri>().ok();
        let shown = uri.as_ref().and_then(|uri| {
            let host = uri.host()?;
            let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
            Some(format!("{}://{host}{port}{}", uri.scheme_str()?, uri.path()))
        });
        shown.unwrap_or_else(|| {
            let readable = self.url.split(['?', '#']).next().unwrap_or_default();
            let hides = self.url.contains('@');
            if hides { "a URL that cannot be read".to_owned() } else { show_word(readable) }
        })
    }
}

impl fmt::Debug for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamUrl")
            .field("url", &self.describe())
            .field("ca_file", &self.ca_file)
            .field("forward_headers", &self.forward_headers)
            .finish_non_exhaustive()
    }
}
