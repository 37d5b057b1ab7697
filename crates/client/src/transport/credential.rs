//! The value of `Authorization`: fetched once, and again when the server refuses it.
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use http::HeaderValue;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

/// Bytes of a credential at most. Servers take far less in a header.
const CREDENTIAL_BYTES_MAX: u64 = 64 * 1024;

/// Where the value of `Authorization` comes from.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// There is none.
    #[default]
    None,
    /// An environment variable, read when it is first needed.
    Variable(String),
    /// The content of a file, read again when the server answers 401.
    File(PathBuf),
    /// What a command prints, run by `sh -c`, and again when the server answers 401.
    Command(String),
}

impl Credential {
    /// The value of `Authorization`, fetched now; a file or command may take this long.
    ///
    /// # Errors
    /// See [`CredentialError`].
    pub async fn fetch(
        &self,
        source_max: Duration,
    ) -> Result<Option<HeaderValue>, CredentialError> {
        Keeper::new(self.clone(), source_max).value().await
    }
}

impl std::fmt::Debug for Credential {
    /// Without the command, which can hold a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Variable(_) => "Variable",
            Self::File(_) => "File",
            Self::Command(_) => "Command",
        })
    }
}

impl Credential {
    /// The credential as messages to a person name it: where it comes from, and nothing that can be
    /// secret. Empty: there is none.
    pub(crate) fn named(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Variable(name) => format!("the credential in the variable `{name}`"),
            Self::File(path) => format!("the credential in the file `{}`", path.display()),
            Self::Command(line) => match program(line) {
                Some(program) => format!("the credential that the command `{program}` printed"),
                None => "the credential that the command printed".to_owned(),
            },
        }
    }
}

/// The program that a command line begins with; its arguments can hold secrets. `None`: it begins
/// with something else, such as a variable.
fn program(line: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./+".contains(&byte);
    line.split_ascii_whitespace().next().filter(|first| first.bytes().all(plain))
}

/// Why there is no credential. No message holds any of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// The environment has no such variable.
    #[error("the variable `{name}` is not set: set it before the client starts")]
    NoVariable {
        /// Its name.
        name: String,
    },
    /// The file cannot be read.
    #[error("the file `{path}` cannot be read: {source}; check its path and permissions")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The command failed.
    #[error("the command for the credential {what}: run it by hand with sh -c")]
    Command {
        /// How.
        what: String,
    },
    /// What was found cannot be the value of a header.
    #[error("the credential is empty or not one line of text: it must be such as `Bearer TOKEN`")]
    NotAHeader,
}

/// The credential of a server.
#[derive(Debug)]
pub(super) struct Keeper {
    source: Credential,
    known: Mutex<Known>,
    /// Time that its source may take.
    source_max: Duration,
}

#[derive(Debug, Default)]
struct Known {
    value: Option<HeaderValue>,
    /// When the command failed last, and how.
    failed: Option<(Instant, String)>,
}

impl Keeper {
    pub(super) fn new(source: Credential, source_max: Duration) -> Self {
        Self { source, known: Mutex::default(), source_max }
    }

    /// Looks for what must be there from the start. Commands are not run, and pipes not read: they
    /// may have what they give only once.
    pub(super) fn check(&self) -> Result<(), CredentialError> {
        match &self.source {
            Credential::None | Credential::Command(_) => Ok(()),
            Credential::Variable(name) => header(&variable(name)?).map(drop),
            Credential::File(path) if is_special(path) => Ok(()),
            Credential::File(path) => header(&read(path)?).map(drop),
        }
    }

    /// The value, fetched if it is not known.
    pub(super) async fn value(&self) -> Result<Option<HeaderValue>, CredentialError> {
        let asked = Instant::now();
        let mut known = self.known.lock().await;
        if known.value.is_none() {
            self.fetch(&mut known, asked).await?;
        }
        Ok(known.value.clone())
    }

