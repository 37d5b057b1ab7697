//! Whose credential the server sees, and which headers of the client are passed on.
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::HttpUpstreamError;
use crate::headers::is_reserved;

/// Time a command may take to print a credential.
const COMMAND_MAX: Duration = Duration::from_secs(10);

/// Whose `Authorization` the server sees.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum UpstreamAuth {
    /// The client's own.
    Forward,
    /// None.
    None,
    /// This value.
    Value(HeaderValue),
    /// The value of an environment variable of the gateway.
    Variable(String),
    /// The content of a file, read again when the server answers 401.
    File(PathBuf),
    /// What a command prints, run by `sh -c`, and again when the server answers 401.
    Command(String),
}

/// The names of the client's headers that are passed on.
pub(super) fn forwarded(
    auth: &UpstreamAuth,
    mut names: Vec<HeaderName>,
) -> Result<Vec<HeaderName>, HttpUpstreamError> {
    if let Some(name) = names.iter().find(|name| is_reserved(name)) {
        return Err(HttpUpstreamError::ReservedHeader { name: name.clone() });
    }
    names.retain(|name| *name != AUTHORIZATION);
    if matches!(auth, UpstreamAuth::Forward) {
        names.push(AUTHORIZATION);
    }
    Ok(names)
}

/// The headers with these names.
pub(super) fn select(names: &[HeaderName], headers: &HeaderMap) -> HeaderMap {
    let mut selected = HeaderMap::new();
    for name in names {
        for value in headers.get_all(name) {
            let mut value = value.clone();
            value.set_sensitive(*name == AUTHORIZATION);
            selected.append(name, value);
        }
    }
    selected
}

/// Why a credential could not be had. No message holds any of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialError {
    #[error("the variable `{name}` is not set; set it before Rejoin starts")]
    NoVariable { name: String },
    #[error("the file `{path}` cannot be read: {source}")]
    File { path: String, source: io::Error },
    #[error("the command cannot be run: {source}")]
    Command { source: io::Error },
    #[error("the command ended with {status}")]
    Failed { status: std::process::ExitStatus },
    #[error("the command did not end within {} s", COMMAND_MAX.as_secs())]
    TooSlow,
    #[error("it is empty or not one line of text")]
    NotAHeader,
}

/// The credential of an upstream, fetched once and again when it is refused.
#[derive(Debug)]
pub(super) struct Credential {
    auth: UpstreamAuth,
    value: Mutex<Option<HeaderValue>>,
}

impl Credential {
    pub(super) fn new(auth: UpstreamAuth) -> Self {
        Self { auth, value: Mutex::new(None) }
    }

    /// The value for `Authorization`. `None`: Rejoin has none of its own.
    pub(super) async fn value(&self) -> Result<Option<HeaderValue>, CredentialError> {
        if matches!(self.auth, UpstreamAuth::Forward | UpstreamAuth::None) {
            return Ok(None);
        }
        let mut value = self.value.lock().await;
        if value.is_none() {
            let mut fresh = self.fetch().await?;
            fresh.set_sensitive(true);
            *value = Some(fresh);
        }
        Ok(value.clone())
    }

    /// The server refused it: the next request has a fresh one.
    pub(super) async fn forget(&self) {
        *self.value.lock().await = None;
    }

    async fn fetch(&self) -> Result<HeaderValue, CredentialError> {
        let text = match &self.auth {
            UpstreamAuth::Forward | UpstreamAuth::None => String::new(),
            UpstreamAuth::Value(value) => return Ok(value.clone()),
            UpstreamAuth::Variable(name) => std::env::var(name)
                .map_err(|_| CredentialError::NoVariable { name: name.clone() })?,
            UpstreamAuth::File(path) => {
                let file = path.clone();
                let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(file));
                let read = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
                let path = path.display().to_string();
                read.map_err(|source| CredentialError::File { path, source })?
            }
            UpstreamAuth::Command(line) => run(line).await?,
        };
        let text = text.trim();
        if text.is_empty() {
            return Err(CredentialError::NotAHeader);
        }
        HeaderValue::from_str(text).map_err(|_| CredentialError::NotAHeader)
    }
}

async fn run(line: &str) -> Result<String, CredentialError> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = timeout(COMMAND_MAX, command.output()).await;
    let output = output.map_err(|_| CredentialError::TooSlow)?;
    let output = output.map_err(|source| CredentialError::Command { source })?;
    if !output.status.success() {
        return Err(CredentialError::Failed { status: output.status });
    }
    String::from_utf8(output.stdout).map_err(|_| CredentialError::NotAHeader)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn value(auth: UpstreamAuth) -> Result<Option<HeaderValue>, CredentialError> {
        Credential::new(auth).value().await
    }

    #[tokio::test]
    async fn a_credential_comes_from_its_source_and_is_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "Bearer one\n").unwrap();
        let credential = Credential::new(UpstreamAuth::File(path.clone()));
        let first = credential.value().await.unwrap().unwrap();
        assert_eq!(first, "Bearer one");
        assert!(!format!("{first:?}{credential:?}").contains("one"));
        std::fs::write(&path, "Bearer two").unwrap();
        assert_eq!(credential.value().await.unwrap().unwrap(), "Bearer one");
        credential.forget().await;
        assert_eq!(credential.value().await.unwrap().unwrap(), "Bearer two");

        let printed = value(UpstreamAuth::Command("echo Bearer $((1 + 2))".into())).await;
        assert_eq!(printed.unwrap().unwrap(), "Bearer 3");
        assert!(value(UpstreamAuth::Forward).await.unwrap().is_none());
        let bad = [
            UpstreamAuth::Variable("REJOIN_NO_SUCH_VARIABLE".into()),
            UpstreamAuth::Command("exit 3".into()),
            UpstreamAuth::Command("printf 'a\\nb'".into()),
            UpstreamAuth::Command("true".into()),
            UpstreamAuth::File(directory.path().join("none")),
        ];
        for auth in bad {
            assert!(value(auth.clone()).await.is_err(), "{auth:?}");
        }
    }

    #[test]
    fn only_listed_headers_are_passed_on() {
        let list = |names: &[&'static str]| {
            names.iter().map(|name| HeaderName::from_static(name)).collect::<Vec<_>>()
        };
        let names = forwarded(&UpstreamAuth::Forward, list(&["x-tenant"])).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-tenant", "a"), ("x-other", "b"), ("authorization", "c")] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let selected = select(&names, &headers);
        assert_eq!((selected.len(), &selected["x-tenant"]), (2, &HeaderValue::from_static("a")));
        assert!(!format!("{selected:?}").contains("\"c\""));

        let own = UpstreamAuth::Value(HeaderValue::from_static("x"));
        let names = forwarded(&own, list(&["authorization"])).unwrap();
        assert!(select(&names, &headers).is_empty());
        assert!(forwarded(&UpstreamAuth::None, list(&["mcp-session-id"])).is_err());
    }
}
