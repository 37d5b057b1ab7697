//! HTTP/1.1 over TCP and TLS, straight or through a proxy: carries out what the machine asks for,
//! and tells what became of it.
mod answers;
mod connect;
mod credential;
mod exchange;
mod pool;
mod room;
mod target;

use std::path::PathBuf;

use http::{HeaderName, HeaderValue};

pub(crate) use self::answers::{Answered, Answers, bytes, channel};
pub use self::connect::TlsError;
pub use self::credential::{Credential, CredentialError};
pub(crate) use self::exchange::{SetUpError, Transport};
pub use self::target::UrlError;
use crate::limits::ClientLimits;

/// Through which proxies requests go.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proxies {
    /// Those that `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` name.
    #[default]
    Environment,
    /// All through this one, by its URL.
    Through(String),
    /// None.
    None,
}

impl std::fmt::Debug for Proxies {
    /// Without the URL, which can hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Environment => "Environment",
            Self::Through(_) => "Through",
            Self::None => "None",
        })
    }
}

/// Whether a header field is the client's own to set, or one connection's.
pub fn is_reserved(name: &HeaderName) -> bool {
    name.as_str().starts_with("mcp-")
        || matches!(
            name.as_str(),
            "host"
                | "accept"
                | "content-type"
                | "content-length"
                | "last-event-id"
                | "idempotency-key"
                | "connection"
                | "transfer-encoding"
                | "te"
                | "trailer"
                | "upgrade"
                | "keep-alive"
                | "proxy-authorization"
        )
}

/// How a server is reached.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// URL of its MCP endpoint.
    pub url: String,
    /// The value of `Authorization`.
    pub credential: Credential,
    /// The option by which a person gives another one, such as `--auth`, as messages name it. Empty
    /// for a program that has none.
    pub credential_option: String,
    /// Header fields that every request carries.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// PEM file of certificate authorities to trust beside those of the system.
    pub ca_file: Option<PathBuf>,
    /// Through which proxies.
    pub proxies: Proxies,
    /// Believe the server's own `readOnlyHint` and `idempotentHint`.
    pub trusts_annotations: bool,
    /// Limits.
    pub limits: ClientLimits,
}

impl std::fmt::Debug for Config {
    /// Without what a query or a header field may hold, which can be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Config")
            .field("url", &self.shown_url())
            .field("credential", &self.credential)
            .field("credential_option", &self.credential_option)
            .field("headers", &names)
            .field("ca_file", &self.ca_file)
            .field("proxies", &self.proxies)
            .field("trusts_annotations", &self.trusts_annotations)
            .field("limits", &self.limits)
            .finish()
    }
}

impl Config {
    /// A server without credential, reached as the environment says.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            credential: Credential::None,
            credential_option: String::new(),
            headers: Vec::new(),
            ca_file: None,
            proxies: Proxies::Environment,
            trusts_annotations: true,
            limits: ClientLimits::default(),
        }
    }

    /// The URL without what may be secret, as messages to a person name it.
    pub(crate) fn shown_url(&self) -> &str {
        self.url.split(['?', '#']).next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_shows_no_secret() {
        let mut config = Config::new("https://host.example/mcp?key=secret");
        config.headers =
            vec![(HeaderName::from_static("x-api-key"), HeaderValue::from_static("secret"))];
        let shown = format!("{config:?}");
        assert!(shown.contains("x-api-key") && !shown.contains("secret"), "{shown}");
    }
}