    /// Another value than the one that was refused. `None`: there is no other.
    pub(super) async fn renewed(&self, refused: Option<&HeaderValue>) -> Option<HeaderValue> {
        if !matches!(self.source, Credential::File(_) | Credential::Command(_)) {
            return None;
        }
        let asked = Instant::now();
        let mut known = self.known.lock().await;
        if known.value.as_ref() == refused {
            self.fetch(&mut known, asked).await.ok()?;
        }
        known.value.clone().filter(|value| Some(value) != refused)
    }

    /// Who waited while the command failed has its answer in that.
    async fn fetch(&self, known: &mut Known, asked: Instant) -> Result<(), CredentialError> {
        let text = match &self.source {
            Credential::None => return Ok(()),
            Credential::Variable(name) => variable(name)?,
            Credential::File(path) => self.read_apart(path).await?,
            Credential::Command(line) => {
                if let Some((_, what)) = known.failed.as_ref().filter(|(at, _)| *at >= asked) {
                    return Err(CredentialError::Command { what: what.clone() });
                }
                let printed = self.printed(line).await;
                if let Err(CredentialError::Command { what }) = &printed {
                    known.failed = Some((Instant::now(), what.clone()));
                }
                printed?
            }
        };
        known.value = Some(header(&text)?);
        Ok(())
    }

    async fn printed(&self, line: &str) -> Result<String, CredentialError> {
        let failed = |what: String| CredentialError::Command { what };
        let not_started = |error| failed(format!("cannot be started ({error})"));
        // A group of its own: what it starts is ended with it.
        let mut child = Command::new("sh")
            .args(["-c", line])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(not_started)?;
        let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
        let ended = async {
            let mut printed = Vec::new();
            if let Some(stdout) = child.stdout.take() {
                stdout.take(CREDENTIAL_BYTES_MAX + 1).read_to_end(&mut printed).await?;
            }
            let is_whole = printed.len() as u64 <= CREDENTIAL_BYTES_MAX;
            let status = if is_whole { Some(child.wait().await?) } else { None };
            Ok((printed, status))
        };
        let (printed, status) = timeout(self.source_max, ended)
            .await
            .map_err(|_| failed(format!("did not end within {:?}", self.source_max)))?
            .map_err(not_started)?;
        let Some(status) = status else {
            return Err(failed(format!("prints more than {CREDENTIAL_BYTES_MAX} bytes")));
        };
        group.leave();
        if !status.success() {
            return Err(failed(format!("ended with {status}")));
        }
        String::from_utf8(printed).map_err(|_| CredentialError::NotAHeader)
    }

    /// Reads a file in a thread of its own, which nothing waits for: what is no plain file may give
    /// nothing for ever.
    async fn read_apart(&self, path: &Path) -> Result<String, CredentialError> {
        let (done, read_text) = oneshot::channel();
        let wanted = path.to_owned();
        thread::Builder::new()
            .name("credential".to_owned())
            .spawn(move || done.send(read(&wanted)).is_ok())
            .map_err(|error| unreadable(path, error))?;
        match timeout(self.source_max, read_text).await {
            Ok(Ok(text)) => text,
            _ => {
                let what = format!("it gave nothing within {:?}", self.source_max);
                Err(unreadable(path, io::Error::new(io::ErrorKind::TimedOut, what)))
            }
        }
    }
}

/// The processes of a command; killed when it is given up.
struct Group(Option<Pid>);

impl Group {
    /// The command has ended by itself: what it left running is meant to.
    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            let _all_ended = killpg(id, Signal::SIGKILL).is_err();
        }
    }
}

fn variable(name: &str) -> Result<String, CredentialError> {
    std::env::var(name).map_err(|_| CredentialError::NoVariable { name: name.to_owned() })
}

