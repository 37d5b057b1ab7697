//! `rejoin probe`: how an MCP server fares when connections break, as a report.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rejoin_probe::{Notice, Options, Report, RunError};
use tokio::sync::watch;

use crate::args::ProbeArgs;
use crate::guarded::{GuardedError, GuardedServer};
use crate::signals::Signals;

/// Exit status when hazards were found.
const EXIT_HAZARDS: u8 = 1;

/// Exit status when the probe could not run.
pub(crate) const EXIT_NOT_RUN: u8 = 2;

/// Longest time of the command that prints a credential.
const CREDENTIAL_MAX: Duration = Duration::from_secs(30);

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// The run did not begin, or not end.
    #[error(transparent)]
    Run(#[from] RunError),
    /// There is no credential.
    #[error("there is no value of Authorization: {0}")]
    Credential(String),
    /// The stdio server could not be put behind `rejoin serve`.
    #[error(transparent)]
    Guarded(#[from] GuardedError),
    /// A file of the report could not be written.
    #[error("the report cannot be written to `{path}`")]
    Write {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused what the probe needs.
    #[error("the probe cannot go on")]
    System(#[from] io::Error),
    /// The report is no JSON.
    #[error("the report cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// `rejoin probe`, from its arguments to the exit status.
///
/// # Errors
/// See [`ProbeError`].
pub(crate) fn run(args: &ProbeArgs) -> Result<ExitCode, ProbeError> {
    if args.list {
        let mut output = io::stdout().lock();
        for about in rejoin_probe::hazards() {
            writeln!(output, "{:<26} {}", about.id, about.title)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(probe(args));
    runtime.shutdown_background();
    let report = report?;
    write(args, &report)?;
    Ok(match report.hazards() {
        1.. => ExitCode::from(EXIT_HAZARDS),
        0 if report.lost => ExitCode::from(EXIT_NOT_RUN),
        0 => ExitCode::SUCCESS,
    })
}

async fn probe(args: &ProbeArgs) -> Result<Report, ProbeError> {
    let mut options = options(args).await?;
    let mut signals = Signals::install(true)?;
    let (stop, stopped) = watch::channel(false);
    options.stop = Some(stopped);
    let folder = tempfile::TempDir::new()?;
    let served = serve(args, folder.path()).await?;
    if let Some(served) = &served {
        options.url = format!("http://{}/mcp", served.address());
    }
    let (trace, mut told) = (args.trace, false);
    let watcher = Arc::new(move |notice: &Notice<'_>| tell(notice, trace));
    let mut playing = std::pin::pin!(rejoin_probe::run(&options, watcher));
    let report = loop {
        tokio::select! {
            report = &mut playing => break report,
            _ = signals.next() => {
                if std::mem::replace(&mut told, true) {
                    break Err(RunError::Stopped);
                }
                let _ended = stop.send(true);
            }
        }
    };
    if let Some(served) = served {
        served.end().await;
    }
    Ok(report?)
}

/// Puts `rejoin serve` in front of a stdio server, and says so.
async fn serve(args: &ProbeArgs, folder: &Path) -> Result<Option<GuardedServer>, ProbeError> {
    if args.command.is_empty() {
        return Ok(None);
    }
    say("a stdio server has no HTTP to probe: it is served by `rejoin serve`, which is probed");
    let command: Vec<&OsStr> = args.command.iter().map(AsRef::as_ref).collect();
    let program = std::env::current_exe()?;
    Ok(Some(GuardedServer::start(&program, &command, folder.join("log")).await?))
}

async fn options(args: &ProbeArgs) -> Result<Options, ProbeError> {
    let mut headers = Vec::new();
    let text =
        |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    for header in &args.headers {
        headers.push((header.0.to_string(), text(&header.1)));
    }
    if let Some(auth) = &args.auth {
        let fetched = auth.0.fetch(CREDENTIAL_MAX).await;
        let value = fetched.map_err(|error| ProbeError::Credential(error.to_string()))?;
        headers.extend(value.map(|value| ("Authorization".to_owned(), text(&value))));
    }
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let name = (!words.is_empty()).then(|| format!("{}, behind rejoin serve", words.join(" ")));
    Ok(Options {
        url: args.url.clone().unwrap_or_default(),
        name,
        headers,
        ca_file: args.ca.clone(),
        tool: args.tool.clone(),
        arguments: args.args.clone().map(|json| json.0),
        burst_arguments: args.burst_args.clone().map(|json| json.0),
        flood_arguments: args.flood_args.clone().map(|json| json.0),
        allow_effects: args.allow_effects,
        count_command: args.count_cmd.clone(),
        restart_command: args.restart_cmd.clone(),
        only: args.only.clone(),
        stop: None,
    })
}

fn write(args: &ProbeArgs, report: &Report) -> Result<(), ProbeError> {
    let text = if args.json { report.json()? + "\n" } else { report.table() };
    io::stdout().lock().write_all(text.as_bytes())?;
    for (path, text) in [(&args.junit, report.junit()), (&args.html, report.html())] {
        if let Some(path) = path {
            let failed = |source| ProbeError::Write { path: path.display().to_string(), source };
            std::fs::write(path, text).map_err(failed)?;
        }
    }
    Ok(())
}

/// Says on standard error what happens.
fn tell(notice: &Notice<'_>, trace: bool) {
    let mut output = io::stderr().lock();
    // If nobody reads it, the report still tells.
    let _read = match notice {
        Notice::Chosen(subject) => writeln!(output, "calling {}", subject.told()),
        Notice::Begins(about, at, of) => {
            let end = if trace { "\n" } else { "" };
            write!(output, "[{at:>2}/{of}] {:<26} {end}", about.id)
        }
        Notice::Line(entry) if trace => writeln!(output, "{entry}"),
        Notice::Ends(finding) => writeln!(output, "{}", finding.verdict),
        _ => Ok(()),
    };
    let _flushed = output.flush();
}

fn say(text: &str) {
    let _read = writeln!(io::stderr(), "rejoin probe: {text}");
}
