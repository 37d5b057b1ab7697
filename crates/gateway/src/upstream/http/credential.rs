//! Whose credential the server sees, and which headers of the client are passed on.
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
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
pub(in crate::upstream) fn forwarded(
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
#[non_exhaustive]
pub enum CredentialError {
    /// The environment has no such variable.
    #[error("the variable `{name}` is not set: set it before Rejoin starts")]
    NoVariable {
        /// Its name.
        name: String,
    },
    /// The file is not there, or not for this process.
    #[error("the file `{path}` cannot be read: {source}; check its path and permissions")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// There is no shell.
    #[error("sh, which runs the command `{word}`, cannot be started: {source}; install it")]
    NoShell {
        /// The command's first word.
        word: String,
        /// What the system said.
        source: io::Error,
    },
    /// The command failed.
    #[error(
        "the command `{word}` ended with {status}: run the whole of it by hand with sh -c, and \
         see what it says on standard error"
    )]
    Failed {
        /// The command's first word.
        word: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The command takes too long.
    #[error(
        "the command `{word}` did not end within {} s: it must print the credential without \
         asking for anything",
        COMMAND_MAX.as_secs()
    )]
    TooSlow {
        /// The command's first word.
        word: String,
    },
    /// What was found cannot be the value of a header.
    #[error(
        "{origin} holds nothing, or not one line of text: it must give the whole Authorization \
         value, such as Bearer TOKEN"
    )]
    NotAHeader {
        /// Where it came from.
        origin: String,
    },
}

impl UpstreamAuth {
    /// Looks for a credential that must be there from the start. Commands are not run, and what is
    /// no regular file is not read: both may give what they have only once.
    ///
    /// # Errors
    ///
    /// See [`CredentialError`].
    pub(super) fn check(&self) -> Result<(), CredentialError> {
        let text = match self {
            Self::Variable(name) => variable(name)?,
            Self::File(path) => {
                let found = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
                if !found.is_file() {
                    return Ok(());
                }
                read(path)?
            }
            Self::Forward | Self::None | Self::Value(_) | Self::Command(_) => return Ok(()),
        };
        self.header(&text).map(drop)
    }

    /// The value for `Authorization` in what the source holds.
    fn header(&self, text: &str) -> Result<HeaderValue, CredentialError> {
        let text = text.trim();
        match HeaderValue::from_str(text) {
            Ok(value) if !text.is_empty() => Ok(value),
            _ => Err(self.not_a_header()),
        }
    }

    fn not_a_header(&self) -> CredentialError {
        let origin = match self {
            Self::Variable(name) => format!("the variable `{name}`"),
            Self::File(path) => format!("the file `{}`", path.display()),
            Self::Command(line) => format!("what the command `{}` prints", first_word(line)),
            Self::Forward | Self::None | Self::Value(_) => "the credential".to_owned(),
        };
        CredentialError::NotAHeader { origin }
    }
}

fn variable(name: &str) -> Result<String, CredentialError> {
    // A value that is no text is told apart from none: it is there.
    let value = std::env::var_os(name);
    let value = value.ok_or_else(|| CredentialError::NoVariable { name: name.to_owned() })?;
    Ok(value.to_string_lossy().into_owned())
}

fn read(path: &Path) -> Result<String, CredentialError> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, source: io::Error) -> CredentialError {
    CredentialError::File { path: path.display().to_string(), source }
}

/// The program of a shell's command line: of the rest, any word can be a secret, and so can a
/// variable that is set before it.
fn first_word(line: &str) -> String {
    let word = line.split_whitespace().find(|word| !word.contains('='));
    word.unwrap_or("sh").to_owned()
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
            UpstreamAuth::Variable(name) => variable(name)?,
            UpstreamAuth::File(path) => {
                let file = path.clone();
                let reading = tokio::task::spawn_blocking(move || read(&file)).await;
                reading.unwrap_or_else(|error| Err(unreadable(path, io::Error::other(error))))?
            }
            UpstreamAuth::Command(line) => {
                let printed = run(line).await?;
                String::from_utf8(printed).map_err(|_| self.auth.not_a_header())?
            }
        };
        self.auth.header(&text)
    }
}

async fn run(line: &str) -> Result<Vec<u8>, CredentialError> {
    let word = || first_word(line);
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = timeout(COMMAND_MAX, command.output()).await;
    let output = output.map_err(|_| CredentialError::TooSlow { word: word() })?;
    let output = output.map_err(|source| CredentialError::NoShell { word: word(), source })?;
    if !output.status.success() {
        return Err(CredentialError::Failed { word: word(), status: output.status });
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

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
            (UpstreamAuth::Variable("REJOIN_NO_SUCH_VARIABLE".into()), "`REJOIN_NO_SUCH_VARIABLE`"),
            (UpstreamAuth::Command("exit 3".into()), "`exit` ended with exit status: 3: run"),
            (UpstreamAuth::Command("A=secret exit 3 secret".into()), "`exit` ended with"),
            (UpstreamAuth::Command("printf 'secret\\nb'".into()), "`printf` prints holds nothing"),
            (UpstreamAuth::Command("true".into()), "`true` prints holds nothing"),
            (UpstreamAuth::File(directory.path().join("none")), "check its path"),
        ];
        for (auth, expected) in bad {
            let text = value(auth).await.unwrap_err().to_string();
            assert!(text.contains(expected) && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn what_must_be_there_from_the_start_is_looked_for_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| UpstreamAuth::File(directory.path().join(name));
        std::fs::write(directory.path().join("token"), "Bearer one\n").unwrap();
        std::fs::write(directory.path().join("empty"), "\n").unwrap();
        assert!(file("token").check().is_ok());
        for (bad, expected) in [
            (file("none"), "none` cannot be read: No such file"),
            (file("empty"), "empty` holds nothing"),
            (UpstreamAuth::Variable("REJOIN_NO_SUCH_VARIABLE".into()), "is not set"),
        ] {
            let text = bad.check().unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
        // A pipe would wait for its writer, and have nothing left for the first request.
        let (mut reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"Bearer one").unwrap();
        drop(writer);
        let pipe = format!("/proc/self/fd/{}", reader.as_raw_fd());
        assert!(UpstreamAuth::File(pipe.into()).check().is_ok());
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "Bearer one");
        let touch = directory.path().join("ran");
        let command = UpstreamAuth::Command(format!("touch {}", touch.display()));
        assert!(command.check().is_ok() && !touch.exists());
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