/// Whether a path leads to something that is no plain file, such as a pipe or a device.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn read(path: &Path) -> Result<String, CredentialError> {
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(CREDENTIAL_BYTES_MAX + 1).read_to_string(&mut text));
    match read {
        Ok(bytes) if bytes as u64 > CREDENTIAL_BYTES_MAX => {
            let what = format!("it holds more than {CREDENTIAL_BYTES_MAX} bytes");
            Err(unreadable(path, io::Error::new(io::ErrorKind::FileTooLarge, what)))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn unreadable(path: &Path, source: io::Error) -> CredentialError {
    CredentialError::File { path: path.display().to_string(), source }
}

/// The value of `Authorization` in what a source holds.
fn header(text: &str) -> Result<HeaderValue, CredentialError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(CredentialError::NotAHeader);
    }
    // One word is a bearer token (RFC 6750 section 2.1).
    let value = if text.contains(' ') { text.to_owned() } else { format!("Bearer {text}") };
    let mut value = HeaderValue::from_str(&value).map_err(|_| CredentialError::NotAHeader)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_is_run_again_only_for_the_value_that_was_refused() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count");
        let line = format!("echo x >> {0}; echo Bearer $(wc -l < {0})", count.display());
        let keeper = Keeper::new(Credential::Command(line), Duration::from_secs(10));
        let first = keeper.value().await.unwrap();
        assert_eq!(first.as_ref().unwrap(), "Bearer 1");
        assert_eq!(keeper.value().await.unwrap(), first);
        let second = keeper.renewed(first.as_ref()).await;
        assert_eq!(second.as_ref().unwrap(), "Bearer 2");
        assert_eq!(keeper.renewed(first.as_ref()).await, second, "it was renewed already");
    }

    #[test]
    fn a_credential_is_named_by_where_it_comes_from_and_shows_no_secret() {
        let command = |line: &str| Credential::Command(line.to_owned()).named();
        assert!(command("/usr/bin/op read zqsecret").ends_with("`/usr/bin/op` printed"));
        for line in ["TOKEN=zqsecret op", "'zqsecret", "", "echo$zqsecret"] {
            assert_eq!(command(line), "the credential that the command printed", "{line}");
        }
        assert!(Credential::Variable("TOKEN".to_owned()).named().contains("`TOKEN`"));
        assert_eq!(Credential::None.named(), "");
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let ids = folder.path().join("ids");
        // The shell waits for one and has the other behind it.
        let line = format!("sleep 300 & echo $! > {0}; sleep 301; true", ids.display());
        let keeper = Keeper::new(Credential::Command(line), Duration::from_secs(2));
        assert!(keeper.value().await.is_err());
        let id = std::fs::read_to_string(&ids).unwrap();
        let stat = format!("/proc/{}/stat", id.trim());
        let ends = Instant::now() + Duration::from_secs(10);
        // What nobody has waited for yet is gone too.
        let runs = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        while runs() {
            assert!(Instant::now() < ends, "it runs on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_source_without_end_is_not_read_to_its_end() {
        for source in
            [Credential::Command("yes".to_owned()), Credential::File(PathBuf::from("/dev/zero"))]
        {
            let keeper = Keeper::new(source, Duration::from_secs(30));
            keeper.check().unwrap();
            let error = keeper.value().await.unwrap_err().to_string();
            assert!(error.contains("more than 65536 bytes"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_pipe_that_nobody_writes_to_stops_neither_the_start_nor_anything_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let keeper = Keeper::new(Credential::File(path.clone()), Duration::from_millis(100));
        keeper.check().unwrap();
        let error = keeper.value().await.unwrap_err().to_string();
        assert!(error.contains("gave nothing within 100ms"), "{error}");
        // The thread that reads it ends.
        std::fs::write(&path, "").unwrap();
    }

    #[tokio::test]
    async fn a_command_that_fails_is_run_once_for_all_that_wait_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count");
        let line = format!("echo x >> {0}; sleep 60", count.display());
        let keeper = Keeper::new(Credential::Command(line), Duration::from_millis(500));
        let (first, second, third) = tokio::join!(keeper.value(), keeper.value(), keeper.value());
        for failed in [first, second, third] {
            assert!(matches!(failed, Err(CredentialError::Command { .. })), "{failed:?}");
        }
        let runs = || std::fs::read_to_string(&count).unwrap_or_default().lines().count();
        assert!(runs() <= 1, "{} runs", runs());
        // Who asks later has it run again.
        assert!(keeper.value().await.is_err());
    }
}
