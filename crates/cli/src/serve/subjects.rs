//! `--subjects FILE`: the operator's map of credentials, read at the start and again on SIGHUP.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use rejoin_core::causes;
use rejoin_gateway::gateway::Gateway;
use rejoin_gateway::subjects::{Subjects, SubjectsError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubjectsFileError {
    /// It cannot be read.
    #[error("{file}: the file cannot be read; check its path and permissions")]
    Unreadable {
        /// The file, after the setting that names it.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// A folder, a pipe or a device: it could be endless, or not be there a second time.
    #[error("{file}: this is no regular file; write the lines to one")]
    NoFile {
        /// The path, after the setting that names it.
        file: String,
    },
    /// It is too long.
    #[error(
        "{file}: the file has more than {bytes_max} bytes; take out the credentials that have run \
         out, or raise `--limit subjects_file_bytes_max=`"
    )]
    TooLarge {
        /// The file, after the setting that names it.
        file: String,
        /// The limit.
        bytes_max: u64,
    },
    /// It is not text.
    #[error("{file}: the file is not UTF-8 text; save it as such")]
    NoText {
        /// The file, after the setting that names it.
        file: String,
    },
    /// One of its lines.
    #[error("{file}")]
    BadLine {
        /// The file, after the setting that names it.
        file: String,
        /// Which, why, and what to do.
        source: SubjectsError,
    },
}

/// The operator's file, and how its setting is named.
#[derive(Clone, Debug)]
pub(super) struct SubjectsFile {
    /// Where it is.
    pub(super) path: PathBuf,
    /// `--subjects`, or a place in a file of options.
    pub(super) setting: String,
}

/// Reads the file, if it has no more than `bytes_max` bytes. Blocks as long as its disk does.
///
/// # Errors
/// See [`SubjectsFileError`].
pub(super) fn read(from: &SubjectsFile, bytes_max: u64) -> Result<Subjects, SubjectsFileError> {
    let path = &from.path;
    let file = || format!("{} {}", from.setting, path.display());
    let unreadable = |source| SubjectsFileError::Unreadable { file: file(), source };
    // Before it is opened: to open a pipe can take for ever.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(SubjectsFileError::NoFile { file: file() });
    }
    let mut bytes = Vec::new();
    let opened = File::open(path).map_err(unreadable)?;
    // Files such as those of /proc say nothing of their length: one byte more tells.
    opened.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > bytes_max {
        return Err(SubjectsFileError::TooLarge { file: file(), bytes_max });
    }
    let text = String::from_utf8(bytes).map_err(|_| SubjectsFileError::NoText { file: file() })?;
    Subjects::parse(&text).map_err(|source| SubjectsFileError::BadLine { file: file(), source })
}

/// The file, read again whenever the process gets SIGHUP.
pub(super) struct Reread {
    file: SubjectsFile,
    bytes_max: u64,
    hangup: Signal,
}

impl Reread {
    /// Catches the signal from here on: call it before the file is read for the first time, so that
    /// no change is missed. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// When the operating system refuses a handler.
    pub(super) fn install(file: SubjectsFile, bytes_max: u64) -> io::Result<Self> {
        Ok(Self { file, bytes_max, hangup: signal(SignalKind::hangup())? })
    }

    /// Gives the gateway what the file holds, each time anew; a file that cannot be used changes
    /// nothing. Never ends.
    pub(super) async fn run(mut self, gateway: &Gateway) {
        while self.hangup.recv().await.is_some() {
            let (file, bytes_max) = (self.file.clone(), self.bytes_max);
            let reading = spawn_blocking(move || read(&file, bytes_max));
            match reading.await {
                Ok(Ok(subjects)) => {
                    let credentials = subjects.len();
                    gateway.set_subjects(subjects);
                    tracing::info!(credentials, "the subjects were read again");
                }
                Ok(Err(error)) => {
                    let why = causes::told(&error);
                    tracing::warn!(why, "the subjects stay as they were");
                }
                Err(error) => tracing::error!(%error, "the subjects stay as they were"),
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const BYTES_MAX: u64 = 100;

    fn file(path: &Path) -> SubjectsFile {
        SubjectsFile { path: path.to_owned(), setting: "--subjects".to_owned() }
    }

    fn told(path: &Path) -> String {
        causes::told(&read(&file(path), BYTES_MAX).unwrap_err())
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_line_and_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subjects");
        let begin = format!("--subjects {}: ", path.display());
        for (content, expected) in [
            (None, "check its path"),
            (Some(b"# mine\nBearer secret alice\n".to_vec()), "line 2 "),
            (Some(vec![b'#'; BYTES_MAX as usize + 1]), "more than 100 bytes"),
            (Some(b"# secret \xff".to_vec()), "not UTF-8 text"),
        ] {
            if let Some(content) = content {
                std::fs::write(&path, content).unwrap();
            }
            let text = told(&path);
            assert!(text.starts_with(&begin) && text.contains(expected), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
        std::fs::write(&path, vec![b'#'; BYTES_MAX as usize]).unwrap();
        assert_eq!(read(&file(&path), BYTES_MAX).unwrap().len(), 0);
    }

    #[test]
    fn what_is_no_file_is_refused_before_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), Path::new("/dev/zero")] {
            assert!(told(path).contains("no regular file"), "{}", told(path));
        }
    }
}
