//! What `rejoin serve` stands in front of: a command, or a URL.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::header::HeaderName;
use hyper::{HeaderMap, Uri};
use rejoin_core::limits::Limits;
use rejoin_gateway::upstream::Upstream;
use rejoin_gateway::upstream::http::{
    HttpOptions, HttpUpstream, HttpUpstreamError, UpstreamAuth, WireError,
};
use rejoin_gateway::upstream::stdio::{Children, StdioUpstream};

use crate::args::ServeArgs;
use crate::config::Origins;

/// The MCP server as its operator named it.
#[derive(Clone, Debug)]
pub(crate) enum UpstreamChoice {
    /// A command, started once per session.
    Command(UpstreamCommand),
    /// A URL.
    Url(UpstreamUrl),
}

/// The command of a stdio MCP server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UpstreamCommand {
    /// The program, looked up in `PATH` if it has no slash.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Variables beside those of Rejoin.
    environment: Vec<(String, String)>,
    /// `None`: the directory of Rejoin.
    directory: Option<PathBuf>,
    /// `None`: the name of the program.
    name: Option<String>,
    origin: CommandOrigin,
}

/// Who named a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandOrigin {
    /// Nobody: it is this program's own tool server.
    BuiltIn,
    /// The command line, which anyone on this machine can see.
    CommandLine,
    /// A file, whose arguments may be secrets.
    File,
}

/// The URL of an MCP server over Streamable HTTP.
#[derive(Clone)]
pub(crate) struct UpstreamUrl {
    /// It may hold secrets in its query.
    url: String,
    auth: UpstreamAuth,
    /// Authorities beside those of the system.
    pub(crate) ca_file: Option<PathBuf>,
    /// Headers of clients that are passed on.
    pub(crate) forward_headers: Vec<HeaderName>,
    /// Headers of its own; secrets.
    pub(crate) headers: HeaderMap,
    /// `None`: origin and path of the URL.
    pub(crate) name: Option<String>,
    origins: Origins,
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
            Self::Command(command) => {
                let upstream = command.build(limits)?.sharing(children);
                if let Err(error) = upstream.find() {
                    tracing::warn!(%error, "every initialize will fail until that is done");
                }
                Ok(Arc::new(upstream))
            }
            Self::Url(url) => {
                let upstream = HttpUpstream::new(&url.url, url.options(limits));
                let failed = |source| UpstreamError::Url { option: url.option_of(&source), source };
                Ok(Arc::new(upstream.map_err(failed)?))
            }
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
                Ok(Self::new(program.into(), words.collect(), CommandOrigin::CommandLine))
            }
            None => Self::built_in(),
        }
    }

    /// This program's own tool server.
    fn built_in() -> Result<Self, UpstreamError> {
        let program = std::env::current_exe().map_err(UpstreamError::NoOwnPath)?;
        Ok(Self::new(program, vec!["tool-server".into()], CommandOrigin::BuiltIn))
    }

    /// As a file names it.
    pub(crate) fn from_file(
        program: &str,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
        directory: Option<PathBuf>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        let command = Self::new(program.into(), arguments, CommandOrigin::File);
        Self { environment, directory, ..command }
    }

    /// The same, under this name.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    fn new(program: PathBuf, arguments: Vec<OsString>, origin: CommandOrigin) -> Self {
        let environment = Vec::new();
        Self { program, arguments, environment, directory: None, name: None, origin }
    }

    fn build(&self, limits: Arc<Limits>) -> Result<StdioUpstream, UpstreamError> {
        let not_text = || UpstreamError::ProgramNotText { program: self.program.clone() };
        let program = self.program.to_str().ok_or_else(not_text)?;
        let mut upstream = StdioUpstream::new(program, &self.arguments, limits)
            .with_environment(self.environment.iter().cloned());
        if let Some(directory) = &self.directory {
            upstream = upstream.in_directory(directory.clone());
        }
        Ok(match &self.name {
            Some(name) => upstream.named(name),
            None => upstream,
        })
    }

    fn describe(&self) -> String {
        match self.origin {
            CommandOrigin::BuiltIn => {
                return "the built-in tool server (rejoin tool-server)".to_owned();
            }
            CommandOrigin::File => return show_word(&self.program.to_string_lossy()),
            CommandOrigin::CommandLine => {}
        }
        let words = std::iter::once(self.program.as_os_str())
            .chain(self.arguments.iter().map(OsString::as_os_str));
        let shown: Vec<String> = words.map(|word| show_word(&word.to_string_lossy())).collect();
        shown.join(" ")
    }
}

impl fmt::Debug for UpstreamCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UpstreamCommand").field(&self.describe()).finish()
    }
}

fn show_word(word: &str) -> String {
    let plain = |character: char| !character.is_whitespace() && !character.is_control();
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("{word:?}") }
}

impl UpstreamUrl {
    /// A URL whose settings were made there.
    pub(crate) fn new(url: String, auth: UpstreamAuth, origins: Origins) -> Self {
        let (forward_headers, headers) = (Vec::new(), HeaderMap::new());
        Self { url, auth, ca_file: None, forward_headers, headers, name: None, origins }
    }

    fn options(&self, limits: Arc<Limits>) -> HttpOptions {
        let mut options = HttpOptions::new(limits);
        options.auth = self.auth.clone();
        options.ca_file.clone_from(&self.ca_file);
        options.forward_headers.clone_from(&self.forward_headers);
        options.headers.clone_from(&self.headers);
        options.name.clone_from(&self.name);
        options
    }

    /// The setting that an error is about.
    fn option_of(&self, error: &HttpUpstreamError) -> String {
        let named = |setting, option| self.origins.name(setting, option);
        match error {
            HttpUpstreamError::ReservedHeader { name } if self.headers.contains_key(name) => {
                named("headers", "headers")
            }
            HttpUpstreamError::ReservedHeader { .. } => {
                named("upstream_headers", "--upstream-header")
            }
            HttpUpstreamError::Credential(_) => named("upstream_auth", "--upstream-auth"),
            HttpUpstreamError::Wire(WireError::CaFile { .. } | WireError::NoCaFile { .. }) => {
                named("upstream_ca", "--upstream-ca")
            }
            _ => format!("{} {}", named("upstream", "--upstream"), self.describe()),
        }
    }

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
