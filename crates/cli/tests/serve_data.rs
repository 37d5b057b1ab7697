//! How `rejoin serve --data` refuses to start: one sentence that names the place and what to do,
//! status 1, and nothing of the directory is changed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::disk::Disk;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::session::Session;

const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
const ANYWHERE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

fn serve(data: &Path) -> Command {
    let mut command = Command::new(REJOIN);
    command.args(ANYWHERE).args(["--log", "error", "--data"]).arg(data);
    command
}

/// What it says, and that it ends with status 1.
fn refusal(mut command: Command) -> Result<String, Failure> {
    let output = command.output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "it announced itself");
    assert!(said.starts_with("rejoin serve: --data: ") && said.lines().count() == 1, "{said}");
    Ok(said)
}

fn says(said: &str, words: &[&str]) {
    assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
}

/// A directory in which a session was served, and its database.
async fn served(data: PathBuf) -> Result<PathBuf, Failure> {
    let arguments = ANYWHERE.map(Into::into).into_iter().chain(["--data".into(), data.clone()]);
    let mut gateway = Server::start(REJOIN, arguments)?;
    Session::open(gateway.address("listens", WAIT).await?).await?;
    assert_eq!(gateway.end(WAIT).await?.code(), Some(0));
    Ok(data.join("rejoin.db"))
}

type Change = fn(&mut [u8]);

#[tokio::test]
async fn a_database_that_cannot_be_used_is_named_and_left_as_it_is() -> TestResult {
    let folder = tempfile::tempdir()?;
    let database = served(folder.path().join("data")).await?;
    let sound = fs::read(&database)?;
    // Where the file format of SQLite has them: its user version, its application id.
    let cases: [(Change, &[&str]); 4] = [
        (|bytes| bytes[60..64].copy_from_slice(&77_u32.to_be_bytes()), &["schema 77", "newer"]),
        (|bytes| bytes[68..72].fill(0), &["not a database of Rejoin", "name another data dir"]),
        (|bytes| bytes[..100].fill(b'x'), &["is damaged", "restore the data directory"]),
        (|bytes| bytes[8_192..].fill(0xa5), &["is damaged", "or move it away"]),
    ];
    for (change, words) in cases {
        let mut bytes = sound.clone();
        change(&mut bytes);
        fs::write(&database, &bytes)?;
        let said = refusal(serve(database.parent().unwrap()))?;
        says(&said, &[words, &[database.to_str().unwrap()]].concat());
        assert!(fs::read(&database)? == bytes, "{words:?}: it was changed");
    }
    fs::write(&database, &sound)?;
    served(folder.path().join("data")).await?;
    Ok(())
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_to_is_named_with_what_to_do() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    fs::write(&file, "kept")?;
    // The last is a directory in which nobody can make a file, whoever runs this.
    for path in [file.as_path(), &file.join("below"), Path::new("/proc/self")] {
        let said = refusal(serve(path))?;
        says(&said, &["cannot write to the data directory", path.to_str().unwrap(), "can write"]);
    }
    assert_eq!(fs::read_to_string(&file)?, "kept");
    Ok(())
}

#[tokio::test]
async fn a_directory_on_a_bad_disk_is_named_with_what_to_do() -> TestResult {
    let disk = Disk::new()?;
    let data = disk.path("data");
    for is_made in [false, true] {
        if is_made {
            served(data.clone()).await?;
        }
        let before = fs::read(data.join("rejoin.db")).ok();
        for (fault, words) in [("f", ["is full", "make room"]), ("w", ["cannot open", "the disk"])]
        {
            disk.set_fault(fault)?;
            let mut command = serve(&data);
            command.envs(disk.environment());
            says(&refusal(command)?, &words);
        }
        assert!(fs::read(data.join("rejoin.db")).ok() == before, "it was changed");
    }
    disk.set_fault("-")?;
    served(data).await?;
    Ok(())
}
